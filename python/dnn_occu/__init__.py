"""DNN-occu (Mei et al., Fig. 3), trained on occupancies that gpucast computes: `gpucast occupancy --method dnn-occu`.

    graphs     a recorded graph and a card as numbers: Table I's features
    networks   DNN-occu and the five networks that the paper compares it with
    training   trains a network, resumably
    predict    the command's program

Needs PyTorch (any build, on the CPU) and NumPy.
"""
