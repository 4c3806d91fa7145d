#!/usr/bin/env python3
"""Queues of jobs drawn from captures by seed: the best plan of `gpucast pack --best`, the default plan, one job a card, and the lower bound.

    python -m eval.packing.on_card --python PYTHON --out build/on_card     (makes the captures)
    python -m eval.packing.best --out build/on_card --markdown docs/results/packing.md

A queue has 15 to 40 jobs, all there at the start. A job is one of the captures with 500 to 20,000 steps, and each step lasts one to four times
as long as its kernels: hosts of real jobs wait for data and for Python, and the captures' own host is that of this machine."""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from eval import jobs, page
from eval.tables import markdown, median, signed

COMMAND = "python -m eval.packing.best --out build/on_card"
GPU = "h200"
SHARES = ("sm_active", "nvml_utilization", "compute", "tensor", "dram", "l2", "pcie", "launch")
GOALS = ("makespan", "mean", "cost")


def pack(gpucast, *words):
    done = subprocess.run([gpucast, "pack", *map(str, words), "--format", "json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def queue(figures, seed):
    draw, out = random.Random(seed), []
    for index in range(draw.randrange(15, 41)):
        job = {"name": f"job {index}", "steps": draw.randrange(500, 20000), **draw.choice(figures)}
        longer = draw.uniform(1, 4) * job["nvml_utilization"]
        job["step_ns"] *= longer
        out.append({**job, **{share: min(1.0, job[share] / longer) for share in SHARES}})
    return out


def value(report, goal):
    return {"makespan": report["makespan_ns"], "mean": report["jct"]["mean_ns"], "cost": report["gpu_hours"]}[goal]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--out", type=Path, required=True, help="the folder of eval.packing.on_card's captures")
    parser.add_argument("--queues", type=int, default=10)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    captures = sorted(args.out.glob("*.gpucast"))
    if not captures:
        sys.exit(f"no captures in {args.out}: eval.packing.on_card makes them")
    figures = [job["on"][GPU] for job in pack(args.gpucast, *captures, "--gpus", GPU)["jobs"]]
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "queue.jsonl"
        for mode in ("mps", "timeslice"):
            for goal in GOALS:
                over_bound, over_default, over_slot, policies = [], [], [], {}
                for seed in range(args.queues):
                    table.write_text("".join(json.dumps(job) + "\n" for job in queue(figures, seed)))
                    words = (table, "--gpus", f"2x{GPU}", "--mode", mode)
                    best = pack(args.gpucast, *words, "--best", goal)
                    found = best["best"]["value"]
                    over_bound.append(found / best["best"]["lower_bound"] - 1)
                    over_default.append(found / value(pack(args.gpucast, *words), goal) - 1)
                    over_slot.append(found / value(pack(args.gpucast, *words, "--policy", "slot"), goal) - 1)
                    name = f"{best['policy']} {best['order'].replace('_', ' ')}"
                    policies[name] = policies.get(name, 0) + 1
                most = max(policies, key=policies.get)
                cells = (signed(median(over_bound), 1), signed(max(over_bound), 1), signed(median(over_default), 1), signed(max(over_default), 1), signed(median(over_slot), 1))  # fmt: skip
                lines.append([f"{mode}, {goal}", *cells, f"{most} ({policies[most]} of {args.queues})"])
    head = ["sharing, goal", "over the bound, median %", "worst %", "against the default policy, median %", "worst %", "against one job a card, median %", "most often the best plan"]  # fmt: skip
    text = f"{args.queues} queues on two {GPU}, seeds 0 to {args.queues - 1}:\n\n{markdown(head, lines)}"
    print(text)
    if args.markdown:
        page.write(args.markdown, COMMAND, f"{args.queues} queues of 15 to 40 jobs", {"best": text})


if __name__ == "__main__":
    main()
