#!/usr/bin/env python3
"""The slowdown of two trainings that share an H200: `gpucast pack` compared with eval/truth/h200 (pairs.jsonl by time slices, mps.jsonl under MPS).

    python -m eval.packing.on_card --python PYTHON --out build/on_card     (PYTHON with torch, torchvision, timm, transformers; captures are kept)
    python -m eval.packing.on_card --python PYTHON --out build/on_card --markdown docs/results/packing.md
    python -m eval.packing.on_card --python PYTHON --out build/on_card --fit

A capture of each job gives the number of its kernels. In the first table the rest is from the job's run alone: its step, the share of it with a
kernel, multiprocessors, memory (NVML's counters). So only the interference is judged. In the second table all figures are the capture's.

The hosts of these jobs had no steady speed: ResNet-50 took 34.7 ms alone in the one run and 20.4 in the other, with 8.0 ms of kernels in
both. The rows "host's quickest" count the least step of a job in any row as its step alone; the kernels' time is the same."""

import argparse
import itertools
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from eval import ROOT, jobs, page
from eval.tables import markdown, percent, quantile, signed
from eval.truth import measured_jobs

COMMAND = "python -m eval.packing.on_card --python PYTHON --out build/on_card"
GPU = "h200"
MODES = {"timeslice": "pairs.jsonl", "mps": "mps.jsonl"}
ROWS = {mode: [json.loads(line) for line in (ROOT / "eval/truth/h200" / name).read_text().splitlines()[1:]] for mode, name in MODES.items()}
JOBS = [row["jobs"][0] for row in ROWS["timeslice"] if len(row["jobs"]) == 1]
NAMES = {"timeslice": "time slices", "mps": "MPS"}
FITTED = {0, 1, 3, 4, 6, 7}  # jobs of JOBS; a pair with another job is judged
SLOW = 1.25  # as in interference.py
LARGE = 0.15
GRID = {
    "timeslice": ("slices_since_volta", {"together": [0.84, 0.86, 0.88, 0.9, 0.92, 0.94, 0.96, 1.0]}),
    "mps": ("mps_since_ampere", {"together": [1.0, 1.05, 1.1, 1.15, 1.2, 1.25], "turn_weight": [0.01, 0.25, 0.5, 0.75, 1.0]}),
}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args()


def short(index):
    kind, _, name = JOBS[index]["model"].partition(":")
    return kind.upper() if kind in ("mlp", "cnn", "lstm") else name.split("_patch")[0]


def measured():
    """{mode: ({job: its row alone}, {(job, job): (step, step)})}, jobs as indices, steps in ms."""
    out = {}
    for mode, rows in ROWS.items():
        alone, together = {}, {}
        for row in rows:
            members = tuple(JOBS.index(job) for job in row["jobs"])
            if len(members) == 1:
                alone[members[0]] = row
            else:
                together[members] = row["step_ms"]
        out[mode] = alone, together
    return out


