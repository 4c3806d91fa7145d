#!/usr/bin/env python3
"""The speed of reading a profiler trace, and the extra memory beyond the kept data.

    ENV/bin/python bench/profile_reader.py --gpucast build/release/bin/gpucast --bench build/bench/bin/gpucast_bench

The trace is made of real events: three training iterations of a small network under torch.profiler (or --trace, as export_chrome_trace
writes it), again and again with later times and other ids and addresses, in the profiler's order: operators, memory, Python.
The answers are checked: events of every kind and the sum of all bytes, as counted by Python's json. Returns non-zero if one is wrong or
more than 200 MB of extra memory are used; times are for reading.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_EXTRA_BYTES = 200_000_000

PROFILE = """
import sys
sys.path.insert(0, sys.argv[2])
import drive
drive.import_torch()
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

def block(width):
    return nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())

with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True) as prof:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), *[block(16) for _ in range(16)], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        images, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        prof.step()
prof.export_chrome_trace(sys.argv[1])
"""

# The differences from one turn to the next. Times keep their decimals.
SHIFTED = re.compile(r'"(ts|Ev Idx|External id|Python id|Python parent id|Sequence number|Addr)": (\d+)')


def split_events(text):
    """(the text before the events, the text of each, the text after)."""
    start = text.index('"traceEvents": [') + len('"traceEvents": [')
    end = text.rindex("],")
    decoder, events, at = json.JSONDecoder(), [], start
    while True:
        while text[at] in " \n,":
            at += 1
        if at >= end or text[at] == "]":
            return text[:start], events, text[at:]
        _, behind = decoder.raw_decode(text, at)
        events.append(text[at:behind])
        at = behind


def section(event):
    """The profiler's order of kinds: operators, memory, Python functions; the rest is written once."""
    cat = event.get("cat")
    if event["name"] == "[memory]":
        return 1
    return {"cpu_op": 0, "user_annotation": 0, "fwdbwd": 0, "python_function": 2}.get(cat, 3)


def write_trace(source, path, size_bytes):
    """Writes the long trace and returns its counts."""
    head, texts, tail = split_events(source.read_text())
    events = [json.loads(text) for text in texts]
    sections = [[], [], [], []]
    for text, event in zip(texts, events):
        sections[section(event)].append(text)
    repeated_bytes = sum(len(text) for part in sections[:3] for text in part)
    turns = max(1, round(size_bytes / repeated_bytes))
    times = [event["ts"] for event in events]
    steps = {
        "ts": int(max(times) - min(times)) + 1_000_000,
        "Addr": 1 << 32,
        **{key: 1 + max((e.get("args", {}).get(key) or 0) for e in events) for key in SHIFTED.pattern.split('"')[1][1:-1].split("|")[1:-1]},
    }
    with open(path, "w") as file:
        file.write(head)
        between = "\n  "
        for part in sections[:3]:
            pieces = SHIFTED.split(",\n  ".join(part))  # text, key, number, text, key, number, ..., text
            keys, numbers = pieces[1::3], [int(number) for number in pieces[2::3]]
            for turn in range(turns):
                pieces[1::3] = [f'"{key}": ' for key in keys]
                pieces[2::3] = [str(number + turn * steps[key]) for key, number in zip(keys, numbers)]
                file.write(between + "".join(pieces))
                between = ",\n  "
        file.write("".join(between + text for text in sections[3]) + "\n  " + tail)
    kinds = {"ops": 0, "annotations": 0, "modules": 0, "functions": 0, "memory": 0}
    sum_bytes = 0
    for event in events:
        cat = event.get("cat")
        if event["name"] == "[memory]":
            kinds["memory"] += 1
            sum_bytes += event["args"]["Bytes"]
        elif cat == "python_function":
            kinds["modules" if event["name"].startswith("nn.Module: ") else "functions"] += 1
        elif cat in ("cpu_op", "user_annotation"):
            kinds["ops" if cat == "cpu_op" else "annotations"] += 1
    expected = {name: count * turns for name, count in kinds.items()}
    expected["sum_bytes"] = sum_bytes * turns
    expected["events"] = (len(events) - len(sections[3])) * turns + len(sections[3])
    return expected


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--gpucast", default=str(ROOT / "build/release/bin/gpucast"), help="its virtual GPU lets PyTorch's CUDA build be imported"
    )
    parser.add_argument("--bench", required=True, help="gpucast_bench (-DGPUCAST_BENCH=ON)")
    parser.add_argument("--trace", help="your own trace to repeat")
    parser.add_argument("--size-mb", type=float, default=300)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        source, long = Path(folder) / "small.json", Path(folder) / "long.json"
        if args.trace:
            source = Path(args.trace)
        else:
            command = [sys.executable, "-c", PROFILE, str(source), str(ROOT / "tests/differential")]
            out = subprocess.run(command, env=os.environ | {"GPUCAST_BIN": args.gpucast}, capture_output=True, text=True)
            if out.returncode != 0:
                sys.exit(f"PyTorch could not be profiled:\n{out.stderr}")
        expected = write_trace(source, long, args.size_mb * 1e6)
        command = [args.bench, "--benchmark_filter=BM_ReadProfile", "--benchmark_format=json"]
        out = subprocess.run(command, env=os.environ | {"GPUCAST_BENCH_PROFILE": str(long)}, capture_output=True, text=True, check=True)
        row = json.loads(out.stdout)["benchmarks"][0]
        if row.get("error_occurred"):
            sys.exit(f"{row['name']}: {row['error_message']}")
        answer = {name: int(row[name]) for name in expected}
        if answer != expected:
            sys.exit(f"read {answer}, the trace has {expected}")
        size = long.stat().st_size
        extra_bytes = row["peak_rss_bytes"] - row["kept_bytes"]
        print(f"profiler trace of {size / 1e6:.0f} MB, {expected['events']} events, all of them found")
        print(f"  read                    {row['bytes_per_second'] / 1e6:8.0f} MB a second on one core")
        print(f"  kept                    {row['kept_bytes'] / 1e6:8.0f} MB")
        print(f"  peak memory beyond that {extra_bytes / 1e6:8.0f} MB")
        if extra_bytes > MOST_EXTRA_BYTES:
            sys.exit(f"more than {MOST_EXTRA_BYTES / 1e6:.0f} MB beyond the kept data")


if __name__ == "__main__":
    main()
