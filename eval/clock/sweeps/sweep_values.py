"""What the sweeps share: the values to measure, how they are printed, and a training step's time."""

import argparse
import json
import time

import torch

REPEATS = 10


def sweep(measure, *values):
    """Prints {value: milliseconds by measure(value)}: of all values in one process, or of --only one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", type=int, choices=values)
    only = parser.parse_args().only
    print(json.dumps({value: measure(value) for value in (values if only is None else [only])}), flush=True)


def by_wall(step):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(REPEATS):
        step()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin) / REPEATS
