#!/usr/bin/env python3
"""Compares what the interpreter of PTX counts with the counters of a real card.

    python -m eval.kernels.compare_counters counters.csv.gz --out OUT --python ENV/bin/python [--card h100-80] [--list 0.1]

counters.csv.gz is from measure_counters.py, which ran on the card. ENV has its releases of torch and triton, and liger-kernel may be on
PYTHONPATH. The same program runs under `gpucast run` once (OUT keeps the capture), and `count_launches.cc`, compiled with the library of this
tree, counts its launches. A launch is compared if its name, its grid, its block and its place in the order are the same in both.

What the counters of an H100 mean, as 120 launches showed:
- lts__t_sectors_op_* also counts sectors that go from one half of L2 to the other: 1.5 of each. srcunit_tex is what L1 asked for. Hopper
  answers equal requests of neighbouring multiprocessors with one read of L2, so a product's tiles are read less often than L1 loads them.
- l1tex__data_pipe_lsu_wavefronts_mem_shared also has a wavefront or more for each warp, shuffle, vote and operand of wgmma: op_ld and op_st
  are the loads and stores (ldmatrix too), and copies (cp.async) and atomics of shared memory are in neither.
- dram__bytes_write: about 20 MB of what a kernel stores is still in L2 when it ends, so it says little of what it stored.
- gpu__time_duration: ncu empties the caches before each launch, so all that is read comes from device memory.
"""

import argparse
import csv
import difflib
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys

from eval import ROOT, jobs
from eval.kernels.evaluate import LINKED
from eval.tables import markdown, quantile

HERE = pathlib.Path(__file__).resolve().parent
L1 = "l1tex__t_sectors_pipe_lsu_mem_global_op_"
L2 = "lts__t_sectors_srcunit_tex_op_"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_"
SECTOR = 32


def read_sectors(ours):
    return ours["load_sectors"] + ours["async_load_bytes"] / SECTOR  # tiles are among the asynchronous bytes


def from_l1(ours):
    """Our sectors of loads, with asynchronous copies; None if some pass through the copy engine (TMA), which is not in L1's counters."""
    return None if ours["tile_bytes"] else read_sectors(ours)


def plain_wavefronts(ours):
    """None if copies are among them."""
    return None if ours["async_load_bytes"] else ours["shared_wavefronts"]


def total(*names):
    """The sum of the counters; None if one is not there."""

    def value(measured):
        values = [measured.get(name) for name in names]
        return None if None in values else sum(values)

    return value


# {quantity: (ours, the card's, below this the card's value is noise)}
QUANTITIES = {
    "sectors loaded, L1": (from_l1, total(L1 + "ld.sum"), 1000),
    "sectors stored, L1": (lambda ours: ours["store_sectors"], total(L1 + "st.sum"), 1000),
    "sectors of atomics, L1": (lambda ours: ours["atomic_sectors"], total(L1 + "atom.sum", L1 + "red.sum"), 1000),
    "sectors read, L2": (read_sectors, total(L2 + "read.sum"), 1000),
    "unique bytes loaded, DRAM": (lambda ours: ours["unique_load_bytes"], total("dram__bytes_read.sum"), 1e6),
    "shared wavefronts": (plain_wavefronts, total(SHARED + "ld.sum", SHARED + "st.sum"), 1000),
    "instructions, PTX to SASS": (lambda ours: ours["instructions"], total("smsp__inst_executed.sum"), 1000),
    "registers": (lambda ours: ours["registers"], total("launch__registers_per_thread"), 1),
    "time": (lambda ours: ours["predicted_ns"], total("gpu__time_duration.sum"), 1),
    "time, nothing in L2": (lambda ours: ours["cold_ns"], total("gpu__time_duration.sum"), 1),
}
SHORT = {
    "sectors loaded, L1": "loaded",
    "sectors stored, L1": "stored",
    "sectors of atomics, L1": "atomics",
    "sectors read, L2": "L2 read",
    "unique bytes loaded, DRAM": "DRAM read",
    "shared wavefronts": "shared",
    "instructions, PTX to SASS": "instructions",
    "registers": "registers",
    "time": "time",
    "time, nothing in L2": "cold",
}

