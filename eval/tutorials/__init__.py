"""The tables that Triton's tutorials print on a real card, and the same tutorials under `gpucast run --warp`."""
