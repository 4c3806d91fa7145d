#!/usr/bin/env python3
"""How long `gpucast fit` takes in comparison with one `gpucast run` of the same script.

    bench/fit_speed.py --gpucast build/release/bin/gpucast --python ENV/bin/python [--repeats 5]

Each script in turns: one run, then a search of 1..4096 with an empty cache. The ratio is the one of the medians. A search whose answer
changes from one repetition to the next is an error; times are for reading.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 3.0  # of the ratio
SCRIPTS = {
    "ResNet-50": ["train_resnet50.py", "--batch", "32"],
    "GPT, 6 layers": ["train_gpt.py", "--batch", "8"],
    "GPT, 2 layers": ["train_gpt.py", "--batch", "8", "--layers", "2", "--width", "256", "--heads", "4"],
    "MLP": ["train_mlp.py", "--batch", "32", "--hidden", "16384"],
}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpucast", default=os.environ.get("GPUCAST_BIN", "gpucast"), help="the gpucast command")
    parser.add_argument("--python", default=sys.executable, help="a Python with PyTorch and torchvision (default: this one)")
    parser.add_argument("--gpu", default="rtx3060")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", help="scripts with this in their name")
    return parser.parse_args()


def timed(*words):
    """Seconds, and the JSON that it printed."""
    began = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True)
    seconds = time.monotonic() - began
    if done.returncode not in (0, 1):
        sys.exit(f"fit_speed.py: exit code {done.returncode}: {' '.join(words)}\n{done.stderr[-2000:]}")
    return seconds, json.loads(done.stdout)


def measure(args, command):
    """Seconds of the runs and of the searches; (answer, next value, number of runs) of each search."""
    runs, searches, answers = [], [], []
    for _ in range(args.repeats):
        runs.append(timed(args.gpucast, "run", "--gpu", args.gpu, "--format", "json", "--", *command)[0])
        with tempfile.TemporaryDirectory(prefix="fit_speed_") as cache:
            words = ["--vary", "batch=--batch:1..4096", "--cache", cache, "--format", "json", "--", *command]
            seconds, fit = timed(args.gpucast, "fit", "--gpu", args.gpu, *words)
        searches.append(seconds)
        (answer,) = fit["answers"]
        following = answer["next"] and answer["next"]["values"]["batch"]
        answers.append((answer["values"]["batch"], following, fit["run_count"]))
    return runs, searches, answers


def main():
    args = parse_args()
    wrong = 0
    print(f"| script | run, s | fit, s | ratio (each repetition) | largest, next on {args.gpu} | runs |\n|---|---:|---:|---|---|---:|")
    for name, (script, *options) in SCRIPTS.items():
        if args.only and args.only not in name:
            continue
        runs, searches, answers = measure(args, [args.python, str(ROOT / "examples" / script), *options])
        run, search = statistics.median(runs), statistics.median(searches)
        each = ", ".join(f"{b / a:.1f}" for a, b in zip(runs, searches))
        over = "" if search <= LIMIT * run else ", over the limit"
        largest, following, count = answers[0]
        print(f"| {name} | {run:.1f} | {search:.1f} | {search / run:.2f} ({each}){over} | {largest}, {following} | {count} |", flush=True)
        if len({answer[:2] for answer in answers}) > 1:
            print(f"WRONG {name}: {answers}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
