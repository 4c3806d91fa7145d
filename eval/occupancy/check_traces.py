#!/usr/bin/env python3
"""Occupancy compared with real cards: every kernel of profiler traces (Kineto) in DIR, which has the folders of ../shared/data. Input: the trace's
figures of a launch (registers, shared memory, block, grid). The result must equal the profiler's on the card.

check_traces.py --gpucast build/release/bin/gpucast --data DIR [--wheel TORCH_FOLDER] [--markdown FILE]

--wheel: the registers of a trace's kernels are looked up in that PyTorch too, by name; it should be the release that made the trace.
"""

import argparse
import collections
import gzip
import json
import subprocess
import sys
from pathlib import Path

from eval.jobs import add_gpucast_option
from eval.tables import markdown

# A trace's card by its deviceProperties -> ours.
CARDS = {"Tesla V100-DGXS-32GB": "v100-32", "NVIDIA H100 80GB HBM3": "h100-80", "NVIDIA B200": "b200"}
CAPABILITY = {"v100-32": (7, 0), "h100-80": (9, 0)}
SHARED_LIMIT_OF_THE_PROFILER = 48 << 10  # of a block: it knows of no kernel that opts in to more, and writes 0 %


def kernels_of(path):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    name = (trace.get("deviceProperties") or [{}])[0].get("name", "")
    kernels = [event for event in trace["traceEvents"] if str(event.get("cat", "")).lower() == "kernel" and "grid" in event.get("args", {})]
    return name, kernels


def ours(gpucast, card, kernels):
    lines = []
    for event in kernels:
        a = event["args"]
        blocks = a["grid"][0] * a["grid"][1] * a["grid"][2]
        threads = a["block"][0] * a["block"][1] * a["block"][2]
        lines.append(
            json.dumps(
                {
                    "blocks": blocks,
                    "block_threads": threads,
                    "registers": a["registers per thread"],
                    "static_shared_bytes": a["shared memory"],
                }
            )
        )
    done = subprocess.run([gpucast, "occupancy", "--gpu", card, "--launches", "-"], input="\n".join(lines), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def written(value):
    """Like the profiler's floats: six digits."""
    return float(f"{value:.6g}")


def equal(event, got):
    a, k = event["args"], got["kineto"]
    blocks = a.get("blocks per SM")
    warps = a.get("warps per SM")
    percent = a.get("est. achieved occupancy %")
    wrong = []
    if blocks is not None and abs(written(blocks) - written(k["blocks_per_sm"])) > 1e-5 * max(1, abs(blocks)):
        wrong.append(f"blocks per SM {blocks}, ours {k['blocks_per_sm']}")
    if warps is not None and abs(written(warps) - written(k["warps_per_sm"])) > 1e-5 * max(1, abs(warps)):
        wrong.append(f"warps per SM {warps}, ours {k['warps_per_sm']}")
    if percent is not None and percent != k["percent"]:
        wrong.append(f"occupancy {percent} %, ours {k['percent']} %")
    return wrong


def registers_of_wheel(gpucast, wheel, card):
    done = subprocess.run([gpucast, "occupancy", "--gpu", card, "--wheel", wheel], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    table = collections.defaultdict(set)
    for line in done.stdout.splitlines():
        row = json.loads(line)
        table[plain(row["name"])].add(row["registers"])
    return table


def plain(name):
    """Demanglers differ in spaces and in how they write literals."""
    for before, after in (("(anonymous namespace)", "@"), ("{unnamed type#", "{lambda#"), (" ", ""), ("'lambda", "{lambda")):
        name = name.replace(before, after)
    return name


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_gpucast_option(arguments)
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--wheel")
    arguments.add_argument("--wheel-gpu", default="h100-80", help="the traces of this card are compared with the wheel")
    arguments.add_argument("--markdown", type=Path)
    options = arguments.parse_args()
    traces = sorted([*options.data.glob("kineto_tb_plugin/*.json.gz"), *options.data.glob("tracelens_h100/*.json.gz")])
    if not traces:
        sys.exit(f"no traces in {options.data}/kineto_tb_plugin and {options.data}/tracelens_h100")
    table = registers_of_wheel(options.gpucast, options.wheel, options.wheel_gpu) if options.wheel else None
    rows, failures, in_wheel = [], 0, collections.Counter()
    for path in traces:
        name, kernels = kernels_of(path)
        card = CARDS.get(name)
        if card is None:
            print(f"{path.name}: no card of ours is called {name!r}: left out")
            continue
        got = ours(options.gpucast, card, kernels)
        wrong = [(event, problem) for event, result in zip(kernels, got, strict=True) if (problem := equal(event, result))]
        opted = sum(event["args"]["shared memory"] > SHARED_LIMIT_OF_THE_PROFILER for event in kernels)
        rows.append((path.name, card, len(kernels), len(kernels) - len(wrong), opted))
        failures += len(wrong)
        print(f"{path.name}: {len(kernels) - len(wrong)} of {len(kernels)} kernels equal on {card}; {opted} opt in to more shared memory")
        for event, problem in wrong[:5]:
            print(f"  {event['name'][:80]}: {'; '.join(problem)}; {event['args']}")
        if table is not None and card == options.wheel_gpu:
            for kernel, registers in sorted({(event["name"], event["args"]["registers per thread"]) for event in kernels}):
                known = table.get(plain(kernel), set())
                outcome = "equal" if registers in known else "differ" if known else "of a library"
                in_wheel[outcome] += 1
                if outcome == "differ" or (not known and kernel.startswith("void at::")):
                    print(f"  {kernel[:150]}: {registers} registers, in the wheel {sorted(known) or 'none'}")
    if table is not None:
        print(f"registers of the wheel, by kernel: {dict(in_wheel)}")
    if options.markdown:
        header = ["trace", "card", "kernels", "equal", "of these, the profiler writes 0 % (more than 48 KiB of shared memory)"]
        options.markdown.write_text(markdown(header, rows, words=len(header), tight=True) + "\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
