#!/usr/bin/env python3
"""Compare predicted kernel times with those that eval/truth/measure_operators.py measured on a card.

    python -m eval.truth.compare_operators ROWS.jsonl.gz --python ENV/bin/python --ours OURS.jsonl.gz [--gpu h100-80] [--misses 20]
        [--least-us 5] [--kernels 60] [--only operators]

ENV has the PyTorch of the rows, and torchvision, timm and transformers for the models. The same script makes OURS under `gpucast run --warp`,
if that file is not there: its profiler then reports predicted times, and L2 is as empty as on the card. Times are of kernels, without gaps.
Kernels are compared one by one where both lists have the same ones; libraries' kernels have other names on the virtual GPU.
"""

import argparse
import collections
import gzip
import json
import pathlib
import re
import subprocess
import sys

from eval import ROOT, jobs
from eval.tables import ERROR_HEAD, error, error_cells, markdown, median, signed

SCRIPT = ROOT / "eval/truth/measure_operators.py"
MINUTES = "60"  # of the script's own clock, which `--warp` advances


def make_rows(args):
    command = [args.gpucast, "run", "--warp", "--gpu", args.gpu, "--", args.python, str(SCRIPT), "-o", str(args.ours)]
    command += ["--minutes", MINUTES, *(["--only", args.only] if args.only else [])]
    done = subprocess.run(command, capture_output=True, text=True)
    if not args.ours.exists() or rows_of(args.ours)[-1].get("part") != "end":
        raise SystemExit(f"{' '.join(command)}: {(done.stdout + done.stderr)[-3000:]}")


def rows_of(path):
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def family(row):
    return row["case"].split("-")[0]


def short(name):
    """A kernel's name without its arguments and without what is the same for most."""
    for word in ("void ", "at::native::", "(anonymous namespace)::", "c10::", "std::", "TensorIteratorBase"):
        name = name.replace(word, "")
    return re.sub(r"operator\(\)\(\) const::|\{lambda\(\)#\d+\}::", "", name)


def described(kernel):
    if "grid" not in kernel:
        return f"{kernel.get('bytes')} bytes"
    return f"<{'x'.join(map(str, kernel['grid']))}, {'x'.join(map(str, kernel['block']))}>"


# ---- tables ----------------------------------------------------------------------------------------------------------------------------


def figures(pairs):
    """pairs: (predicted us, measured us)."""
    whole = error(sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs))
    return [*error_cells([error(*pair) for pair in pairs]), signed(whole, 1)]


def overview(pairs, words, key):
    """pairs: (row, predicted us)."""
    parts = collections.defaultdict(list)
    for row, us in pairs:
        parts[key(row)].append((us, row["us"]))
    lines = [[*name, *figures(parts[name])] for name in sorted(parts)]
    return markdown([*words, *ERROR_HEAD, "all time"], lines, words=len(words))


def paired_kernels(mine, theirs):
    """(our kernel, the measured one) where the lists are the same; a fill that only libraries make is left out."""
    mine, theirs = ([k for k in row["kernels"] if "Memset" not in k["name"]] for row in (mine, theirs))
    if [short(kernel["name"]).split("<")[0] for kernel in mine] == [short(kernel["name"]).split("<")[0] for kernel in theirs]:
        yield from zip(mine, theirs)


def kernel_table(found, count):
    """found: {name: (ours, measured) pairs}. The kernels with the most time off, in all."""
    off = {name: sum(abs(ours - measured) for ours, measured in pairs) for name, pairs in found.items()}
    names = sorted(off, key=off.get, reverse=True)[:count]
    lines = [[f"`{name[:110]}`", *figures(found[name]), f"{off[name]:.0f}"] for name in names]
    return markdown(["kernel", *ERROR_HEAD, "all time", "us off"], lines)


def described_case(row, mine):
    arguments = json.dumps(row["arguments"])[:160]
    off = signed(error(mine["us"], row["us"]), 0)
    lines = [f"{row['case']} {row['precision']} {arguments}: {mine['us']:.4g} us, measured {row['us']:.4g} ({off} %)"]
    for word, kernels in (("measured", row["kernels"]), ("ours", mine["kernels"])):
        lines += [f"    {word:8} {k['us']:9.3f} us {k['operator']} {described(k)} {short(k['name'])[:150]}" for k in kernels]
    return "\n".join(lines)


