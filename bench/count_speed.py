#!/usr/bin/env python3
"""The time to count what one launch of a kernel does, and to read the kernel's text, for kernels of tests/ptx.

    python3 bench/count_speed.py --bench build/bench/bin/gpucast_bench

The counts are checked against formulas. Returns non-zero only if one is wrong; times are for reading.
"""

import argparse
import json
import subprocess


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    options = parser.parse_args()
    words = [options.bench, "--benchmark_filter=^(count|read)/", "--benchmark_format=json"]
    rows = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)["benchmarks"]
    wrong = [row["name"] for row in rows if row.get("error_occurred")]
    print("| kernel | count a launch, us | read the text, us |\n|---|---|---|")
    times = {row["name"]: f"{row['cpu_time']:.0f}" for row in rows if row["name"] not in wrong}
    for name in dict.fromkeys(row["name"].split("/")[1] for row in rows):
        print(f"| {name.replace('_', ' ')} | {times.get('count/' + name, '-')} | {times.get('read/' + name, '-')} |")
    for name in wrong:
        print(f"{name}: a wrong count")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    raise SystemExit(main())
