"""ORION (Pourali and Khazaei, ICPE 2026): a training step is the slower of two paths, computing and feeding. Here to be compared with.

    flops      closed-form FLOPs of its families, memory surrogate, arithmetic intensity (section 3.2)
    pipeline   disk, decoding and the universal scalability law; step = max (sections 3.3 and 3.4)
    steps      what the methods know of a step and a card, from a capture
    features   the numbers that ORION's and PreNeT's trees see
    trees      boosted trees: trained by LightGBM, kept as JSON, asked without it
    __main__   the command: PYTHONPATH=python python -m orion CAPTURE --gpu CARDS --method orion,prenet,roofline,gpucast

Python's standard library alone, but for training. No other part of gpucast needs it.
"""