def compare_operators(args, rows, ours):
    by_case = {row["case"]: row for row in ours if row["part"] == "operators" and row.get("us")}
    cases = [row for row in rows if row["part"] == "operators" and row.get("us")]
    pairs = [(row, by_case[row["case"]]["us"]) for row in cases if row["case"] in by_case]
    print(f"{len(pairs)} of {len(cases)} passes of operators; errors in %.\n")
    print(overview(pairs, ["family", "precision"], lambda row: (family(row), row["precision"])), end="\n\n")
    print(overview(pairs, ["family", "pass"], lambda row: (family(row), row["pass"])), end="\n\n")
    print(overview(pairs, ["all"], lambda row: ("all",)), end="\n\n")
    found = collections.defaultdict(list)
    for row, _ in pairs:
        for mine, measured in paired_kernels(by_case[row["case"]], row):
            found[short(measured["name"]).split("(")[0]].append((mine["us"], measured["us"]))
    print(kernel_table(found, args.kernels), end="\n\n")
    left_out = [row["case"] for row in cases if row["case"] not in by_case]
    if left_out:
        print("Left out:", *left_out, sep="\n- ", end="\n\n")
    differ = [(row, us) for row, us in pairs if abs(error(us, row["us"])) > args.misses / 100 and row["us"] >= args.least_us]
    for row, _ in sorted(differ, key=lambda pair: -abs(error(pair[1], pair[0]["us"]))):
        print(described_case(row, by_case[row["case"]]))


def compare_models(args, rows, ours):
    by_case = {(row["part"], row["case"]): row for row in ours if "case" in row}
    lines = []
    for row in rows:
        mine = by_case.get((row["part"], row.get("case")))
        if row["part"] == "models" and mine and "step_ms" in row and "step_ms" in mine:
            lines.append([row["case"], "step", *(f"{median(one['step_ms']):.2f}" for one in (mine, row))])
        elif row["part"] == "model_kernels" and mine and "busy_ms" in row and "busy_ms" in mine:
            lines.append([row["case"], "busy", *(f"{one['busy_ms']:.2f}" for one in (mine, row))])
    for line in lines:
        line.append(signed(error(float(line[2]), float(line[3])), 1))
    print(markdown(["model", "ms", "ours", "measured", "off by %"], sorted(lines, key=lambda line: line[1::-1]), words=2), end="\n\n")
    for row in rows:
        mine = by_case.get((row["part"], row.get("case")))
        if row["part"] == "model_kernels" and mine and "kernels" in mine:
            print(f"{row['case']}: us of a step by operator, where they differ most")
            times = [collections.Counter(), collections.Counter()]
            for one, time in zip((mine, row), times):
                for kernel in one["kernels"]:
                    time[kernel["operator"] or kernel["name"]] += kernel["us"]
            names = sorted(times[0] | times[1], key=lambda name: -abs(times[0][name] - times[1][name]))[:12]
            print("\n".join(f"    {times[0][name]:9.1f} measured {times[1][name]:9.1f} {name}" for name in names))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=pathlib.Path, help="what measure_operators.py wrote")
    parser.add_argument("--ours", type=pathlib.Path, required=True, help="predicted rows; made if not there")
    parser.add_argument("--python", default=sys.executable)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--gpu", default="h100-80")
    parser.add_argument("--only", choices=("operators", "models"), help="one part")
    parser.add_argument("--misses", type=float, default=20, metavar="PERCENT", help="list cases that are further off (default %(default)s)")
    parser.add_argument("--least-us", type=float, default=0, help="and that take at least this long")
    parser.add_argument("--kernels", type=int, default=60, help="that are listed (default %(default)s)")
    args = parser.parse_args()
    args.gpucast = jobs.find(args.gpucast)
    if not args.ours.exists():
        make_rows(args)
    rows, ours = rows_of(args.rows), rows_of(args.ours)
    if args.only != "models":
        compare_operators(args, rows, ours)
    if args.only != "operators":
        compare_models(args, rows, ours)


if __name__ == "__main__":
    main()
