#!/usr/bin/env python3
"""The best plan for a long queue: every policy and way to share, each with many starting points of its search, as Ray's tasks.

    python -m eval.packing.plan_on_ray jobs.csv --gpus 64xp40,16xa100-80 -o plan.json              (pip install ray)
    python -m eval.packing.plan_on_ray jobs.csv --gpus 64xp40,16xa100-80 --address auto            on all of a cluster's machines

Without --address Ray is started here, for this run. On a cluster `gpucast` lies at the same path on each machine. The answer depends only on the jobs,
the cards and --seeds, not on the number of machines or workers."""

import argparse
import hashlib
import itertools
import json
import subprocess
import sys
from pathlib import Path

from eval.jobs import add_gpucast_option
from eval.tables import markdown

POLICIES = ("slot", "nvml", "occupancy", "memory", "gpucast")
SEARCHES = ("gpucast",)  # the policies that depend on a seed
MEASURES = {
    "makespan": lambda plan: plan["makespan_ns"],
    "mean-jct": lambda plan: plan["jct"]["mean_ns"],
    "p99-jct": lambda plan: plan["jct"]["p99_ns"],
}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path, help="a table as `gpucast pack` reads it")
    parser.add_argument("--gpus", required=True)
    add_gpucast_option(parser)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--modes", default="mps")
    parser.add_argument("--seeds", type=int, default=8, help="searches of a policy that searches (default %(default)s)")
    parser.add_argument("--fair", action="store_true")
    parser.add_argument(
        "--by",
        choices=MEASURES,
        default="makespan",
        help="the measure for the best plan, among those with most jobs done (default %(default)s)",
    )
    parser.add_argument("--address", help="of a running Ray cluster; auto: this machine's")
    parser.add_argument("--workers", type=int, help="tasks at once, without --address (default: processors)")
    parser.add_argument("-o", "--output", type=Path, help="write the best plan there (JSON)")
    return parser.parse_args()


def command(gpucast, gpus, policy, mode, seed, fair):
    words = [gpucast, "pack", "-", "--gpus", gpus, "--policy", policy, "--mode", mode, "--seed", str(seed), "--format", "json"]
    return [*words, "--fair"] if fair else words


def plan(words, table):
    """The plan, and its first line: everything except the jobs."""
    done = subprocess.run(words, input=table, capture_output=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr.decode())
    return done.stdout, json.loads(done.stdout.split(b"\n", 1)[0].rstrip().rstrip(b",") + b"}")


def summary(words, table):
    return plan(words, table)[1]


def hours(ns):
    return f"{ns / 3.6e12:.2f}"


def main():
    args = parse_args()
    import ray

    table = args.jobs.read_bytes()
    wanted = [
        (policy, mode, seed)
        for policy, mode in itertools.product(args.policies.split(","), args.modes.split(","))
        for seed in range(args.seeds if policy in SEARCHES else 1)
    ]
    ray.init(address=args.address, num_cpus=None if args.address else args.workers, include_dashboard=False, log_to_driver=False)
    shared, task = ray.put(table), ray.remote(summary)
    words = [command(args.gpucast, args.gpus, *one, args.fair) for one in wanted]
    plans = ray.get([task.remote(one, shared) for one in words])
    nodes = len({node["NodeID"] for node in ray.nodes() if node["Alive"]})
    ray.shutdown()

    rank = [(-one["finished"], MEASURES[args.by](one), number) for number, one in enumerate(plans)]
    best = min(rank)[2]
    lines = []
    for _, _, number in sorted(rank):
        (policy, mode, seed), one = wanted[number], plans[number]
        times = (hours(ns) for ns in (one["makespan_ns"], one["jct"]["mean_ns"], one["jct"]["p99_ns"]))
        lines.append([policy, mode, seed, one["finished"], *times, one["out_of_memory"]["runs"]])
    header = ["policy", "mode", "seed", "jobs done", "makespan, h", "mean JCT, h", "99th percentile, h", "runs out of memory"]
    print(markdown(header, lines, words=len(header), tight=True))
    text, _ = plan(words[best], table)
    print(f"\nbest: {' '.join(words[best][2:])}\nits plan: sha256 {hashlib.sha256(text).hexdigest()}")
    print(f"{len(wanted)} plans on {nodes} machines", file=sys.stderr)
    if args.output:
        args.output.write_bytes(text)


if __name__ == "__main__":
    main()
