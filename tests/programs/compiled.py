#!/usr/bin/env python3
"""Every model of models.py in every mode of torch.compile, under `gpucast run`: does it end, are its peaks PyTorch's own, are its steps seen?

compiled.py --gpucast build/release/bin/gpucast --python ENV/bin/python [--models gpt,vit] [--markdown docs/reference/compatibility.md]
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODES = ("eager", "default", "reduce-overhead", "max-autotune")
NAMES = ("mlp", "resnet", "mobilenet", "vgg", "unet", "convnext", "vit", "gpt", "bert", "llama", "lstm", "recommender")
STEPS = 4
MIB = 1 << 20


def run(options, model, mode):
    command = [options.gpucast, "run", "--gpu", "a100-80", "--steps", "100", "--format", "json", "--"]
    started = time.monotonic()
    row = {"model": model, "mode": mode, "ends": False}
    try:
        done = subprocess.run(
            [*command, options.python, str(HERE / "models.py"), model, mode],
            capture_output=True, text=True, timeout=options.limit,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {**row, "problem": f"more than {options.limit} s"}
    row["seconds"] = round(time.monotonic() - started)
    own = re.search(r"^counters=(\d+),(\d+)$", done.stderr, re.MULTILINE)
    if done.returncode != 0 or own is None:
        return {**row, "problem": (done.stderr.strip().splitlines() or ["?"])[-1][:80]}
    report = json.loads(done.stdout)
    peak = report["peak"]
    return {
        **row,
        "ends": True,
        "torch": report["environment"]["torch"],
        "allocated": peak["allocated_bytes"],
        "reserved": peak["reserved_bytes"],
        "equal": [peak["allocated_bytes"], peak["reserved_bytes"]] == [int(own[1]), int(own[2])],
        "steps": report["steps"],
        "warns": "global hooks" in done.stderr,
    }


def markdown(rows):
    whole = [row for row in rows if row["ends"]]
    good = [row for row in whole if row["equal"] and row["steps"] == STEPS]
    lines = [
        "# What runs",
        "",
        "Made by `make programs` (`tests/programs`). Small models of the usual kinds, four steps each, under `gpucast run`; *equal*: the",
        "report's peaks are what `torch.cuda.max_memory_allocated()` and `max_memory_reserved()` say in the script, to the byte.",
        "",
        "## torch.compile",
        f"PyTorch {', '.join(sorted({row['torch'] for row in whole}))}: {len(rows)} programs, {len(whole)} end, {len(good)} of them with equal",
        f"peaks and all {STEPS} steps seen.",
        "",
        "| model | mode | ends | peaks | steps | allocated, MiB | reserved, MiB | s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if not row["ends"]:
            lines.append(f"| {row['model']} | {row['mode']} | no: {row['problem']} | | | | | |")
            continue
        equal = "equal" if row["equal"] else "differ"
        sizes = f"{row['allocated'] / MIB:.2f} | {row['reserved'] / MIB:.0f}"
        lines.append(f"| {row['model']} | {row['mode']} | yes | {equal} | {row['steps']} | {sizes} | {row['seconds']} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpucast", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--models", default=",".join(NAMES))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--limit", type=float, default=600, help="seconds for one program")
    parser.add_argument("--rows", help="keep results in this file, and go on from it")
    parser.add_argument("--markdown", help="write the table here")
    options = parser.parse_args()
    options.gpucast, options.python = os.path.abspath(options.gpucast), os.path.abspath(options.python)
    rows = []
    if options.rows and os.path.exists(options.rows):
        rows = [json.loads(line) for line in Path(options.rows).read_text().splitlines()]
    for model in options.models.split(","):
        for mode in options.modes.split(","):
            if any((row["model"], row["mode"]) == (model, mode) for row in rows):
                continue
            rows.append(run(options, model, mode))
            print(json.dumps(rows[-1]), flush=True)
            if options.rows:
                with open(options.rows, "a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    rows.sort(key=lambda row: (NAMES.index(row["model"]), MODES.index(row["mode"])))
    if options.markdown:
        Path(options.markdown).write_text(markdown(rows))
    return 0 if all(row["ends"] and row["equal"] and row["steps"] == STEPS for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
