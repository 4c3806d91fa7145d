#!/usr/bin/env python3
"""Which operators allocate differently on CPU and CUDA: two traces of the same training loop, operator by operator.

    python train.py --model gpt2 --batch 2 --iterations 3 --device cpu --trace cpu.json.gz
    gpucast run --steps 100 -- python train.py --model gpt2 --batch 2 --iterations 3 --device cuda --trace cuda.json.gz
    python -m eval.matrix.compare_operators cpu.json.gz cuda.json.gz

For an operator of one iteration: its number of runs, the bytes that remain afterwards, and the most that it holds beyond those while it
runs. CPU sizes are rounded up to 512 bytes, as CUDA's allocator does. Operators that agree are left out.
"""

import argparse
import collections
import gzip
import json
import re

STEP = "Optimizer.step#"
BLOCK_BYTES = 512
MIB = 2**20


def read_events(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", errors="replace") as file:
        # PyTorch reads the names of functions that are freed by then, so these can hold anything, quotes included.
        text = re.sub(r'("cat": "python_function", "name": ").*(", "pid": )', r"\1\2", file.read())
    return json.loads(text, strict=False)["traceEvents"]


def iteration_window(events, index):
    """Times of one iteration: from the end of the optimizer's step before it to the end of its own."""
    ends = sorted(e["ts"] + e["dur"] for e in events if str(e.get("name", "")).startswith(STEP))
    if not 0 < index < len(ends):
        raise SystemExit(f"the trace has {len(ends)} optimizer steps, so iterations 1 to {len(ends) - 1} can be compared")
    return ends[index - 1], ends[index]


def operators(events, begin, end, labels):
    """Outermost operators, in order, each with its memory events. Backward operators are named by their autograd node."""
    device = int(any(e.get("name") == "[memory]" and e["args"]["Device Type"] == 1 for e in events))
    found = []
    threads = collections.defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in labels and begin <= event["ts"] < end:
            threads[event["tid"]].append(event)
    spans = collections.defaultdict(list)
    for tid, group in threads.items():
        group.sort(key=lambda e: (e["ts"], -e["dur"]))
        last = float("-inf")
        for event in group:
            if event["ts"] >= last:
                spans[tid].append(event)
                last = event["ts"] + event["dur"]
    memory = [e for e in events if e.get("name") == "[memory]" and e["args"]["Device Type"] == device and begin <= e["ts"] < end]
    memory.sort(key=lambda e: (e["ts"], e["args"].get("Ev Idx", 0)))
    by_thread = collections.defaultdict(list)
    for event in memory:
        by_thread[event["tid"]].append(event)
    for tid, group in spans.items():
        queue, at = by_thread[tid], 0
        for span in group:
            while at < len(queue) and queue[at]["ts"] < span["ts"]:
                at += 1
            inside = []
            while at < len(queue) and queue[at]["ts"] <= span["ts"] + span["dur"]:
                inside.append(queue[at]["args"])
                at += 1
            found.append((span["ts"], span["name"], inside))
    found.sort(key=lambda item: item[0])
    return found


def measure(memory):
    """(bytes left, most held beyond those while running) of one operator's memory events."""
    live, peak, total = {}, 0, 0
    for event in memory:
        size = (abs(event["Bytes"]) + BLOCK_BYTES - 1) // BLOCK_BYTES * BLOCK_BYTES
        if event["Bytes"] > 0:
            live[event["Addr"]] = size
            total += size
            peak = max(peak, total)
        elif event["Addr"] in live:
            total -= live.pop(event["Addr"])
    return total, peak - total


def summarize(path, index, labels):
    events = read_events(path)
    table = collections.defaultdict(lambda: [0, 0, 0])
    for _, name, memory in operators(events, *iteration_window(events, index), labels):
        left, extra = measure(memory)
        row = table[name.replace("autograd::engine::evaluate_function: ", "")]
        row[0] += 1
        row[1] += left
        row[2] = max(row[2], extra)
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cpu")
    parser.add_argument("cuda")
    parser.add_argument("--iteration", type=int, default=1, help="counted from 0 (default %(default)s)")
    parser.add_argument("--annotations", action="store_true", help="also treat annotations, such as Optimizer.step, as operators")
    args = parser.parse_args()
    labels = ("cpu_op", "user_annotation") if args.annotations else ("cpu_op",)
    cpu, cuda = summarize(args.cpu, args.iteration, labels), summarize(args.cuda, args.iteration, labels)
    print(f"{'operator':52} {'runs':>11} {'left MiB: CPU':>14} {'CUDA':>9} {'held MiB: CPU':>14} {'CUDA':>9}")
    rows = []
    for name in set(cpu) | set(cuda):
        left, right = cpu.get(name, [0, 0, 0]), cuda.get(name, [0, 0, 0])
        if left != right and (left[1:] != right[1:]):
            rows.append((max(abs(left[1] - right[1]), abs(left[2] - right[2])), name, left, right))
    for _, name, left, right in sorted(rows, reverse=True):
        runs = f"{left[0]}/{right[0]}"
        print(f"{name[:52]:52} {runs:>11} {left[1] / MIB:14.2f} {right[1] / MIB:9.2f} {left[2] / MIB:14.2f} {right[2] / MIB:9.2f}")


if __name__ == "__main__":
    main()
