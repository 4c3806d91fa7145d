"""DNN-occu's packing experiment (Table VI): four P40, mixes of Table II's models, a comparison of policies over many draws.

    python -m eval.packing.table6 --python .venv/torch-2.6.0/bin/python --out build/packing --write docs/results/packing.md

The models are captured without a GPU (`gpucast batch`, kept in OUT), then each draw is packed (`gpucast pack`). Figures that the paper leaves open are
drawn, with a seed: a draw has --jobs jobs, all there at the start, of 5 to 20 s alone. The paper's jobs leave the card idle half of the time (slot
packing: 46.58 % NVML utilization); ours read no data, so they hardly do. So there are two tables: jobs as captured, and jobs that wait for
their host for a part of each step, from 10 to 90 %.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from eval import ROOT, page
from eval.jobs import add_gpucast_option
from eval.occupancy.dnn_occu.data_set import configurations, name_of
from eval.occupancy.dnn_occu.dnn_occu_models import MODELS
from eval.tables import markdown, percent

COMMAND = "python -m eval.packing.table6 --python PYTHON --out build/packing"
POLICIES = ("slot", "nvml", "occupancy", "memory", "gpucast")
PUBLISHED = {"slot": (133.10, 46.58), "nvml": (126.58, 46.48), "occupancy": (106.87, 61.23)}
CLUSTER = "4xp40"
HEADER = ["policy", "makespan, s", "less than slot", "NVML utilization", "more than slot", "mean slowdown", "runs out of memory"]
HEADER += ["draws with one", "published: less, NVML"]


def capture(options):
    """Figures of each job on a P40, from captures."""
    folder = options.out / "captures"
    folder.mkdir(parents=True, exist_ok=True)
    script = ROOT / "eval/occupancy/dnn_occu/infer.py"
    jobs = []
    for model in MODELS:
        for one in configurations(model, options.configurations, options.seed):
            name = name_of(model, one, "p40")
            words = [options.python, str(script), model, *(w for key, value in one.items() for w in (f"--{key}", str(value)))]
            jobs.append({"name": name, "command": words, "gpu": "p40", "output": str(folder / f"{name}.gpucast"), "force": True})
    path = options.out / "jobs.jsonl"
    path.write_text("".join(json.dumps(job) + "\n" for job in jobs))
    # 1: some do not fit a P40, and a packing must know that.
    done = subprocess.run([options.gpucast, "batch", path, "-o", options.out / "results.jsonl", "--jobs", "1"], check=False)
    if done.returncode not in (0, 1, 2):
        sys.exit(done.returncode)
    captures = [job["output"] for job in jobs if Path(job["output"]).exists()]
    if len(captures) < len(jobs):
        print(f"{len(jobs) - len(captures)} of {len(jobs)} runs left no capture: {options.out}/results.jsonl says why", file=sys.stderr)
    plan = subprocess.run(
        [options.gpucast, "pack", *captures, "--gpus", CLUSTER, "--format", "json"], capture_output=True, text=True, check=False
    )
    if plan.returncode not in (0, 1):
        sys.exit(plan.stderr)
    return {job["name"]: job["on"]["p40"] for job in json.loads(plan.stdout)["jobs"]}


def with_host(figures, busy):
    """The same kernels, and a host that uses the rest of the step."""
    share = busy / figures["nvml_utilization"]
    over_step = ("sm_active", "nvml_utilization", "compute", "tensor", "dram", "l2", "pcie", "launch")
    return {**figures, "step_ns": figures["step_ns"] / share, **{key: figures[key] * share for key in over_step}}


def draw(figures, options, number, host):
    rng = random.Random(f"{options.seed} {number}")
    lines = []
    for n in range(options.jobs):
        name = rng.choice(sorted(figures))
        seconds, busy = rng.uniform(5, 20), rng.uniform(0.1, 0.9)
        one = with_host(figures[name], busy) if host else figures[name]
        lines.append({"name": f"{n} {name}", **one, "steps": max(1, round(seconds * 1e9 / one["step_ns"]))})
    return "".join(json.dumps(line) + "\n" for line in lines)


def pack(options, policy, mode, text):
    command = [options.gpucast, "pack", "-", "--gpus", CLUSTER, "--policy", policy, "--mode", mode, "--format", "json"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def table(figures, options, mode, host):
    texts = [draw(figures, options, number, host) for number in range(options.draws)]
    with ThreadPoolExecutor(options.workers) as pool:
        plans = {policy: list(pool.map(partial(pack, options, policy, mode), texts)) for policy in POLICIES}
    slot = [plan["makespan_ns"] for plan in plans["slot"]]
    lines = []
    nvml = {policy: statistics.mean(plan["nvml"] for plan in plans[policy]) for policy in POLICIES}
    for policy in POLICIES:
        spans = [plan["makespan_ns"] for plan in plans[policy]]
        less = 1 - statistics.mean(spans) / statistics.mean(slot)
        lost = [plan["out_of_memory"]["runs"] for plan in plans[policy]]
        slower = statistics.mean(plan["mean_slowdown"] for plan in plans[policy])
        published = "-"
        if policy in PUBLISHED:
            span, use = PUBLISHED[policy]
            published = f"{100 * (1 - span / PUBLISHED['slot'][0]):.1f} %, {use:.1f} %"
        shares = (f"{percent(share, 1)} %" for share in (less, nvml[policy], nvml[policy] / nvml["slot"] - 1))
        counts = sum(lost), sum(count > 0 for count in lost)
        lines.append([policy, f"{statistics.mean(spans) / 1e9:.1f}", *shares, f"{slower:.2f}", *counts, published])
    return markdown(HEADER, lines, words=len(HEADER), tight=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_gpucast_option(parser)
    parser.add_argument("--python", required=True, help="with a PyTorch for the P40 (2.6.0), torchvision and transformers")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--configurations", type=int, default=3, help="of each model")
    parser.add_argument("--jobs", type=int, default=40, help="of a draw")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", type=Path, help="a page with markers for the tables")
    options = parser.parse_args()
    options.out = options.out.resolve()
    figures = capture(options)
    (options.out / "figures.json").write_text(json.dumps(figures))
    count = f"{options.draws} draws of {options.jobs} jobs from {len(figures)} captures of {len(MODELS)} models, seed {options.seed}"
    parts = [f"{count}."]
    for host, what in ((True, "Jobs that wait for their host for 10 to 90 % of each step"), (False, "Jobs as captured, without waits")):
        for mode in "mps", "timeslice":
            parts.append(f"{what}; {mode}:\n\n{table(figures, options, mode, host)}")
    text = "\n\n".join(parts)
    print(text)
    if options.write:
        page.write(options.write, COMMAND, count, {"table6": text})


if __name__ == "__main__":
    main()
