#!/usr/bin/env python3
"""Predictions from CPU profiles of the small programs of train_small.py, compared with the virtual GPU.

    python -m eval.matrix.run_operators --python ENV/bin/python --out /tmp/operators
    python -m eval.matrix.run_operators --python ENV/bin/python --out /tmp/operators --only 'sdpa|lstm'

Runs and profiles are kept in --out and used again, so a second run only analyzes.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from eval import jobs

HERE = Path(__file__).resolve().parent

SCRIPT = HERE / "train_small.py"
STEPS = 3
MIB = 2**20


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where captures and traces are kept")
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable, help="a Python with torch")
    parser.add_argument("--gpu", default="rtx3060")
    parser.add_argument("--only", default="", help="programs whose name has this in it (a regular expression)")
    parser.add_argument("--made", action="store_true", help="make nothing: look at the files in --out")
    return parser.parse_args()


def run(words, accept=(0,)):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode not in accept:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return done.stdout


def programs():
    """The programs' names, as in `train_small.py --list`. Read from its text: its imports need CUDA's libraries or gpucast's."""
    return re.findall(r"^@net\(.*\)\ndef (\w+)\(", SCRIPT.read_text(), re.MULTILINE)


def make_truths(args, names):
    """{name: line of gpucast batch} of the runs on the virtual GPU."""
    todo = []
    for name in names:
        job = {"name": name, "command": [args.python, str(SCRIPT), "--net", name, "--device", "cuda"], "gpu": args.gpu, "steps": STEPS}
        todo.append({**job, "output": str(args.out / f"{name}.gpucast"), "force": True})
    path = args.out / "truth.jsonl"
    return jobs.read_lines(path) if args.made else jobs.run(args.gpucast, todo, path)


def make_trace(args, name):
    trace = args.out / f"{name}.json.gz"
    if not trace.exists():
        if args.made:
            raise RuntimeError("not made yet")
        fresh = trace.with_name(f"new.{trace.name}")
        fresh.unlink(missing_ok=True)
        run([args.gpucast, "profile", "--steps", STEPS, "-o", fresh, "--", args.python, SCRIPT, "--net", name, "--device", "cuda"])
        fresh.rename(trace)
    return trace


def truth_of(truths, name):
    why = jobs.problem(truths[name]) if name in truths else "not made yet"
    if why:
        raise RuntimeError(why)
    return truths[name]["report"]


def main():
    args = parse_args()
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    args.gpucast = jobs.find(args.gpucast)
    names = [name for name in programs() if re.search(args.only, name)]
    truths = make_truths(args, names)
    lines = []
    for name in names:
        try:
            truth, trace = truth_of(truths, name), make_trace(args, name)
            report = json.loads(run([args.gpucast, "analyze", trace, "--gpu", args.gpu, "--format", "json"], accept=(0, 1)))
        except (RuntimeError, json.JSONDecodeError) as error:
            print(f"{name:30} failed: {str(error)[:150]}", flush=True)
            continue
        figures = []
        for field in ("allocated_bytes", "reserved_bytes"):
            true, ours = truth["peak"][field], report["peak"][field]
            figures += [true / MIB, 100 * (ours - true) / true]
        lines.append((name, figures))
        print("{:30} allocated {:8.1f} MiB {:+7.2f} %   reserved {:8.0f} MiB {:+7.2f} %".format(name, *figures), flush=True)
    errors = {i: sorted(abs(figures[i]) for _, figures in lines) for i in (1, 3)}
    if lines:
        for i, what in ((1, "allocated"), (3, "reserved")):
            exact = sum(error < 0.005 for error in errors[i])
            median, worst = errors[i][len(lines) // 2], errors[i][-1]
            print(f"{what}: {exact} of {len(lines)} exact to 0.01 %, median {median:.2f} %, worst {worst:.2f} %")


if __name__ == "__main__":
    main()
