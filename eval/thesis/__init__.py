"""The tables of a thesis on PyTorch's memory, repeated."""
