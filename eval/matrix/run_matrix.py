#!/usr/bin/env python3
"""Predict jobs' GPU memory from CPU profiles, compared with the virtual GPU.

    python -m eval.matrix.run_matrix --python ENV/bin/python --out /tmp/matrix
    python -m eval.matrix.run_matrix --python ENV/bin/python --out /tmp/matrix --only gpt2 --methods gpucast
    python -m eval.matrix.run_matrix --python ENV/bin/python --out /tmp/matrix --ablate

ENV: PyTorch 2.6.0, torchvision 0.21.0 and transformers 4.51.3. Runs and profiles are kept in --out and used again,
so a second run only analyzes.
"""

import argparse
import dataclasses
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from eval import jobs, page
from eval.matrix.cases import CASES
from eval.tables import percent, signed, table

HERE = Path(__file__).resolve().parent

MIB = 2**20
STEPS = 3
TARGET_ERROR = 0.05
NOTED_ERROR = 0.02
METHODS = ("gpucast", "xmem", "veritasest", "dnnmem")
# Kinds of trace. profile: by `gpucast profile`, from the start of the script. bare: by torch.profiler around the training loop, begun
# when the model is already on its device, as in most tutorials. small: like profile, with a quarter of the batch, then rescaled.
COMMAND = "python -m eval.matrix.run_matrix --python PYTHON --out DIR --ablate"
KINDS = ("profile", "bare", "small")


