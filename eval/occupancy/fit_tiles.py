#!/usr/bin/env python3
"""Fits the costs of cuBLAS's fp32 kernels on Ampere (kPlainGemm in src/job/typical_launch.cc) to the kernels that cuBLAS chose for NeuSight's
linear layers on an A100.

    python -m eval.occupancy.fit_tiles --data DIR

A kernel's cost is (k + begin) x cost x its tile's area x the blocks of a multiprocessor. The blocks of a partial wave cost as much as `alone` full
waves at least. The cheapest kernel is the choice. The fit makes the chosen kernels likely (softmax of the costs' logarithms).
Half of the rows is used; both halves are reported, and the V100's rows with the same constants. Rows whose sum was cut into parts are left out.
Needs numpy and scipy; a minute or two."""

import argparse
import csv
import gzip
import random
import re
from pathlib import Path

import numpy as np

# Tile, blocks that fit on a multiprocessor, warps of a block.
KERNELS = {
    "128x128": (128, 128, 2, 8),
    "128x64": (128, 64, 4, 4),
    "128x32": (128, 32, 4, 8),
    "32x128": (32, 128, 4, 8),
    "64x64": (64, 64, 8, 2),
    "128x32_sliced1x4": (128, 32, 1, 8),
    "64x32_sliced1x4": (64, 32, 2, 8),
    "32x32_sliced1x4": (32, 32, 4, 4),
}
TILE_M, TILE_N, RESIDENT, WARPS = np.array(list(KERNELS.values()), float).T
COUNT = len(KERNELS)
BUSY_WARPS = 8  # `counters` in data/step.json


def rows(path):
    """The chosen kernel's number, and m, n, k as cuBLAS sees them."""
    out = []
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            match = re.match(r"(?:ampere|volta)_sgemm_(.*)_tn$", row["Kernel Name"])
            if match and match[1] in KERNELS and row["Grid z"] == "1":
                out.append((list(KERNELS).index(match[1]), int(row["K"]), int(row["B"]) * int(row["M"]), int(row["N"])))
    return out


def columns(some):
    table = np.array(some, float)
    return table[:, 0].astype(int), *(table[:, i : i + 1] for i in (1, 2, 3))


def unpacked(numbers):
    return (
        np.exp(numbers[:COUNT]),
        1 / (1 + np.exp(-numbers[COUNT : 2 * COUNT])),
        np.exp(numbers[2 * COUNT : 3 * COUNT]),
        np.exp(numbers[-1]),
    )


def log_costs(numbers, m, n, k, multiprocessors):
    cost, alone, begin, _ = unpacked(numbers)
    blocks = np.ceil(np.ceil(m / TILE_M) * np.ceil(n / TILE_N) / multiprocessors)
    last = blocks % RESIDENT
    at_once = blocks - last + np.where(last > 0, np.maximum(last, alone * RESIDENT), 0)
    return np.log((k + begin) * cost * TILE_M * TILE_N * at_once)


def unlikely(numbers, table, multiprocessors):
    chosen, *sizes = table
    scores = -unpacked(numbers)[3] * log_costs(numbers, *sizes, multiprocessors)
    scores -= scores.max(1, keepdims=True)
    likely = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return -likely[np.arange(len(chosen)), chosen].mean() + 1e-3 * (numbers[COUNT : 2 * COUNT] ** 2).mean()


def occupancy(kernel, m, n, multiprocessors):
    """As src/occupancy/counters.cc, without empty time."""
    resident, warps = RESIDENT[kernel], WARPS[kernel]
    waves = np.ceil(m[:, 0] / TILE_M[kernel]) * np.ceil(n[:, 0] / TILE_N[kernel]) / (multiprocessors * resident)
    full, tail = np.floor(waves), waves % 1
    time = np.where(tail > 0, np.maximum(np.ceil(tail * resident) / resident, np.minimum(1, BUSY_WARPS / (resident * warps))), 0)
    return np.where(full == 0, tail, (full + time * tail) / np.maximum(full + time, 1e-9)) * resident * warps / 64


def report(name, numbers, table, multiprocessors):
    chosen, m, n, k = table
    ours = log_costs(numbers, m, n, k, multiprocessors).argmin(1)
    error = np.abs(occupancy(ours, m, n, multiprocessors) / occupancy(chosen, m, n, multiprocessors) - 1)
    small = (m[:, 0] < 4096) & (n[:, 0] < 1024) & (k[:, 0] < 4096)
    for rows_name, part in ((name, np.full(len(m), True)), (f"{name}, as in an MLP", small)):
        print(
            f"{rows_name}: {part.sum()} rows, {np.mean((ours == chosen)[part]):.0%} the same kernel, occupancy differs by {np.mean(error[part]):.1%} on average"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with neusight")
    args = parser.parse_args()
    from scipy.optimize import minimize  # the environments of the tests do not have it

    folder = args.data / "neusight/ops_train"
    all_rows = rows(folder / "linear__NVIDIA_A100-PCIE-40GB.csv.gz")
    random.Random(3).shuffle(all_rows)
    fitted, others = columns(all_rows[: len(all_rows) // 2]), columns(all_rows[len(all_rows) // 2 :])
    found = None
    for seed in range(3):
        draw = np.random.default_rng(seed)
        begin = np.concatenate([draw.normal(0, 0.2, COUNT), draw.normal(0, 0.5, COUNT), 4 + draw.normal(0, 0.5, COUNT), [2.0]])
        for _ in range(2):
            result = minimize(unlikely, begin, args=(fitted, 108), method="L-BFGS-B", options={"maxiter": 150, "maxfun": 8000})
            begin = result.x
        found = result if found is None or result.fun < found.fun else found
    cost, alone, begin, _ = unpacked(found.x)
    for number, name in enumerate(KERNELS):
        print(f"{name}: cost {cost[number] / cost[1]:.3f}, alone {alone[number]:.3f}, begin {begin[number]:.1f}")
    report("A100, fitted half", found.x, fitted, 108)
    report("A100, other half", found.x, others, 108)
    report("V100", found.x, columns(rows(folder / "linear__Tesla_V100-PCIE-32GB.csv.gz")), 80)


if __name__ == "__main__":
    main()