def captured(args):
    """[figures of `gpucast pack` for each job's capture]"""
    args.out.mkdir(parents=True, exist_ok=True)
    paths, lines = [], []
    for index, job in enumerate(JOBS):
        paths.append(args.out / f"{index}.gpucast")
        command = [args.python, str(measured_jobs.TRAINING), json.dumps(job)]
        lines.append({"name": str(index), "command": command, "gpu": GPU, "steps": 3, "output": str(paths[-1].resolve()), "force": True})
    if not all(path.exists() for path in paths):
        jobs.run(args.gpucast, lines, None, 1)
    words = [args.gpucast, "pack", *map(str, paths), "--gpus", GPU, "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return [job["on"][GPU] for job in json.loads(done.stdout)["jobs"]]


def quickest(found):
    """{job: the least step of it in any row, ms}"""
    out = {}
    for alone, together in found.values():
        for job, row in alone.items():
            out[job] = min(out.get(job, row["step_ms"][0]), row["step_ms"][0])
        for members, steps in together.items():
            for job, step in zip(members, steps):
                out[job] = min(out.get(job, step), step)
    return out


def from_run_alone(row, figures, step_ms):
    """The capture's kernels, and shares of a step of this length from the counters of the run alone."""
    longer = row["step_ms"][0] / step_ms  # the kernels' time is that of the run alone
    share = {name: min(1.0, value / 100 * longer) for name, value in row["gpm"].items()}
    return {
        "step_ns": step_ms * 1e6,
        "memory_bytes": figures["memory_bytes"],
        "nvml_utilization": share["graphics_active"],
        "sm_active": share["sm_active"],
        "occupancy": min(1.0, share["sm_occupancy"] / max(1e-6, share["graphics_active"])),
        "dram": share["memory_active"],
        "tensor": share["tensor_active"],
        "compute": share["fp32_active"],
        "kernels": figures["kernels"],
        "waves": figures["waves"],
    }


def predicted(args, figures, pairs, mode, constants=None):
    """{pair: [(low, expected, high)] of its jobs}, from the command."""
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        table, more = Path(folder) / "pair.jsonl", []
        if constants:
            file = Path(folder) / "constants.json"
            file.write_text(json.dumps({"schema_version": 1, "pack": {constants[0]: {"source": "fit", **constants[1]}}}))
            more = ["--constants", str(file)]
        for pair in pairs:
            table.write_text("".join(json.dumps({"name": str(job), **figures[job]}) + "\n" for job in pair))
            words = [args.gpucast, "pack", str(table), "--gpus", GPU, "--mode", mode, "--format", "json", *more]
            report = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
            out[pair] = [tuple(job["slowdown"][key] for key in ("low", "expected", "high")) for job in report["together"]["jobs"]]
    return out


def slowdowns(together, alone_ms):
    return {pair: [step / alone_ms[job] for job, step in zip(pair, steps)] for pair, steps in together.items()}


def line(name, guess, slow, pairs):
    """`guess`: {pair: [(low, expected, high)]}"""
    both = [(g, s) for pair in pairs for g, s in zip(guess[pair], slow[pair])]
    errors = [expected / s - 1 for (_, expected, _), s in both]
    away = [abs(error) for error in errors]
    slowed = [abs(expected / s - 1) for (_, expected, _), s in both if s > 1.15]
    inside = sum(low <= max(1.0, s) <= high for (low, _, high), s in both) / len(both)
    cells = (*quantile(away, [0.5, 0.9, 1]), *quantile(slowed, [0.5, 0.9]))
    return [name, len(both), *(percent(cell, 1) for cell in cells), signed(quantile(errors, 0.5), 1), percent(inside, 0)]


HEAD = [
    "slowdown by", "n", "median %", "90th %", "worst %", "jobs slowed above 1.15: median %", "90th %", "signed median %", "90 % interval holds %",
]  # fmt: skip


def document(args, found, figures):
    least, lines, everything, misses = quickest(found), [], [], []
    for mode, (alone, together) in found.items():
        steps = {job: row["step_ms"][0] for job, row in alone.items()}
        unseen = [pair for pair in together if not FITTED.issuperset(pair)]
        for name, alone_ms in (("step alone as measured", steps), ("host's quickest step alone", {job: least[job] for job in alone})):
            slow = slowdowns(together, alone_ms)
            guess = predicted(args, {job: from_run_alone(alone[job], figures[job], alone_ms[job]) for job in alone}, together, mode)
            lines.append(line(f"{NAMES[mode]}, {name}", guess, slow, unseen))
            lines.append(line("the same, pairs of the fit, too", guess, slow, list(together)))
            for baseline, factor in (("no slowdown", 1.0), ("both at half speed", 2.0)):
                lines.append(line(baseline, {pair: [(factor,) * 3] * 2 for pair in together}, slow, unseen))
            if alone_ms is steps:
                continue
            misses += [
                f"{short(job)} next to {short(other)} ({NAMES[mode]}: {s:.2f}, expected {g[1]:.2f})"
                for pair in together
                for job, other, s, g in zip(pair, pair[::-1], slow[pair], guess[pair])
                if abs(g[1] / s - 1) > LARGE
            ]
        guess = predicted(args, dict(enumerate(figures)), together, mode)
        everything.append(line(NAMES[mode], guess, slowdowns(together, steps), list(together)))
        everything.append(line("the same, host's quickest step alone", guess, slowdowns(together, least), list(together)))
        in_pair = {
            pair: [tuple(figures[job]["step_ns"] / 1e6 * one for one in g) for job, g in zip(pair, guess[pair])] for pair in together
        }
        everything.append([*line("a job's step in the pair, ms", in_pair, together, list(together))[:-1], "-"])
    kernels = [[short(job), *(f"{row['step_ms'][0]:.1f} / {100 * row['gpm']['graphics_active'] / 100:.0f}" if row else "-" for row in (found["timeslice"][0].get(job), found["mps"][0].get(job))), f"{least[job]:.1f}", f"{found['timeslice'][0][job]['step_ms'][0] * found['timeslice'][0][job]['gpm']['graphics_active'] / 100:.1f}", f"{figures[job]['step_ns'] * figures[job]['nvml_utilization'] / 1e6:.1f}"] for job in found["timeslice"][0]]  # fmt: skip
    return "\n\n".join(
        [
            f"Jobs of the fit: {', '.join(short(job) for job in sorted(FITTED))}. Judged: slowdowns of pairs with at least one other job.",
            markdown(HEAD, lines),
            f"Off by more than {100 * LARGE:.0f} % (host's quickest step): {'; '.join(misses)}.",
            "Everything predicted, from captures alone; all pairs:",
            markdown(HEAD, everything),
            "The jobs alone:",
            markdown(["job", "ms alone / % with a kernel, time slices", "under MPS", "quickest step, ms", "kernels, ms", "kernels from the capture, ms"], kernels),
        ]
    )  # fmt: skip


def fit(args, found, figures):
    least = quickest(found)
    for mode, (alone, together) in found.items():
        group, grid = GRID[mode]
        slow = slowdowns(together, least)
        known = {job: from_run_alone(alone[job], figures[job], least[job]) for job in alone}
        seen = {pair for pair in together if FITTED.issuperset(pair)}

        errors = []  # by constants: {pair: the errors of its slowdowns}
        tried = [dict(zip(grid, values)) for values in itertools.product(*grid.values())]
        for values in tried:
            guess = predicted(args, known, together, mode, (group, values))
            errors.append({pair: [g[1] / s - 1 for g, s in zip(guess[pair], slow[pair])] for pair in together})

        def best(pairs, errors=errors):
            return min(range(len(errors)), key=lambda i: sum(abs(math.log1p(error)) for pair in pairs for error in errors[i][pair]))

        def tell(what, found):
            away = [abs(error) for error in found]
            print(f"{what}: {len(away)} slowdowns, median {percent(quantile(away, 0.5), 1)} %, 90th {percent(quantile(away, 0.9), 1)} %")

        print(f"{NAMES[mode]}: {tried[best(together)]} by all pairs, {tried[best(seen)]} by the {len(seen)} pairs of the fit")
        tell("the other pairs", [error for pair in set(together) - seen for error in errors[best(seen)][pair]])
        left_out = []
        for job in alone:
            chosen = errors[best([pair for pair in together if job not in pair])]
            left_out += [error for pair in together if job in pair for error in chosen[pair]]
        tell("pairs with a job left out of the fit, for each job", left_out)
        low, high = quantile([1 / (1 + error) for error in left_out], [0.05, 0.95])
        print(f"measured over expected, 5th and 95th percentile of these: {low:.2f}, {high:.2f}")


def main():
    args = parse_args()
    found, figures = measured(), captured(args)
    if args.fit:
        return fit(args, found, figures)
    text = document(args, found, figures)
    print(text)
    if args.markdown:
        page.write(args.markdown, COMMAND, "36 pairs by time slices, 15 under MPS, on an H200", {"on_card": text})
    return None


if __name__ == "__main__":
    main()
