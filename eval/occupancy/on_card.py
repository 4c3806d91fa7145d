#!/usr/bin/env python3
"""How full whole trainings made a card, by the counters that DCGM shows, compared with `gpucast occupancy`.

on_card.py --captures DIR [--python PYTHON] [--data DIR --older-python PYTHON] [--fit] [--page docs/results/occupancy.md]

- H200: the jobs of eval/truth/h200/steps.jsonl.gz. Each is captured as DIR/h200-NUMBER.gpucast by PYTHON (the measured releases), if that file is missing.
- A100: --count random MLPs and CNNs of GPUMemNet (--data, a folder with gpumemnet), drawn by seed, built by random_net.py. The first half of them
  was looked at, to find causes of errors; the other half is reported apart.
All figures are over the kernels' time: the counters divided by `graphics_active`. --fit prints the constants of data/step.json's `counters`
that fit every second H200 job best, with the kernels that were measured there.
"""

import argparse
import ast
import collections
import csv
import gzip
import itertools
import json
import math
import random
import re
import statistics
import subprocess
from pathlib import Path

from eval import ROOT, page
from eval.jobs import add_gpucast_option, find
from eval.tables import markdown
from eval.truth import measured_jobs

STEPS = ROOT / "eval/truth/h200/steps.jsonl.gz"
FIGURES = ("occupancy", "SM active", "tensor cores", "device memory")
LOOKED_AT = 14  # of the drawn MLPs and CNNs, each
GROUPS = {"mlp": "random MLPs", "cnn": "random CNNs", "transformers": "text", "lstm": "text"}


def h200_rows():
    return measured_jobs.trainings(STEPS)[1]


def gpumemnet_rows(folder, count, seed=1):
    for kind in ("mlp", "cnn"):
        with gzip.open(folder / f"gpumemnet/{kind}_occupancy.csv.gz", "rt") as file:
            rows = [row for row in csv.DictReader(file) if float(row["Avg GRACT"] or 0) > 0.2]
        random.Random(seed).shuffle(rows)
        for number, row in enumerate(rows[:count]):
            words = dict(re.findall(r"(input_channels|input_size|input|batch):(\d+)", row["Filename"]))
            sizes = [int(words[name]) for name in (["input"] if kind == "mlp" else ["input_channels", "input_size", "input_size"])]
            net = {"layers": ast.literal_eval(row["Activations-Params"]), "input": sizes, "batch": int(words["batch"])}
            busy = float(row["Avg GRACT"])
            yield kind, number, net, {"occupancy": float(row["Avg SMOCC"]) / busy, "SM active": float(row["Avg SMACT"]) / busy}


def captured(gpucast, card, path, program):
    if not path.exists():
        command = [gpucast, "run", "--gpu", card, "--steps", "3", "-o", path, "--", *program]
        subprocess.run(list(map(str, command)), capture_output=True, check=False, timeout=600)
    if not path.exists():
        return None
    command = [gpucast, "occupancy", path, "--gpu", card, "--format", "json"]
    return json.loads(subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout)


def predicted(answer):
    """Over the kernels' time, as the measured figures."""
    of_kernels = answer["step_ns"] / answer["gpu_ns"]
    return {
        "occupancy": answer["occupancy"]["time_weighted"],
        "SM active": answer["sm_active"] * of_kernels,
        "tensor cores": answer["tensor_cores"] * of_kernels,
        "device memory": answer["bandwidth"] * of_kernels,
    }


def measured(row):
    gpm = row["gpm"]
    names = ("sm_occupancy", "sm_active", "tensor_active", "memory_active")
    return {figure: gpm[name] / gpm["graphics_active"] for figure, name in zip(FIGURES, names)}


def part_of_kernel(name):
    if re.search(r"nchwToNhwc|nhwcToNchw|tensorTransform", name):
        return "change of layout"
    if re.search(r"bn_|batchnorm", name):
        return "batch norm"
    if re.search(r"wgrad", name):
        return "gradients of convolution weights"
    if "at::native" in name or "_ZN2at6native" in name:
        return "PyTorch's own kernels"
    return "products"


