"""What the scripts of several ranks share: the group, and the time of a step as the script itself prints it."""

import os
import sys
import time

import torch
import torch.distributed as dist

WARM_UP, STEPS = 3, 12


def begin():
    """Returns this process's rank and the number of ranks."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(dist.get_rank())
    return dist.get_rank(), dist.get_world_size()


def measure(step):
    """Rank 0 prints milliseconds a step. With --steps-only nobody waits for the card between steps."""
    timed = "--steps-only" not in sys.argv
    for number in range(WARM_UP + STEPS):
        if timed and number == WARM_UP:
            torch.cuda.synchronize()
            began = time.perf_counter()
        step()
    torch.cuda.synchronize()
    if timed and dist.get_rank() == 0:
        print(f'{{"wall": {1e3 * (time.perf_counter() - began) / STEPS:.4f}}}', flush=True)
    dist.destroy_process_group()
