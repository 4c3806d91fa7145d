#!/usr/bin/env python3
"""Rows of measure_kernels_time.py compared with the times that the same script is given on the virtual GPU.

    python -m eval.truth.compare_kernels_time ROWS.jsonl --python ENV/bin/python [--gpu h100-80] [--ours OURS.jsonl] [--names NAME,...] [--misses 25]

ENV should hold the measured releases of PyTorch and Triton. The script runs unmodified under `gpucast run --warp`, in about two minutes. A file
that --ours names is kept: if it is there, nothing runs. Rows of the host are compared apart, since the two hosts differ.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

from eval import ROOT, jobs
from eval.tables import ERROR_HEAD, error, error_cells, markdown_head, markdown_row, signed

MEASURE = ROOT / "eval/truth/measure_kernels_time.py"


def rows_of(path):
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return {(row["part"], row["name"], json.dumps(row["arguments"], sort_keys=True)): row["ms"] for row in rows if "ms" in row}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--gpu", default="h100-80")
    parser.add_argument("--ours", type=pathlib.Path)
    parser.add_argument("--names", metavar="NAME,...", help="run only cases of these names: flex_attention, mm ...")
    parser.add_argument("--misses", type=float, metavar="PERCENT", help="also print the rows that are further off")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="compare_kernels_time_") as folder:
        ours = args.ours or pathlib.Path(folder) / "ours.jsonl"
        if not ours.exists():
            command = [jobs.find(args.gpucast), "run", "--warp", "--gpu", args.gpu, "--", args.python, str(MEASURE), "-o", str(ours)]
            names = ["--names", args.names] if args.names else []
            subprocess.run([*command, "--minutes", "60", *names], check=True)
        said = rows_of(ours)
    parts, misses = collections.defaultdict(list), []
    for key, ms in rows_of(args.rows).items():
        if key in said:
            parts[key[:2]].append(error(said[key], ms))
            if args.misses is not None and abs(parts[key[:2]][-1]) * 100 > args.misses:
                misses.append(f"{' '.join(key)}: {said[key]:.4g} ms, measured {ms:.4g} ({signed(parts[key[:2]][-1], 0)} %)")
    print(markdown_head(["part", "name", *ERROR_HEAD], words=2))
    for key, errors in parts.items():
        print(markdown_row([*key, *error_cells(errors)]))
    print(*misses, sep="\n")


if __name__ == "__main__":
    main()
