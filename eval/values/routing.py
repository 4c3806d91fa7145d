#!/usr/bin/env python3
"""Layers of experts on the virtual GPU, compared with the same layers on the host, where the router really chooses.

    python -m eval.values.routing --python ENV/bin/python

Runs scripts/experts.py: both sides in one process, ten rounds each. ENV has PyTorch, and transformers for its blocks and models.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from eval import jobs
from eval.tables import error, markdown, percent, signed

SCRIPT = Path(__file__).resolve().parent / "scripts/experts.py"
MIB = 1 << 20
WIDTH = 128
# Names of blocks, and the tokens of a round.
PARTS = (
    ("each,one-hot,grouped,sorted,capacity", 2048),
    ("mixtral,qwen3-moe,deepseek-v3", 2048),
    ("mixtral-model,qwen3-moe-model,deepseek-v3-model", 1024),
)
HEADER = [
    "block",
    "choices",
    "routed on the host",
    "on the card",
    "experts hit: host",
    "card",
    "busiest: host",
    "card",
    "peak MiB: host",
    "card",
    "card's median %",
    "rounds within",
]


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable, help="a Python with torch and transformers")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--assume", default="typical", help="gpucast's --assume")
    return parser.parse_args()


def measure(gpucast, python, words, assume="typical"):
    """The lines of experts.py."""
    path = f"{Path(python).absolute().parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        options = ["--gpu", "a100-80", "--values", "on", "--assume", assume, "--timeout", "3600", "-o", str(Path(folder) / "x.gpucast")]
        command = [gpucast, "run", *options, "--", python, str(SCRIPT), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": path})
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"block"')]
    if not lines:
        raise SystemExit(done.stderr[-2000:])
    return lines


def extent(values, show=str):
    least, most = show(min(values)), show(max(values))
    return least if least == most else f"{least} to {most}"


def of(rounds, name):
    return [one[name] for one in rounds]


def cells(line):
    host, card = line["host"], line["card"]
    peaks = of(host, "peak")
    within = [min(peaks) <= peak <= max(peaks) for peak in of(card, "peak")]
    found = [line["block"], f"{line['tokens']} x {line['chosen']} of {line['experts']}"]
    for name in ("sum", "hit", "busiest"):
        found += [extent(of(host, name)), extent(of(card, name))]
    found += [extent(peaks, lambda peak: f"{peak / MIB:.2f}"), extent(of(card, "peak"), lambda peak: f"{peak / MIB:.2f}")]
    middle = error(statistics.median(of(card, "peak")), statistics.median(peaks))
    return [*found, signed(middle, 2), f"{percent(sum(within) / len(within), 0)} %"]


def main():
    args = parse_args()
    gpucast = jobs.find(args.gpucast)
    lines = []
    for names, tokens in PARTS:
        lines += measure(
            gpucast, args.python, ["--blocks", names, "--tokens", tokens, "--width", WIDTH, "--rounds", args.rounds], args.assume
        )
    versions = jobs.versions(args.python)
    print(", ".join(f"{name} {release}" for name, release in versions.items() if name != "torchvision"))
    print(markdown(HEADER, [cells(line) for line in lines]))


if __name__ == "__main__":
    main()