def fail(message):
    sys.exit(f"run_matrix.py: {message}")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where captures and traces are kept")
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable, help="a Python with torch, torchvision and transformers")
    parser.add_argument("--gpu", default="rtx3060")
    parser.add_argument("--only", help="cases whose name has this in it (a regular expression)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="default %(default)s")
    parser.add_argument(
        "--methods", default=",".join(METHODS), help="default %(default)s; none: only make the files that are missing in --out"
    )
    parser.add_argument("--made", action="store_true", help="make nothing: analyze the files in --out")
    parser.add_argument("--ablate", action="store_true", help="also without each rule in turn")
    parser.add_argument("--results", type=Path, help="write one JSON line per case here")
    parser.add_argument("--markdown", type=Path, help="put the tables into this document, between its markers")
    return parser.parse_args()


def run(command, cwd=None, accept=(0,)):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode not in accept:
        raise RuntimeError(f"exit code {done.returncode} of: {' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done.stdout


# --- Made once -------------------------------------------------------------------------------------------------------


def once(args, path, make):
    """make(temporary path) unless the file is there; the file appears whole or not at all."""
    if path.exists():
        return
    if args.made:
        raise RuntimeError(f"{path.name} is not made yet")
    started = time.monotonic()
    temporary = path.with_name("new." + path.name)
    temporary.unlink(missing_ok=True)
    make(temporary)
    temporary.rename(path)
    print(f"made {path.name}, {time.monotonic() - started:.0f} s", file=sys.stderr)


def make_truths(args, cases):
    """{case name: report of the run on the virtual GPU}; cases that cannot run are left out and reported."""
    todo = []
    for case in cases:
        command = [args.python, HERE / "train.py", *case.arguments(), "--device", "cuda"]
        job = {"name": case.name, "command": list(map(str, command)), "gpu": args.gpu, "steps": STEPS}
        todo.append({**job, "output": str(args.out / f"{case.name}.gpucast"), "force": True})
    path = args.out / "truth.jsonl"
    results = jobs.read_lines(path) if args.made else jobs.run(args.gpucast, todo, path)
    truths = {}
    for case in cases:
        why = jobs.problem(results[case.name]) if case.name in results else "it is not made yet"
        if why:
            print(f"left out: {case.name}: {why}", file=sys.stderr)
        else:
            truths[case.name] = results[case.name]["report"]
    return truths


def small_batch(case):
    """About a quarter, and odd: it should divide no size of the model, or a block may count as one that grows with the batch."""
    return max(3, case.batch // 4 | 1)


def make_trace(args, case, kind):
    path = args.out / f"{case.name}.{kind}.json.gz"
    if kind == "small":
        case = dataclasses.replace(case, batch=small_batch(case))
    script = [args.python, HERE / "train.py", *case.arguments()]

    def make(temporary):
        if kind != "bare":
            run([args.gpucast, "profile", "--steps", STEPS, "-o", temporary, "--", *script, "--device", "cuda"])
        else:
            run([*script, "--device", "cpu", "--iterations", STEPS, "--trace", temporary])

    once(args, path, make)
    return path


# --- Predictions -----------------------------------------------------------------------------------------------------


def rules(args, trace):
    """The rules' names for `gpucast analyze --without`; it lists them for an unknown name."""
    done = subprocess.run([args.gpucast, "analyze", trace, "--without", "?"], capture_output=True, text=True)
    named = re.search(r"the rules are (.*)", done.stderr)
    if not named:
        fail(f"gpucast analyze --without '?' does not list the rules:\n{done.stderr}")
    return [word.strip() for word in named.group(1).split(",")]


def analyze(args, trace, method="gpucast", options=()):
    words = [args.gpucast, "analyze", trace, "--gpu", args.gpu, "--format", "json", "--method", method, *options]
    started = time.monotonic()
    try:
        report = json.loads(run(words, accept=(0, 1)))
    except RuntimeError as error:
        return {"error": str(error).splitlines()[-1][:300]}
    return {**figures(report), "seconds": round(time.monotonic() - started, 2)}


def figures(report):
    """The kept part of a report: the peaks, their places, and the allocations at the higher one."""
    peak = report["peak"]
    return {
        "peak_reserved_bytes": peak["reserved_bytes"],
        "peak_allocated_bytes": peak["allocated_bytes"],
        "reserved_in": peak["reserved_at"]["phase"],
        "allocated_in": peak["allocated_at"]["phase"],
        "categories": {category["name"]: category["bytes"] for category in report["categories"]},
        "phases": {phase["phase"]: phase["allocated_bytes"] for phase in report["phase_peaks"]},
    }


def predict(args, case, kinds, methods, release):
    """{"profile gpucast": {...}, "bare gpucast": {...}, "profile xmem": {...}, "profile without RULE": {...}}"""
    predictions = {}
    for kind in kinds:
        if kind == "small" and small_batch(case) >= case.batch:
            continue
        try:
            trace = make_trace(args, case, kind)
        except RuntimeError as error:
            print(f"{case.name}: no {kind} trace: {error}", file=sys.stderr)
            continue
        options = ["--batch", case.batch] if kind == "small" else []
        if kind == "bare":  # such a trace does not name its release
            options = ["--torch-version", release]
        for method in methods:
            # The papers' methods get the trace that they need: of the whole script.
            if method == "gpucast" or kind == kinds[0]:
                predictions[f"{kind} {method}"] = analyze(args, trace, method, options)
        for rule in rules(args, trace) if args.ablate and kind != "small" else ():
            predictions[f"{kind} without {rule}"] = analyze(args, trace, options=["--without", rule, *options])
    return predictions


# --- Tables ----------------------------------------------------------------------------------------------------------


def error_of(result, column, field="reserved_bytes"):
    """Signed: predicted minus true, relative to true. None if there is no prediction."""
    prediction = result["predictions"].get(column, {})
    if f"peak_{field}" not in prediction:
        return None
    truth = result["truth"][f"peak_{field}"]
    return (prediction[f"peak_{field}"] - truth) / truth


def columns_of(results, ablation):
    seen = dict.fromkeys(column for result in results for column in result["predictions"])
    return [column for column in seen if (" without " in column) == ablation]


def cases_table(results, markdown=False):
    columns = columns_of(results, ablation=False)
    ours = [column for column in columns if column.endswith(" gpucast")]
    header = ["case", "true reserved MiB", "true allocated MiB"]
    header += [f"{column} MiB" for column in ours] + [f"{column} %" for column in columns] + [f"{c} allocated %" for c in ours]
    body = []
    for result in results:
        line = [result["case"], *(f"{result['truth'][f'peak_{field}'] / MIB:.0f}" for field in ("reserved_bytes", "allocated_bytes"))]
        reserved = [result["predictions"].get(column, {}).get("peak_reserved_bytes") for column in ours]
        line += ["-" if value is None else f"{value / MIB:.0f}" for value in reserved]
        line += [signed(error_of(result, column)) for column in columns]
        body.append(line + [signed(error_of(result, column, "allocated_bytes")) for column in ours])
    return table(header, body, markdown)


def summary_table(results, columns, markdown=False):
    body = []
    for column in columns:
        errors = [abs(error) for error in (error_of(result, column) for result in results) if error is not None]
        failed = len([result for result in results if "error" in result["predictions"].get(column, {})])
        if not errors:
            body.append([column, 0, failed, "-", "-", "-", "-"])
            continue
        within = sum(error <= TARGET_ERROR for error in errors) / len(errors)
        mean = statistics.fmean(errors)
        body.append([column, len(errors), failed, *(percent(x) for x in (statistics.median(errors), mean, max(errors), within))])
    return table(["reserved", "cases", "failed", "median error %", "mean %", "worst %", "cases within 5 %: %"], body, markdown)


def print_differences(results, column):
    """For inexact cases: the peak's place, and the error of each category and phase."""
    worst = [(error_of(result, column), result) for result in results if error_of(result, column) is not None]
    worst = sorted((pair for pair in worst if abs(pair[0]) > NOTED_ERROR), key=lambda pair: -abs(pair[0]))
    for error, result in worst:
        truth, ours = result["truth"], result["predictions"][column]
        print(f"\n{column}: {result['case']} {signed(error)} %, allocated {signed(error_of(result, column, 'allocated_bytes'))} %")
        for peak in ("reserved", "allocated"):
            print(
                f"  {peak} peak in {truth[f'{peak}_in']}"
                + (f", ours in {ours[f'{peak}_in']}" * (truth[f"{peak}_in"] != ours[f"{peak}_in"]))
            )
        for what in ("categories", "phases"):
            off = {name: ours[what].get(name, 0) - truth[what].get(name, 0) for name in {**truth[what], **ours[what]}}
            off = {name: value for name, value in off.items() if abs(value) >= MIB / 10}
            words = [f"{name} {value / MIB:+.1f}" for name, value in sorted(off.items(), key=lambda item: -abs(item[1]))]
            print(f"  {what} off by MiB: " + (", ".join(words) or "nothing"))


def print_tables(results):
    print(cases_table(results))
    print()
    print(summary_table(results, columns_of(results, ablation=False)))
    if columns_of(results, ablation=True):
        print()
        print(summary_table(results, columns_of(results, ablation=True)))
    for kind in KINDS:
        print_differences(results, f"{kind} gpucast")
    for result in results:
        for column, prediction in result["predictions"].items():
            if "error" in prediction:
                print(f"failed: {result['case']} {column}: {prediction['error']}")


def write_markdown(path, results):
    tables = {
        "matrix": cases_table(results, True),
        "matrix summary": summary_table(results, columns_of(results, ablation=False), True),
    }
    if columns_of(results, ablation=True):
        with_all = [column for column in columns_of(results, ablation=False) if column in ("profile gpucast", "bare gpucast")]
        tables["matrix rules"] = summary_table(results, with_all + columns_of(results, ablation=True), True)
    profiles = {(result["case"], column.split()[0]) for result in results for column in result["predictions"]}
    page.write(path, COMMAND, f"{len(results)} jobs, {len(profiles)} profiles", tables)


def main():
    args = parse_args()
    args.gpucast = jobs.find(args.gpucast)
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    cases = [case for case in CASES if not args.only or re.search(args.only, case.name)]
    if not cases:
        fail(f"no case has '{args.only}' in its name; cases.py lists them")
    methods = [word for word in args.methods.split(",") if word and word != "none"]
    kinds = args.kinds.split(",")
    used = jobs.versions(args.python)
    truths = make_truths(args, cases)
    results = []
    for case in cases:
        if case.name not in truths:
            continue
        try:
            predictions = predict(args, case, kinds, methods, used["torch"])
        except RuntimeError as error:
            print(f"left out: {case.name}: {error}", file=sys.stderr)
            continue
        if methods and not predictions:
            continue
        truth = figures(truths[case.name])
        results.append({"case": case.name, "gpu": args.gpu, "versions": used, "truth": truth, "predictions": predictions})
    if methods and results:
        print_tables(results)
        if args.results:
            args.results.write_text("".join(json.dumps(result) + "\n" for result in results))
        if args.markdown:
            write_markdown(args.markdown, results)


if __name__ == "__main__":
    main()
