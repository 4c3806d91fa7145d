#!/usr/bin/env python3
"""Captures all of Gavel's jobs without a GPU, for each of its cards. Start it again after a break: finished captures stay.

    python -m eval.packing.gavel_jobs.capture --python .venv/torch-2.6.0/bin/python --out build/gavel

OUT/CARD/JOB.gpucast, and OUT/results.jsonl with each run's report. The Python needs torchvision for ResNet-50."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from eval.jobs import add_gpucast_option

CARDS = {"v100": "v100-16", "p100": "p100-16-pcie"}
# Gavel's name of a job, and ours.
SWEPT = {
    "ResNet-18": ("resnet18", (16, 32, 64, 128, 256)),
    "ResNet-50": ("resnet50", (16, 32, 64, 128)),
    "Transformer": ("transformer", (16, 32, 64, 128, 256)),
    "LM": ("lm", (5, 10, 20, 40, 80)),
    "Recommendation": ("recommendation", (512, 1024, 2048, 4096, 8192)),
}
ALONE = {"CycleGAN": "cyclegan", "A3C": "a3c"}


def jobs():
    """{Gavel's name: (ours, batch)}"""
    found = {f"{name} (batch size {batch})": (ours, batch) for name, (ours, batches) in SWEPT.items() for batch in batches}
    return found | {name: (ours, 1) for name, ours in ALONE.items()}


def capture_of(folder, card, name):
    ours, batch = jobs()[name]
    return folder / card / (f"{ours}-{batch}.gpucast" if name not in ALONE else f"{ours}.gpucast")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1, help="at a time (default %(default)s)")
    args = parser.parse_args()
    script = Path(__file__).resolve().parent / "train.py"
    lines = []
    for card, gpu in CARDS.items():
        (args.out / card).mkdir(parents=True, exist_ok=True)
        for name, (ours, batch) in jobs().items():
            path = capture_of(args.out, card, name)
            words = [args.python, str(script), ours, "--batch", str(batch)]
            lines.append({"name": f"{card}/{path.stem}", "command": words, "gpu": gpu, "output": str(path), "force": True})
    table = args.out / "jobs.jsonl"
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = [args.gpucast, "batch", table, "-o", args.out / "results.jsonl", "--jobs", str(args.jobs)]
    return subprocess.run(words, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
