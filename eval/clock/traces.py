#!/usr/bin/env python3
"""Do the profiler's traces of `gpucast run --real-time` open in the tools that read such traces? Runs scripts/ under torch.profiler and prints
each reader's figures: PyTorch itself, gpucast, Holistic Trace Analysis and TensorBoard's profiler plugin. Exit code 1: they disagree.

    python -m venv READERS && READERS/bin/pip install HolisticTraceAnalysis torch-tb-profiler tensorboard "pandas<3"
    python -m eval.clock.traces --python ENV/bin/python --readers READERS/bin/python [--gpucast PATH] [--gpu a100-80] [--only NAME,NAME] [--keep DIR]
"""

import argparse
import collections
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

from eval.clock.agree import SCRIPTS, SHARED, measured
from eval.jobs import add_gpucast_option

WORK = ("kernel", "gpu_memcpy", "gpu_memset")
READER = pathlib.Path(__file__).parent / "read_trace.py"


def trace_of(folder):
    *first, path = sorted(folder.glob("*.pt.trace.json*"), key=lambda path: path.stat().st_mtime)
    for other in first:  # of the first run, which only records the script's launches, if it went to the script's end
        other.unlink()
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", errors="replace") as file:
        return path, json.load(file)["traceEvents"]


def busy_microseconds(work):
    """Simultaneous work of several streams counts once, as in HTA."""
    busy, until = 0.0, float("-inf")
    for begin, end in sorted((event["ts"], event["ts"] + event["dur"]) for event in work):
        busy += max(0.0, end - max(begin, until))
        until = max(until, end)
    return busy


def in_file(events):
    """The file's own figures, and whether its parts match."""
    work = [event for event in events if event.get("cat") in WORK]
    calls = {event["args"]["correlation"]: event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")}
    operators = {event["args"]["External id"]: event for event in events if event.get("cat") == "cpu_op"}
    of_graphs = {number for number, call in calls.items() if call["name"] == "cudaGraphLaunch"}
    asked = collections.Counter(event["args"]["correlation"] for event in work)
    wrong = []
    if any(event["args"]["correlation"] not in calls for event in work):
        wrong.append("work without its call")
    if any(event["ts"] < calls[event["args"]["correlation"]]["ts"] for event in work if event["args"]["correlation"] in calls):
        wrong.append("work before its call")
    if any(count > 1 and number not in of_graphs for number, count in asked.items()):
        wrong.append("a call with several kernels")
    launches = [
        number for number, call in calls.items() if "Launch" in call["name"] or "Memcpy" in call["name"] or "Memset" in call["name"]
    ]
    if any(number not in asked for number in launches):
        wrong.append("a launch without work")
    for call in calls.values():
        operator = operators.get(call["args"].get("External id"))
        if operator and not (operator["tid"] == call["tid"] and operator["ts"] <= call["ts"] <= operator["ts"] + operator["dur"]):
            wrong.append("a call outside its operator")
            break
    by_stream = collections.defaultdict(list)
    for event in work:
        by_stream[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in by_stream.values():
        spans.sort()
        if any(after[0] < before[1] - 0.01 for before, after in zip(spans, spans[1:], strict=False)):
            wrong.append("two kernels at once in a stream")
    linked = sum(event["args"].get("External id") in operators for event in work)
    return {
        "count": len(work),
        "microseconds": sum(event["dur"] for event in work),
        # PyTorch writes the stream of Triton's launches, and HTA counts everything with a stream as kernels.
        "busy microseconds": busy_microseconds([*work, *(event for event in operators.values() if "stream" in event["args"])]),
        "streams": len(by_stream),
        "with operator": linked,
        "in graphs": sum(count for number, count in asked.items() if number in of_graphs),
        "wrong": wrong,
    }


def by_gpucast(path, options):
    """The most megabytes that the steps had allocated, or nothing if they allocate nothing."""
    done = subprocess.run([options.gpucast, "analyze", "--format", "json", str(path)], capture_output=True, text=True)
    if "no [memory] events" in done.stderr:
        return None
    report = json.loads(done.stdout)
    return round(report["peak"]["allocated_bytes"] / 2**20)


def one(name, folder, options):
    command = [options.gpucast, "run", "--real-time", "--gpu", options.gpu, "--"]
    row = {"script": name, "torch": measured([*command, options.python, str(SCRIPTS / f"{name}.py"), "--trace", str(folder)])}
    path, events = trace_of(folder)
    row["file"] = in_file(events)
    row["gpucast"] = by_gpucast(path, options)
    read = subprocess.run([options.readers, str(READER), str(folder), str(path)], capture_output=True, text=True, timeout=600)
    if read.returncode != 0:
        raise RuntimeError(f"{name}: {read.stderr[-2000:]}")
    row.update(json.loads(read.stdout.splitlines()[-1]))
    return row


def problems(row):
    """Disagreements of the readers: counts must be equal, times equal up to rounding."""
    wrong = list(row["file"]["wrong"])
    for reader, microseconds in (("torch", row["file"]["microseconds"]), ("hta", row["file"]["busy microseconds"])):
        if row[reader]["count"] != row["file"]["count"]:
            wrong.append(f"{reader} counts {row[reader]['count']}")
        if abs(row[reader]["microseconds"] - microseconds) > 0.01 * microseconds + row["file"]["count"]:
            wrong.append(f"{reader} adds up {row[reader]['microseconds']:.0f} us")
    if row["plugin"]["kernels"] != row["hta"]["kernels"]:
        wrong.append(f"the plugin counts {row['plugin']['kernels']} kernels, HTA {row['hta']['kernels']}")
    if not row["plugin"]["views"].count("Kernel") or row["plugin"]["steps"] != 2:
        wrong.append("the plugin lacks views")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--readers", required=True)
    add_gpucast_option(parser)
    parser.add_argument("--gpu", default="a100-80")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=pathlib.Path, help="keep the traces in this folder")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem not in SHARED)
    failed = False
    print(
        "| script | kernels, copies, fills | of these with their operator, in graphs | streams | us: file, PyTorch, HTA | HTA: computing, other, idle % | plugin: kernels, GPU % | MiB by gpucast | wrong |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for name in names:
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.keep / name if options.keep else pathlib.Path(temporary)
            row = one(name, folder, options)
        file, hta, wrong = row["file"], row["hta"], problems(row)
        failed |= bool(wrong)
        print(
            f"| {name} | {file['count']} | {file['with operator']}, {file['in graphs']} | {file['streams']} "
            f"| {file['microseconds']:.0f}, {row['torch']['microseconds']:.0f}, {hta['microseconds']:.0f} "
            f"| {hta['computing']:.1f}, {hta['other']:.1f}, {hta['idle']:.1f} | {row['plugin']['kernels']}, {row['plugin']['gpu_percent']:.1f} "
            f"| {row['gpucast'] or ''} | {'; '.join(wrong)} |",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
