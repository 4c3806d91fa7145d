#!/usr/bin/env python3
"""The time of `gpucast time` for a step of 100,000 launches, and for a table of all cards.

    ENV/bin/python bench/time_speed.py --gpucast build/release/bin/gpucast

ENV has PyTorch: examples/train_resnet50.py is captured, and its observed step's work is repeated until there are 100,000 launches. The
answer is checked: the GPU's time grows by the same factor. Returns non-zero only if it does not; times are for reading.
"""

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "examples/train_resnet50.py"
LAUNCHES = 100_000


def repeated(lines, times):
    """The capture's lines with the observed step's operators and work `times` times, one after the other."""
    (record,) = [json.loads(line) for line in lines if line.startswith('{"record": "operators"')]
    first, last = record["marks"]
    calls = [json.loads(line) for line in lines if line.startswith('["operator",')]
    length = max(start + duration for _, _, _, start, duration in calls) + 1
    work, out, mark, done = [], [], 0, False
    for line in lines[:-1]:
        if line.startswith('["operator",'):
            if not done:
                done = True
                out += [json.dumps([*call[:3], call[3] + n * length, call[4]]) for n in range(times) for call in calls]
            continue
        if line.startswith('["vgpu_mark",'):
            mark = json.loads(line)[1]
            if mark == last:
                timed = [json.loads(line) for line in work]
                out += [
                    json.dumps([*line[:-1], line[-1] + n * length] if line[0] != "thread" else line)
                    for n in range(1, times)
                    for line in timed
                ]
        if first <= mark < last and line.startswith(('["kernel",', '["call",', '["memcpy",', '["memset",', '["thread",')):
            work.append(line)
        out.append(line)
    out.append(json.dumps({"record": "eof", "lines": len(out)}))
    return out, len([line for line in work if not line.startswith('["thread"')])


def run(words):
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), time.perf_counter() - start, cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpucast", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        capture, large = Path(folder) / "train.gpucast", Path(folder) / "large.gpucast"
        words = [options.gpucast, "run", "-o", capture, "--", sys.executable, SCRIPT, "--batch", "32"]
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
        with gzip.open(capture, "rt") as file:
            lines = file.read().splitlines()
        _, work = repeated(lines, 1)
        times = -(-LAUNCHES // work)
        text, _ = repeated(lines, times)
        with gzip.open(large, "wt", compresslevel=1) as file:
            file.write("\n".join(text) + "\n")
        base = [options.gpucast, "time", "--format", "json"]
        small, _, _ = run([*base, capture, "--gpu", "a100-80"])
        one, wall_one, cpu_one = min((run([*base, large, "--gpu", "a100-80"]) for _ in range(5)), key=lambda row: row[1])
        table, wall_all, cpu_all = min((run([*base, large, "--gpu", "all"]) for _ in range(5)), key=lambda row: row[1])
        few, wall_few, _ = min((run([*base, capture, "--gpu", "all"]) for _ in range(5)), key=lambda row: row[1])
    right = abs(one["gpu_ns"] / small["gpu_ns"] / times - 1) < 0.01 and len(table["cards"]) == len(few["cards"])
    print(f"{work * times} launches, one card: {wall_one:.2f} s ({cpu_one:.2f} s CPU), file of {len(text)} lines")
    print(f"the same, {len(table['cards'])} cards: {wall_all:.2f} s ({cpu_all:.2f} s CPU)")
    print(f"{work} launches, {len(few['cards'])} cards: {wall_few:.2f} s")
    print("the GPU's time is the small one's times", times, "as it must be" if right else "NOT")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
