#!/usr/bin/env python3
"""Compare predicted kernel times with those that eval/truth/measure_operators.py measured on a card.

    python -m eval.truth.compare_operators ROWS.jsonl.gz --python ENV/bin/python --cache CACHE [--gpu h100-80] [--values on]
        [--misses 20] [--only operators] [--cases layer_norms]

ENV has the PyTorch of the rows, and torchvision, timm and transformers for the models. All operators are captured as one step of
`gpucast run`: a kernel of MARKER stands before and after each measurement. A case's time is the sum of its kernels' times. Measured
times are without the gaps between kernels, and the L2 cache was flushed first. Models are captured as they are, and compared by the time
in which the card is busy. CACHE keeps captures: a capture that is there is not made again.
"""

import argparse
import collections
import gzip
import hashlib
import json
import os
import pathlib
import subprocess
import sys

from eval import ROOT, jobs
from eval.tables import error, markdown, median, percent, quantile, signed

MARKER = "aten::erfinv_"  # of a measurement
KERNELS_PER_MODEL = 12  # that are listed


# ---- under `gpucast run`, with measure_operators.py beside this file ---------------------------------------------------------------------


def run_operators(report, tf32, wanted):
    """One step with all wanted cases, those of TF32 or the others: a step has one such setting. `report` gets the labels of the passes that ran, in order, and why others failed."""
    import measure_operators as truth
    import torch

    mark, flush = torch.zeros(1, device="cuda"), torch.empty(truth.L2_FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    parameter = torch.nn.Parameter(torch.zeros(1, device="cuda"))
    parameter.grad = torch.zeros(1, device="cuda")
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    truth.set_precision("tf32" if tf32 else "fp32")
    optimizer.step()  # the step between the two is observed
    measured, failed = [], {}
    for name, case in truth.operator_cases().items():
        if (case.precision == "tf32") != tf32 or (wanted and not any(word in name for word in wanted)):
            continue
        try:
            for which, (prepare, run) in case.build().items():
                run(*(prepare() if prepare else ()))  # makes an optimizer's state
                prepared = prepare() if prepare else ()
                measured.append(f"{name}/{which}")
                flush.zero_()
                mark.erfinv_()
                try:
                    run(*prepared)
                finally:
                    mark.erfinv_()
        except Exception as problem:
            failed[name] = f"{type(problem).__name__}: {problem}"[:300]
    report.write_text(json.dumps({"measured": measured, "failed": failed}))
    optimizer.step()  # gpucast ends the process here


def run_model(name):
    import measure_operators as truth
    import torch

    truth.set_precision(truth.MODELS[name][1]["precision"])
    torch.manual_seed(0)
    with torch.device(truth.DEVICE):
        step = truth.MODELS[name][0]()
    while True:  # until gpucast ends the process
        step()


# ---- captures --------------------------------------------------------------------------------------------------------------------------


def capture(args, name, *words):
    """The capture of this script's other mode, and its report's path."""
    key = hashlib.sha256(json.dumps([name, args.gpu, args.values, words]).encode()).hexdigest()[:10]
    made = (args.cache / f"{name}-{args.gpu}-{key}.gpucast").resolve()
    report = made.with_suffix(".report")
    made.parent.mkdir(parents=True, exist_ok=True)
    if not made.exists():
        print(f"capturing {name}", file=sys.stderr, flush=True)
        command = [args.gpucast, "run", "--gpu", args.gpu, "--steps", "2", "--force", "-o", str(made)]
        command += ["--values", args.values] if args.values else []
        command += ["--", args.python, str(pathlib.Path(__file__).resolve()), "--captured", name, str(report), *words]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "GPUCAST_OBSERVE_S": "3600"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode or not made.exists():
            raise SystemExit(f"{name}: {(done.stdout + done.stderr)[-3000:]}")
    return made, report


def kernels_of(args, made):
    """The predicted kernels of a capture's step in order: (operator, kernel, sizes, us)."""
    out = made.with_suffix(".trace")
    command = [args.gpucast, "export", str(made), "--gpu", args.gpu, "--to", "perfetto", "--force", "-o", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    events = [event for event in json.loads(out.read_text())["traceEvents"] if event.get("pid") == 3 and event.get("ph") == "X"]
    out.unlink()
    for event in sorted(events, key=lambda event: event["ts"]):
        yield event["name"], event["args"].get("kernel", ""), event["args"].get("sizes", ""), event["dur"]


def marked_work(kernels):
    """The kernels of each measurement, in order."""
    found, inside = [], False
    for kernel in kernels:
        if kernel[0] == MARKER:
            inside = not inside
            if inside:
                found.append([])
        elif inside:
            found[-1].append(kernel)
    return found


def step_time(args, made):
    """(step ms, busy ms) of a capture."""
    command = [args.gpucast, "time", str(made), "--gpu", args.gpu, "--format", "json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return said


# ---- tables ----------------------------------------------------------------------------------------------------------------------------


def overview(pairs, words, key):
    """pairs: (row, predicted us)."""
    parts = collections.defaultdict(list)
    for row, us in pairs:
        parts[key(row)].append(error(us, row["us"]))
    lines = []
    for name, errors in sorted(parts.items()):
        away = [abs(one) for one in errors]
        numbers = [percent(median(away), 1), percent(quantile(away, 0.9), 1), signed(max(errors, key=abs), 1), signed(median(errors), 1)]
        lines.append([*name, len(errors), *numbers])
    return markdown([*words, "n", "median", "90th", "worst", "signed median"], lines, words=len(words))


def short(name):
    """A kernel's name without what is the same for most."""
    for word in ("void ", "at::native::", "(anonymous namespace)::", "c10::", "std::", "cutlass::"):
        name = name.replace(word, "")
    return name


def described_case(row, work):
    us = sum(kernel[3] for kernel in work)
    arguments = json.dumps(row["arguments"])
    lines = [f"{row['case']} {row['precision']} {arguments[:160]}: {us:.4g} us, measured {row['us']:.4g} ({signed(error(us, row['us']), 0)} %)"]
    for kernel in row["kernels"]:
        grid = "x".join(map(str, kernel["grid"])) if "grid" in kernel else f"{kernel.get('bytes')} bytes"
        block = "x".join(map(str, kernel.get("block", ())))
        lines.append(f"    measured {kernel['us']:9.3f} us {kernel['operator']} <{grid}, {block}> {short(kernel['name'])[:150]}")
    lines += [f"    ours     {us:9.3f} us {name} {sizes} {short(kernel)[:150]}" for name, kernel, sizes, us in work]
    return "\n".join(lines)


def compare_operators(args, rows):
    work, problems = {}, []
    for part in ("operators", "operators_tf32"):
        made, report = capture(args, part, *args.cases)
        said = json.loads(report.read_text())
        work.update(zip(said["measured"], marked_work(kernels_of(args, made))))
        problems += [f"{name}: {why}" for name, why in said["failed"].items()]
    cases = [row for row in rows if row["part"] == "operators" and row.get("us")]
    cases = [row for row in cases if not args.cases or any(word in row["case"] for word in args.cases)]
    pairs = [(row, sum(kernel[3] for kernel in work[row["case"]])) for row in cases if work.get(row["case"])]
    print(f"{len(pairs)} of {len(cases)} passes of operators; errors in %.\n")
    print(overview(pairs, ["family", "precision"], lambda row: (row["case"].split("-")[0], row["precision"])), end="\n\n")
    print(overview(pairs, ["family", "pass"], lambda row: (row["case"].split("-")[0], row["pass"])), end="\n\n")
    print(overview(pairs, ["all"], lambda row: ("all",)), end="\n\n")
    problems += [f"{row['case']}: no kernels of ours" for row in cases if not work.get(row["case"])]
    if problems:
        print("Left out:", *problems, sep="\n- ", end="\n\n")
    differ = [(row, us) for row, us in pairs if abs(error(us, row["us"])) > args.misses / 100]
    for row, _ in sorted(differ, key=lambda pair: -abs(error(pair[1], pair[0]["us"]))):
        print(described_case(row, work[row["case"]]))


def main():
    if sys.argv[1:2] == ["--captured"]:
        name, report, *words = sys.argv[2:]
        if name.startswith("operators"):
            return run_operators(pathlib.Path(report), name.endswith("tf32"), words)
        return run_model(name)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=pathlib.Path, help="what measure_operators.py wrote")
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--gpu", default="h100-80")
    parser.add_argument("--values", choices=("auto", "on", "off"), default="", help="of gpucast run")
    parser.add_argument("--only", choices=("operators", "models"), help="one part")
    parser.add_argument("--cases", nargs="*", default=[], help="only operators whose case has one of these words")
    parser.add_argument("--misses", type=float, default=20, metavar="PERCENT", help="list cases that are further off (default %(default)s)")
    args = parser.parse_args()
    args.gpucast = jobs.find(args.gpucast)
    with (gzip.open if args.rows.suffix == ".gz" else open)(args.rows, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    if args.only != "models":
        compare_operators(args, rows)


if __name__ == "__main__":
    main()