# --- Our counts ----------------------------------------------------------------------------------------------------------------------


def capture(args):
    """(The capture, {case: label}, {case: group}) of measure_counters.py on the virtual card."""
    made, report = args.out / f"counters-{args.card}.gpucast", args.out / f"counters-{args.card}.labels.json"
    if not (made.exists() and report.exists()):
        folders = {"TRITON_CACHE_DIR": args.out / "triton", "TORCHINDUCTOR_CACHE_DIR": args.out / "inductor"}
        command = [args.gpucast, "run", "--gpu", args.card, "--values", "on", "--steps", "2", "--force", "-o", str(made), "--"]
        command += [args.python, str(HERE / "measure_counters.py"), "--run", "--labels", str(report)]
        env = os.environ | {name: str(folder) for name, folder in folders.items()} | {"GPUCAST_OBSERVE_S": "7200"}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if not made.exists():
            raise SystemExit((done.stdout + done.stderr)[-2000:])
    cases = json.loads(report.read_text())
    for case in cases:
        if case["failed"]:
            print(f"not run here: {case['label']}: {case['failed']}", file=sys.stderr)
    return made, {case["case"]: case["label"] for case in cases}, {case["case"]: case["group"] for case in cases}


def our_launches(args, made):
    program = args.out / "count_launches"
    library = pathlib.Path(args.gpucast).parents[1] / "libgpucast.a"
    command = ["g++", "-std=c++20", "-O1", f"-I{ROOT}", f"-I{ROOT / 'include'}", str(HERE / "count_launches.cc"), str(library)]
    subprocess.run([*command, *(f"-l{name}" for name in LINKED), "-o", str(program)], check=True)
    lines = subprocess.run([program, str(made), args.card], check=True, capture_output=True, text=True).stdout.splitlines()
    return [launch for launch in map(json.loads, lines) if "load_sectors" in launch]


# --- The card's counts ---------------------------------------------------------------------------------------------------------------


def number(text):
    try:
        return float(text.replace(",", ""))
    except (AttributeError, ValueError):
        return None


def sizes(text):
    return tuple(map(int, re.findall(r"\d+", text)))


def measured_launches(path):
    """{(pass, groups): rows in order}; a row has `kernel`, `grid`, `block` and the counters that are numbers."""
    runs = {}
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            counters = {name: value for name, text in row.items() if "__" in name and (value := number(text)) is not None}
            facts = {"kernel": row["Kernel Name"], "grid": sizes(row["Grid Size"]), "block": sizes(row["Block Size"])}
            runs.setdefault((row["pass"], row["groups"]), []).append(facts | counters)
    return runs


def matched(ours, runs, group_of):
    """[(our launch, the card's counters of all passes)], and the launches without a partner: (run, name, grid, block, which side has it)."""
    found, alone = {}, []
    for (run, groups), rows in runs.items():
        here = [at for at, launch in enumerate(ours) if group_of[launch["case"]] in groups.split(",")]
        names = {ours[at]["kernel"] for at in here}
        rows = [row for row in rows if row["kernel"] in names]
        left = [(ours[at]["kernel"], tuple(ours[at]["grid"]), tuple(ours[at]["block"])) for at in here]
        right = [(row["kernel"], row["grid"], row["block"]) for row in rows]
        for what, a, b, c, d in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
            if what == "equal":
                for at, row in zip(here[a:b], rows[c:d]):
                    counters = found.setdefault(at, {})
                    counters |= {name: value for name, value in row.items() if name not in counters}  # the first pass's time
            else:
                alone += [(run, *one, "counted") for one in left[a:b]] + [(run, *one, "measured") for one in right[c:d]]
    return [(ours[at], counters) for at, counters in sorted(found.items())], alone


# --- Tables --------------------------------------------------------------------------------------------------------------------------


