#!/usr/bin/env python3
"""The cost of `gpucast run`: importing PyTorch, a script on the virtual GPU without us, the same script with us.

    ENV/bin/python bench/run_overhead.py --gpucast build/release/bin/gpucast

Each case is run in turn, several times, on the Python that runs this benchmark. The answers are checked: the peaks in the report
must be those the script itself reads without us. Returns non-zero only when an answer is wrong; times are for reading.
"""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MIB = 2**20
STEPS = 3
CASES = {
    "ResNet-50, batch 32": ["train_resnet50.py", "--batch", "32"],
    "GPT, bf16": ["train_gpt.py"],
    "MLP": ["train_mlp.py"],
}

# Runs a script (or nothing) on the virtual libraries without a capture: gpucast only loads them.
BARE = """
import importlib.util, os, runpy, sys
library_dir, profile, script = sys.argv[1], sys.argv[2], sys.argv[3:]
sys.path.insert(0, os.path.join(library_dir, "python"))
from gpucast import libraries
build = libraries.TorchBuild(importlib.util.find_spec("torch").submodule_search_locations[0])
with open(profile, "a") as file:
    file.writelines(f"{key} = {value}\\n" for key, value in libraries.library_versions(build.cuda, build.metadata()).items())
libraries.load(build.cuda_major)
sys.path.pop(0)
import torch
if script:
    sys.argv = script
    runpy.run_path(script[0], run_name="__main__")
sys.stdout.flush()
os._exit(0)  # a captured process is ended without tidying up; so is this one, for a fair comparison
"""


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpucast", default=os.environ.get("GPUCAST_BIN", "gpucast"), help="the gpucast command")
    parser.add_argument("--gpu", default="rtx3060")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each case; the median counts (default %(default)s)")
    return parser.parse_args()


def profile_text(args):
    """The virtual card as `gpucast gpus` describes it."""
    table = json.loads(subprocess.run([args.gpucast, "gpus", "--format", "json"], check=True, capture_output=True, text=True).stdout)
    gpu = next(gpu for gpu in table["gpus"] if gpu["id"] == args.gpu)
    major, minor = gpu["compute_capability"].split(".")
    fields = {key: value for key, value in gpu.items() if isinstance(value, (int, str)) and not isinstance(value, bool)}
    for key in ("id", "architecture", "compute_capability", "bandwidth_bytes_per_s"):
        fields.pop(key)
    fields.update(compute_major=major, compute_minor=minor, capacity_bytes=gpu["total_memory_bytes"], enforce_capacity=0)
    return "".join(f"{key} = {value}\n" for key, value in fields.items())


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def timed(command, **kwargs):
    """((wall seconds, CPU seconds), standard output). CPU time is the steadier one on a busy machine."""
    cpu, started = cpu_seconds(), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, **kwargs)
    seconds = time.monotonic() - started, cpu_seconds() - cpu
    if done.returncode not in (0, 1):
        sys.exit(f"run_overhead.py: exit code {done.returncode} of {' '.join(map(str, command))}\n{done.stderr[-3000:]}")
    return seconds, done.stdout


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.library_dir = Path(args.gpucast).resolve().parent.parent / "lib/gpucast"
        if not (self.library_dir / "vgpu").is_dir():
            sys.exit(f"run_overhead.py: no virtual GPU libraries in {self.library_dir}; build gpucast and name it with --gpucast")
        self.profile = profile_text(args)
        (folder / "session.json").write_text(json.dumps({"library_dir": str(self.library_dir)}))

    def bare(self, script):
        profile = self.folder / "profile"
        profile.write_text(self.profile)
        environment = dict(os.environ, GPUCAST_SESSION=str(self.folder), GPUCAST_VGPU_PROFILE=str(profile))
        return timed([sys.executable, "-c", BARE, str(self.library_dir), str(profile), *script], env=environment)

    def captured(self, script):
        command = [self.args.gpucast, "run", "--gpu", self.args.gpu, "--steps", str(STEPS), "--format", "json", "--"]
        return timed([*command, sys.executable, *script])


def peaks_printed(text):
    match = re.search(r"peak memory: ([\d.]+) MiB allocated, ([\d.]+) MiB reserved", text)
    if not match:
        sys.exit(f"run_overhead.py: the script printed no peak memory:\n{text[-2000:]}")
    return match.groups()


def main():
    args = parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="run_overhead_") as folder:
        bench = Bench(args, Path(folder))
        bench.bare([])  # warm: file cache, byte code
        imports = []
        times = {name: ([], []) for name in CASES}
        for _ in range(args.repeat):
            imports.append(bench.bare([])[0])
            for name, (script, *options) in CASES.items():
                command = [str(ROOT / "examples" / script), *options, "--steps", str(STEPS)]
                seconds, text = bench.bare(command)
                times[name][0].append(seconds)
                expected = peaks_printed(text)
                seconds, text = bench.captured(command)
                times[name][1].append(seconds)
                peak = json.loads(text)["peak"]
                found = (f"{peak['allocated_bytes'] / MIB:.1f}", f"{peak['reserved_bytes'] / MIB:.1f}")
                if found != expected:
                    wrong += 1
                    print(f"WRONG {name}: the report says {found} MiB allocated, reserved; the script without us {expected}")

    def middle(runs, kind):
        return statistics.median(run[kind] for run in runs)

    print(f"Python {sys.version.split()[0]}, {STEPS} steps, median of {args.repeat}; wall (CPU) seconds")
    base = [middle(imports, kind) for kind in (0, 1)]
    limit = 3 * base[0] + 2
    print(f"{'import torch alone':22} {base[0]:7.2f} ({base[1]:.2f})   limit for a whole command, 3 x import + 2: {limit:.2f}")
    print(f"{'':22} {'without us':>15} {'with us':>15}   {'the script itself grows by':>26}")
    for name, (without, captured) in times.items():
        plain, whole = ([middle(runs, kind) for kind in (0, 1)] for runs in (without, captured))
        growth = [(whole[kind] - base[kind]) / max(plain[kind] - base[kind], 1e-9) for kind in (0, 1)]
        verdict = "within the limit" if whole[0] <= limit else "over the limit"
        print(
            f"{name:22} {plain[0]:8.2f} ({plain[1]:.2f}) {whole[0]:8.2f} ({whole[1]:.2f}) {growth[0]:16.2f} x ({growth[1]:.2f} x)   {verdict}"
        )
    print("answers: all equal" if wrong == 0 else f"answers: {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
