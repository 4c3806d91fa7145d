#!/usr/bin/env python3
"""Events a second of the simulated allocator, and of PyTorch's own on the virtual GPU, on the same history in the same run.

    ENV/bin/python bench/replay_speed.py --gpucast build/release/bin/gpucast --bench build/bench/bin/gpucast_bench

The answers are checked: both must end with the same peaks. PyTorch is called from Python; the cost of an empty Python call is
measured and subtracted. Also: the growth of the cost to ten million events, and the memory of a replay per event.
Returns non-zero only when an answer is wrong; times are for reading.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EVENTS = 100_000

# Feeds an event file to PyTorch's allocator: sizes and ids are looked up before the clock starts.
DRIVE = """
import ctypes, json, os, sys, time
sys.path.insert(0, sys.argv[1])
import drive
drive.import_torch()
import torch
torch.cuda.init()
ops, n = [], 0
with open(sys.argv[2]) as file:
    for line in file:
        words = line.split()
        ops.append((int(words[1]), int(words[2]) if words[0] == "a" else -1))
stream = torch.cuda.current_stream().cuda_stream

def run(alloc, free):
    blocks = {}
    start = time.perf_counter()
    for name, size in ops:
        if size >= 0:
            blocks[name] = alloc(size, stream)
        else:
            free(blocks.pop(name))
    return time.perf_counter() - start

empty = min(run(lambda size, stream: 1, lambda block: None) for _ in range(3))
torch.cuda.reset_peak_memory_stats()
real = run(torch._C._cuda_cudaCachingAllocator_raw_alloc, torch._C._cuda_cudaCachingAllocator_raw_delete)
stats = torch.cuda.memory_stats()
print(json.dumps({"seconds": real - empty, "python_seconds": empty, "torch": torch.__version__,
                  "peak_allocated": stats["allocated_bytes.all.peak"], "peak_reserved": stats["reserved_bytes.all.peak"]}))
sys.stdout.flush()
os._exit(0)
"""


def write_history(path):
    """Training-like requests: some 300 blocks in use, of 200 sizes."""
    rng = random.Random(1)
    sizes = [int(2 ** rng.uniform(9, 26)) for _ in range(200)]
    live, next_id = [], 0
    with open(path, "w") as file:
        for _ in range(EVENTS):
            if not live or rng.random() < (0.6 if len(live) < 300 else 0.4):
                file.write(f"a {next_id} {rng.choice(sizes)} 0\n")
                live.append(next_id)
                next_id += 1
            else:
                index = len(live) - 1 - rng.randrange(min(len(live), 8)) if rng.random() < 0.75 else rng.randrange(len(live))
                live[index], live[-1] = live[-1], live[index]
                file.write(f"f {live.pop()}\n")


def run_bench(bench, name, events):
    command = [bench, f"--benchmark_filter={name}", "--benchmark_format=json"]
    out = subprocess.run(command, env=os.environ | {"GPUCAST_BENCH_EVENTS": str(events)}, capture_output=True, text=True, check=True)
    rows = json.loads(out.stdout)["benchmarks"]
    for row in rows:
        if row.get("error_occurred"):
            sys.exit(f"{row['name']}: {row['error_message']}")
    return rows


def peak_rss_bytes(command):
    """A command's peak memory, by the kernel's count."""
    script = "import resource,subprocess,sys; subprocess.run(sys.argv[1:],check=True,stdout=subprocess.DEVNULL);"
    script += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss*1024)"
    return int(subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpucast", required=True)
    parser.add_argument("--bench", required=True, help="gpucast_bench (-DGPUCAST_BENCH=ON)")
    args = parser.parse_args()
    gpucast, bench = str(Path(args.gpucast).resolve()), str(Path(args.bench).resolve())

    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "history.events.txt"
        write_history(events)
        ours = run_bench(bench, "BM_ReplayFile", events)[0]
        command = [sys.executable, "-c", DRIVE, str(ROOT / "tests/differential"), str(events)]
        out = subprocess.run(command, env=os.environ | {"GPUCAST_BIN": gpucast}, capture_output=True, text=True)
        if out.returncode != 0:
            sys.exit(f"PyTorch's allocator could not be driven:\n{out.stderr}")
        real = json.loads(out.stdout.splitlines()[-1])
        replay = json.loads(
            subprocess.run(
                [gpucast, "replay", str(events), "--torch-version", real["torch"], "--format", "json"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )["replays"][0]

        if [replay["peak"][k] for k in ("allocated_bytes", "reserved_bytes")] != [real["peak_allocated"], real["peak_reserved"]]:
            sys.exit(f"the peaks differ: {replay['peak']}, PyTorch {real}")
        ours_per_s, real_per_s = ours["items_per_second"], EVENTS / real["seconds"]
        print(f"{EVENTS} events, the same peaks ({real['peak_allocated']} B allocated, {real['peak_reserved']} B reserved)")
        print(f"  simulated               {ours_per_s / 1e6:8.2f} million events a second")
        print(f"  PyTorch {real['torch']:<16}{real_per_s / 1e6:8.2f} million events a second, the virtual GPU and Python's call included")
        print(f"  ratio                   {ours_per_s / real_per_s:8.1f}")

        rows = run_bench(bench, "BM_Replay/", events)
        first = rows[0]["items_per_second"]
        for row in rows:
            count = int(row["name"].split("/")[1])
            per_s = row["items_per_second"]
            print(f"  {count:>10} events      {per_s / 1e6:8.2f} million events a second ({first / per_s:.2f} x the cost of the shortest)")

        small, large = Path(folder) / "small.txt", Path(folder) / "large.txt"
        text = events.read_text()
        small.write_text("a 0 512 0\nf 0\n")
        with open(large, "w") as file:  # the history ten times over, each time with ids of its own
            for turn in range(10):
                live = set()
                for line in text.splitlines():
                    kind, name, *rest = line.split()
                    name = str(int(name) + turn * EVENTS)
                    (live.add if kind == "a" else live.discard)(name)
                    file.write(" ".join([kind, name, *rest]) + "\n")
                file.writelines(f"f {name}\n" for name in sorted(live, key=int))
        count = large.read_text().count("\n")
        grown = peak_rss_bytes([gpucast, "replay", str(large)]) - peak_rss_bytes([gpucast, "replay", str(small)])
        print(f"  memory of a replay      {grown / count:8.1f} bytes an event ({count} events)")
        if grown / count > 64:
            sys.exit("more than 64 bytes an event")


if __name__ == "__main__":
    main()
