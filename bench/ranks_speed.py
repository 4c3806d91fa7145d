#!/usr/bin/env python3
"""The time to play a step of a million operations on 64 ranks: 4 pipeline stages, tensor groups of 8 cards, 2 replicas.

    python3 bench/ranks_speed.py --bench build/bench/bin/gpucast_bench

The step's time is checked against the pipeline's formula. Returns non-zero only if it is wrong; times are for reading.
"""

import argparse
import json
import subprocess


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    options = parser.parse_args()
    words = [options.bench, "--benchmark_filter=BM_Play", "--benchmark_format=json"]
    rows = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)["benchmarks"]
    for row in rows:
        if row.get("error_occurred"):
            print(f"{row['name']}: {row['error_message']}")
        else:
            print(f"{row['operations']:.0f} operations: {row['real_time'] / 1000:.2f} s ({row['cpu_time'] / 1000:.2f} s CPU)")
    return 1 if not rows or any(row.get("error_occurred") for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
