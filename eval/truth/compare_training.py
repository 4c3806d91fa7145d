#!/usr/bin/env python3
"""Trainings measured on a card by measure_training.py, compared with the same programs on the virtual GPU: memory, time, both intervals.

    python -m eval.truth.compare_training eval/truth/h200/steps.jsonl.gz --python ENV/bin/python --out OUT [--page docs/results/h200.md]

ENV should hold the measured releases. OUT keeps the captures; the same command started again goes on.
- memory: peaks of the first three steps.
- GPU time: of one step, the time in which at least one kernel runs; where that was not measured, the whole step.
- step: the measured mean of about a second of steps, with the host that the card had, which gpucast does not know.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from eval import jobs, page
from eval.tables import error, quantile, sizes
from eval.truth import measured_jobs

MIB = 2**20
GROUPS = {
    "mlp": "random MLPs",
    "cnn": "random CNNs",
    "torchvision": "networks of convolutions",
    "timm": "networks of images",
    "transformers": "transformers",
    "lstm": "lstm",
}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable, help="a Python with the releases that were measured")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path, help="renew the tables of this page")
    return parser.parse_args()


def predicted(args, card, row, capture):
    """(Report of the run, report of the time), or None where the program does not run."""
    report, time = capture.with_suffix(".json"), capture.with_suffix(".time.json")
    if not report.exists():
        words = [args.gpucast, "run", "--gpu", card, "--steps", "3", "--force", "--format", "json", "-o", str(capture), "--"]
        done = subprocess.run([*words, args.python, str(measured_jobs.TRAINING), json.dumps(row["job"])], capture_output=True, text=True)
        if done.returncode == 2:
            print(f"{name_of(row['job'])}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            return None
        report.write_text(done.stdout)
    if not time.exists():
        time.write_text(
            subprocess.run([args.gpucast, "time", str(capture), "--format", "json"], capture_output=True, text=True, check=True).stdout
        )
    return json.loads(report.read_text()), json.loads(time.read_text())


def name_of(job):
    model = job["model"] if len(job["model"]) < 40 else job["model"][:37] + "..."
    switches = [key.replace("_", " ") for key in ("channels_last", "checkpointing", "lora") if job.get(key)]
    parts = [f"{job['parts']} parts"] if job.get("parts") else []
    return ", ".join([model, f"batch {job['batch']}", job["precision"], job["optimizer"], *switches, *parts])


def group_of(job):
    return GROUPS[job["model"].partition(":")[0]]


def compared(row, run, time):
    outside = row["device_used_bytes"] - row["device_used_before_bytes"] - row["max_memory_reserved_bytes"]
    measured_ms = row.get("busy_ms") or row["step_ms"]["p50"]
    low, high = (value / 1e6 for value in (run["gpu_time"]["low_ns"], run["gpu_time"]["high_ns"]))
    step = time["step"]
    return {
        "job": row["job"],
        "allocated": (run["peak"]["allocated_bytes"], row["max_memory_allocated_3_steps_bytes"]),
        "reserved": (run["peak"]["reserved_bytes"], row["max_memory_reserved_3_steps_bytes"]),
        "outside_bytes": outside if outside > 0 else None,
        "gpu_ms": (run["gpu_time"]["expected_ns"] / 1e6, measured_ms),
        "gpu_inside": low <= measured_ms <= high,
        "step_ms": (step["expected_ns"] / 1e6, row["wall_ms"]),
        "step_inside": step["low_ns"] / 1e6 <= row["wall_ms"] <= step["high_ns"] / 1e6,
        "host_bound": bool(row.get("busy_ms")) and row["busy_ms"] < 0.8 * row["wall_ms"],
    }


def difference(ours, real):
    if ours == real:
        return "equal"
    return f"{(ours - real) / MIB:+.1f} MiB ({100 * error(ours, real):+.2f} %)"


def percents(pairs):
    middle, _, p90, worst = sizes([error(*pair) for pair in pairs])
    signed = quantile([error(*pair) for pair in pairs], 0.5)
    return f"{100 * middle:.1f} | {100 * p90:.1f} | {100 * worst:.1f} | {100 * signed:+.1f}"


def tables(rows):
    memory = ["| job | peak allocated | peak reserved | MiB |", "|---|---|---|---:|"]
    equal = [row for row in rows if row["allocated"][0] == row["allocated"][1] and row["reserved"][0] == row["reserved"][1]]
    for row in rows:
        if row not in equal:
            memory.append(
                f"| {name_of(row['job'])} | {difference(*row['allocated'])} | {difference(*row['reserved'])} | {row['reserved'][1] / MIB:.0f} |"
            )
    same = sum(row["reserved"][0] == row["reserved"][1] for row in rows)
    opening = f"Both peaks are equal to the byte in {len(equal)} of {len(rows)} jobs, peak reserved in {same}. The others:"
    time = [
        "| group | n | GPU time: median % | 90th | worst | signed median | inside the 90 % interval |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for group in [*dict.fromkeys(group_of(row["job"]) for row in rows), "all"]:
        those = [row for row in rows if group in ("all", group_of(row["job"]))]
        time.append(
            f"| {group} | {len(those)} | {percents([row['gpu_ms'] for row in those])} | {sum(row['gpu_inside'] for row in those)} |"
        )
    step = ["| steps | n | median % | 90th | worst | signed median | inside the 90 % interval |", "|---|---:|---:|---:|---:|---:|---:|"]
    for what, host_bound in (("the GPU works at least 80 % of the time", False), ("less", True)):
        those = [row for row in rows if row["host_bound"] == host_bound]
        if those:
            step.append(
                f"| {what} | {len(those)} | {percents([row['step_ms'] for row in those])} | {sum(row['step_inside'] for row in those)} |"
            )
    each = ["| job | GPU time ms | gpucast | % | step ms | gpucast | % |", "|---|---:|---:|---:|---:|---:|---:|"]
    for row in rows:
        (gpu, real_gpu), (whole, real) = row["gpu_ms"], row["step_ms"]
        each.append(
            f"| {name_of(row['job'])} | {real_gpu:.2f} | {gpu:.2f} | {100 * error(gpu, real_gpu):+.1f} | {real:.2f} | {whole:.2f} | {100 * error(whole, real):+.1f} |"
        )
    return {
        "memory": "\n".join([opening, "", *memory]),
        "time": "\n".join(time),
        "step": "\n".join(step),
        "jobs": "\n".join(each),
    }


def main():
    args = parse_args()
    args.gpucast = jobs.find(args.gpucast)
    args.out.mkdir(parents=True, exist_ok=True)
    source, rows = measured_jobs.trainings(args.data)
    card = {gpu["name"]: gpu["id"] for gpu in jobs.gpus(args.gpucast)}[source["card"]]
    found = []
    for index, row in enumerate(rows):
        prediction = predicted(args, card, row, args.out / f"{index:02}.gpucast")
        if prediction:
            found.append(compared(row, *prediction))
    named = tables(found)
    for name, text in named.items():
        print(f"{name}\n{text}\n")
    if args.page:
        page.write(
            args.page, f"python -m eval.truth.compare_training {args.data} --python PYTHON --out OUT", f"{len(found)} of {len(rows)}", named
        )


if __name__ == "__main__":
    main()
