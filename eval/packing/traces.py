"""Cluster traces on 2,000 cards: makespan, completion times and utilisation by policy.

    python -m eval.packing.traces --data DIR --figures build/packing/figures.json --write docs/results/packing.md

DIR has the layout of ../shared/data: cluster_traces/philly_from_pollux.csv.gz (Philly, as used by Pollux's authors) and
cluster_traces/alibaba_gpu_v2023/openb_pod_list_default.csv.gz. Traces give the jobs' arrivals, durations and numbers of GPUs, but not
their work. So each job is one of table6.py's captures (memory, occupancy, shares of a P40), drawn with a seed, and
waits for its host for a part of each step, from 10 to 90 %. Alibaba's fractions of a GPU are used as that part. 100,000 jobs are drawn from a
trace with their times of arrival. Time is stretched so that with one job per card the jobs need --load of the cluster's time.
"""

import argparse
import csv
import gzip
import json
import random
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

from eval import page
from eval.jobs import add_gpucast_option
from eval.packing.table6 import POLICIES, ROOT, with_host
from eval.tables import markdown, markdown_row, percent


def philly(data):
    """(arrival s, duration s, GPUs, busy share or None)"""
    with gzip.open(data / "cluster_traces/philly_from_pollux.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            seconds, gpus = float(row["duration"] or 0), int(row["num_gpus"] or 0)
            if seconds > 0 and gpus > 0:
                yield datetime.fromisoformat(row["timestamp"]).timestamp(), seconds, gpus, None


def alibaba_v2023(data):
    with gzip.open(data / "cluster_traces/alibaba_gpu_v2023/openb_pod_list_default.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if not (row["scheduled_time"] and row["deletion_time"] and int(row["num_gpu"] or 0)):
                continue
            seconds = float(row["deletion_time"]) - float(row["scheduled_time"])
            if seconds > 0:
                yield float(row["creation_time"]), seconds, int(row["num_gpu"]), max(0.05, min(1, int(row["gpu_milli"]) / 1000))


COMMAND = "python -m eval.packing.traces --data DIR --figures build/packing/figures.json"
TRACES = {"Philly": philly, "Alibaba v2023": alibaba_v2023}


def jobs_of(rows, figures, options):
    rng = random.Random(options.seed)
    names = sorted(figures)
    drawn = sorted((rng.choice(rows) for _ in range(options.jobs)), key=lambda row: row[0])
    work = sum(seconds * gpus for _, seconds, gpus, _ in drawn)
    begin, end = drawn[0][0], drawn[-1][0]
    stretch = work / (options.load * options.cards * (end - begin))
    lines = []
    for number, (arrival, seconds, gpus, busy) in enumerate(drawn):
        name = rng.choice(names)
        one = with_host(figures[name], busy or rng.uniform(0.1, 0.9))
        line = {"name": f"{number} {name}", **one, "cards": gpus, "arrival_s": (arrival - begin) * stretch}
        lines.append(json.dumps({**line, "steps": max(1, round(seconds * 1e9 / one["step_ns"]))}))
    return "\n".join(lines) + "\n"


def summary_of(path):
    """The first line: everything except the jobs."""
    with path.open() as file:
        return json.loads(file.readline().rstrip().rstrip(",") + "}")


def table(text, options):
    header = ["policy", "makespan, d", "mean JCT, h", "99th percentile, h", "mean queueing, h", "cards with a job", "NVML"]
    header += ["runs out of memory", "simulated in, s"]
    lines = []
    hour = 3.6e12
    for policy in POLICIES:
        out = options.out / "plan.json"
        began = time.monotonic()
        command = [options.gpucast, "pack", "-", "--gpus", f"{options.cards}xp40", "--policy", policy, "--mode", options.mode, "--fair"]
        done = subprocess.run([*command, "--format", "json", "-o", out], input=text, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            sys.exit(done.stderr)
        plan = summary_of(out)
        times = plan["makespan_ns"] / 24, plan["jct"]["mean_ns"], plan["jct"]["p99_ns"], plan["queue"]["mean_ns"]
        cells = [f"{ns / hour:.1f}" for ns in times] + [f"{percent(plan[share], 1)} %" for share in ("utilization", "nvml")]
        lines.append([policy, *cells, plan["out_of_memory"]["runs"], f"{time.monotonic() - began:.1f}"])
        print(markdown_row(lines[-1]), file=sys.stderr, flush=True)
    return markdown(header, lines, words=len(header), tight=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_gpucast_option(parser)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--figures", type=Path, required=True, help="what table6.py left: OUT/figures.json")
    parser.add_argument("--out", type=Path, default=ROOT / "build/packing")
    parser.add_argument("--cards", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--load", type=float, default=1.2)
    parser.add_argument("--mode", default="timeslice")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, help="a page with markers for the tables")
    options = parser.parse_args()
    figures = json.loads(options.figures.read_text())
    parts = []
    for name, read in TRACES.items():
        rows = list(read(options.data))
        text = jobs_of(rows, figures, options)
        parts.append(
            f"{name}: {options.jobs} jobs drawn from {len(rows)}, {options.cards} P40, load {options.load}, {options.mode}, fair:\n\n{table(text, options)}"
        )
    text = "\n\n".join(parts)
    print(text)
    if options.write:
        page.write(options.write, COMMAND, f"{options.jobs:,} jobs of each trace", {"traces": text})


if __name__ == "__main__":
    main()