def ratio(quantity, ours, measured):
    """Ours to the card's; None: not known, or too small for either to matter."""
    count, counter, least = QUANTITIES[quantity]
    mine, theirs = count(ours), counter(measured)
    if mine is None or not theirs or max(mine, theirs) < least:
        return None
    return mine / theirs


def summary(pairs):
    rows = []
    for quantity in QUANTITIES:
        found = [value for pair in pairs if (value := ratio(quantity, *pair)) is not None]
        if found:
            errors = [abs(value - 1) for value in found]
            equal, near = (sum(error <= most for error in errors) / len(found) for most in (0, 0.1))
            figures = [f"{100 * quantile(errors, part):.1f}" for part in (0.5, 0.9, 1.0)]
            ratios = f"{quantile(found, 0.5):.3f}", f"{min(found):.2f}", f"{max(found):.2f}"
            rows.append([quantity, len(found), *ratios, *figures, f"{100 * equal:.0f}", f"{100 * near:.0f}"])
    header = [
        "quantity",
        "launches",
        "median ratio",
        "least",
        "most",
        "median error, %",
        "90th, %",
        "worst, %",
        "equal, %",
        "within 10 %, %",
    ]
    return markdown(header, rows)


def cell(value):
    return "-" if value is None else f"{value:.2f}"


def conflicts(measured):
    """The share of the card's shared wavefronts that are bank conflicts."""
    name = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_"
    count = total(name + "ld.sum", name + "st.sum")(measured)
    wavefronts = measured.get("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    return count / wavefronts if wavefronts and count is not None else None


def launches(pairs, label_of):
    rows = []
    for ours, measured in pairs:
        marks = "assumed " * ours["assumed"] + ours["limit"] + " ".join(ours["not_understood"])
        ratios = [cell(ratio(quantity, ours, measured)) for quantity in QUANTITIES]
        rows.append([label_of[ours["case"]], ours["kernel"][:48], *ratios, cell(conflicts(measured)), marks.strip()])
    return markdown(["case", "kernel", *SHORT.values(), "conflicts", "notes"], rows, words=2)


def differences(pairs, label_of, least):
    """A line for each quantity of a launch that differs by more than `least`, the largest first."""
    found = []
    for ours, measured in pairs:
        for quantity, (count, counter, _) in QUANTITIES.items():
            value = ratio(quantity, ours, measured)
            if value is not None and abs(value - 1) > least and not quantity.startswith("instructions"):
                text = f"{label_of[ours['case']]}, `{ours['kernel'][:60]}`: {count(ours):,.0f} counted, {counter(measured):,.0f} measured"
                found.append((quantity, max(value, 1 / value if value else 1e9), f"- {quantity}: {text} ({value:.2f})"))
    order = list(QUANTITIES)
    return "\n".join(text for *_, text in sorted(found, key=lambda one: (order.index(one[0]), -one[1]))) or "None."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counters", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--card", default="h100-80")
    parser.add_argument("--list", type=float, default=0.1, help="list what differs by more than this share")
    parser.add_argument("--again", action="store_true", help="make a new capture")
    jobs.add_gpucast_option(parser)
    args = parser.parse_args()
    args.gpucast = jobs.find(args.gpucast)
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.again:
        (args.out / f"counters-{args.card}.gpucast").unlink(missing_ok=True)
    made, label_of, group_of = capture(args)
    ours = our_launches(args, made)
    pairs, alone = matched(ours, measured_launches(args.counters), group_of)
    print(f"{len(ours)} launches counted, {len(pairs)} compared. Ratios are ours to the card's.\n")
    print(summary(pairs), launches(pairs, label_of), sep="\n\n")
    print(f"\nDiffers by more than {100 * args.list:.0f} %:\n\n{differences(pairs, label_of, args.list)}")
    lines = [f"- {run}: `{name}` {grid} x {block}: {side} only" for run, name, grid, block, side in alone]
    print("\nWithout a partner:\n\n" + ("\n".join(lines) or "None."))


if __name__ == "__main__":
    main()