def cause(row, answer):
    """The part of the kernels' time that differs most, where the kernels were measured."""
    if not row.get("kernels"):
        return ""
    shares = collections.defaultdict(lambda: [0.0, 0.0])
    kernels = [kernel for kernel in row["kernels"] if kernel[3]]
    for kernel in kernels:
        shares[part_of_kernel(kernel[0])][1] += kernel[2] / sum(other[2] for other in kernels)
    shown = sum(kernel["share"] for kernel in answer["kernels"])
    for kernel in answer["kernels"]:
        name = kernel.get("like") or ("at::native" if kernel["source"] != "typical" else "")
        shares[part_of_kernel(name)][0] += kernel["share"] / shown
    part, (ours, theirs) = max(shares.items(), key=lambda item: abs(item[1][0] - item[1][1]))
    return f"{part}: {100 * ours:.0f} % of the kernels' time, {100 * theirs:.0f} % measured"


# ---- tables ------------------------------------------------------------------------------------------------------------------------


def off(ours, theirs):
    return abs(ours / theirs - 1)


def summary(rows):
    """Median, 90th percentile and worst of each group: over the measured value; of tensor cores and memory in points of the card's peak."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row["card"], row["group"]].append(row)
    lines = []
    for (card, group), members in groups.items():
        cells = [card, group, len(members)]
        for figure in FIGURES:
            pairs = [(row["ours"][figure], row["measured"][figure]) for row in members if figure in row["measured"]]
            relative = figure in FIGURES[:2]
            errors = sorted(100 * (off(*pair) if relative else abs(pair[0] - pair[1])) for pair in pairs)
            unit = " %" if relative else ""
            cells.append(
                " / ".join(f"{value:.1f}{unit}" for value in (statistics.median(errors), errors[int(0.9 * len(errors))], errors[-1]))
                if errors
                else ""
            )
        lines.append(cells)
    return markdown(["card", "jobs", "number", *(f"{name}: median / 90th / worst" for name in FIGURES)], lines)


def worst(rows, count=12):
    ordered = sorted(rows, key=lambda row: -off(row["ours"]["occupancy"], row["measured"]["occupancy"]))
    lines = []
    for row in ordered[:count]:
        figures = [f"{100 * row['ours'][name]:.1f} / {100 * row['measured'][name]:.1f} %" for name in FIGURES[:2]]
        lines.append([row["card"], row["name"], *figures, row["cause"]])
    return markdown(["card", "job", "occupancy: gpucast / card", "SM active: gpucast / card", "differs most"], lines)


# ---- the counters' constants -------------------------------------------------------------------------------------------------------


def of_waves(launch, busy):
    """As src/occupancy/counters.cc: the partial wave is shorter than a full one."""
    resident, tail = launch["blocks_per_sm"], launch["tail"]
    if launch["waves"] <= 1 or not resident:
        return launch["achieved"], launch["sm_active"]
    if tail >= 1:
        return launch["theoretical"], 1
    full = launch["waves"] - 1
    time = max(math.ceil(tail * resident) / resident, min(1, busy / max(1, launch["warps_per_sm"])))
    return launch["theoretical"] * (full + time * tail) / (full + time), (full + time * min(1, tail * resident)) / (full + time)


def fit(gpucast, rows):
    """By the measured kernels, so that no choice of kernels and no time of the model is in the constants."""
    jobs = []
    for row in rows[::2]:
        kernels = [kernel for kernel in row.get("kernels", []) if kernel[3]]
        if not kernels:
            continue
        launches = [
            {"blocks": math.prod(grid), "block_threads": math.prod(block), "registers": registers, "dynamic_shared_bytes": shared}
            for _, _, _, grid, block, registers, shared in kernels
        ]
        text = "\n".join(map(json.dumps, launches))
        answer = subprocess.run(
            [gpucast, "occupancy", "--launches", "-", "--gpu", "h200"], input=text, capture_output=True, text=True, check=True
        )
        jobs.append((measured(row), list(zip(kernels, map(json.loads, answer.stdout.splitlines())))))
    best = None
    for empty_us, uneven, early, busy in itertools.product((2, 2.5, 3, 3.5, 4), (0.02, 0.04, 0.06), (0.8, 0.85, 0.9, 0.95), (4, 8, 16, 64)):
        errors = []
        for truth, kernels in jobs:
            total = occupancy = active = 0.0
            for (name, count, us, *_), launch in kernels:
                empty = min((empty_us + uneven * us / count / math.sqrt(max(1, launch["waves"]))) * count / us, 0.85)
                achieved, sm_active = of_waves(launch, busy)
                warps = 0.75 if "nvjet" in name else 0.6 if "wgrad_indexed" in name else early if "at::native" in name else 1
                total += us
                occupancy += us * achieved * warps * (1 - empty)
                active += us * sm_active * (1 - empty)
            errors += [off(occupancy / total, truth["occupancy"]), off(active / total, truth["SM active"])]
        found = statistics.mean(errors), empty_us, uneven, early, busy
        best = min(best or found, found)
    print(
        "{} jobs: empty_ns {:.0f}, uneven {}, early_warps {}, busy_warps {}; mean error {:.1%}".format(
            len(jobs), 1e3 * best[1], *best[2:], best[0]
        )
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_gpucast_option(parser)
    parser.add_argument("--captures", type=Path, help="a folder of captures; missing ones are made")
    parser.add_argument("--python", default="python", help="with the measured releases (default: %(default)s)")
    parser.add_argument("--older-python", default="python", help="for GPUMemNet's nets, of 2024 (default: %(default)s)")
    parser.add_argument("--data", type=Path, help="the folder with gpumemnet")
    parser.add_argument("--count", type=int, default=2 * LOOKED_AT, help="MLPs and CNNs of gpumemnet, each (default: %(default)s)")
    parser.add_argument("--fit", action="store_true", help="print the best constants, and end")
    parser.add_argument("--page", type=Path, help="write the tables into this page")
    args = parser.parse_args()
    args.gpucast = find(args.gpucast)
    if args.fit:
        fit(args.gpucast, h200_rows())
        return
    if args.captures is None:
        parser.error("--captures names a folder for the captures")
    args.captures.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, row in enumerate(h200_rows(), 1):
        job = row["job"]
        program = [args.python, measured_jobs.TRAINING, json.dumps(job)]
        answer = captured(args.gpucast, "h200", args.captures / f"h200-{number}.gpucast", program)
        if answer is None:
            print(f"not captured: {job}")
            continue
        group = GROUPS.get(job["model"].partition(":")[0], "vision")
        name = f"{job['model']} {job['batch']} {job['precision']}"
        rows.append(
            {
                "card": "H200",
                "group": group,
                "name": name,
                "ours": predicted(answer),
                "measured": measured(row),
                "cause": cause(row, answer),
            }
        )
    for kind, number, net, truth in gpumemnet_rows(args.data, args.count) if args.data else ():
        program = [args.older_python, ROOT / "eval/occupancy/random_net.py", json.dumps(net)]
        answer = captured(args.gpucast, "a100-40", args.captures / f"a100-{kind}{number}.gpucast", program)
        if answer is None:
            print(f"not captured: {kind} {number}")
            continue
        name = f"{kind} {number}: {len(net['layers'])} layers, batch {net['batch']}"
        group = GROUPS[kind] + ("" if number < LOOKED_AT else ", not looked at")
        rows.append({"card": "A100", "group": group, "name": name, "ours": predicted(answer), "measured": truth, "cause": ""})
    tables = {"on card": summary(rows), "on card, worst": worst(rows)}
    print(*tables.values(), sep="\n\n")
    if args.page:
        page.write(args.page, "python -m eval.occupancy.on_card --captures DIR --data DIR", f"{len(rows)} trainings on two cards", tables)


if __name__ == "__main__":
    main()
