"""Imported by each program: prints PyTorch's own counters of every device when the script ends."""

import atexit
import os

import torch

_said = False


def say(rank=None):
    """In a process that ends without Python's own end, or knows no RANK (mp.spawn): to be called at its end."""
    global _said
    for device in () if _said else range(torch.cuda.device_count()):
        peaks = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
        if peaks[1]:
            os.write(2, f"\n@{os.environ.get('RANK', 0) if rank is None else rank}.{device}={peaks[0]},{peaks[1]}\n".encode())
    _said = True


atexit.register(say)
