"""ORION (Pourali and Khazaei, ICPE 2026): a training step is the slower of two paths, computing and loading. Here for comparison.

    flops      closed-form FLOPs of its families, memory surrogate, arithmetic intensity (section 3.2)
    pipeline   disk, decoding and the universal scalability law; step = max (sections 3.3 and 3.4)
    steps      the methods' inputs: figures of a step and a card, from a capture
    features   the numbers that ORION's and PreNeT's trees see
    trees      boosted trees: trained by LightGBM, kept as JSON, evaluated without it
    __main__   the command: PYTHONPATH=python python -m orion CAPTURE --gpu CARDS --method orion,prenet,roofline,gpucast

Python's standard library alone, except for training. No other part of gpucast needs it.
"""
