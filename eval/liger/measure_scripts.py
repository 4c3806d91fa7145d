#!/usr/bin/env python3
"""Liger-Kernel's benchmark scripts on a real card. Each script is unmodified and writes its own rows.

    python measure_scripts.py --root DIR --out DIR [--warm] [--minutes 5] [--repeat_ms 100] COMMIT/SCRIPT ...

ROOT/COMMIT is a checkout of linkedin/Liger-Kernel at this commit, ROOT/packages/RELEASE what this release needs. OUT gets COMMIT-SCRIPT.csv.
With --warm all scripts run side by side and nothing is kept: the compilers' caches are full afterwards. --repeat_ms is the most time that a
measurement repeats its call for; the scripts ask for 400 to 500 ms, which changes the medians little. A script starts while others measure,
and measures when it is alone.
"""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

STARTED = 4  # scripts at a time; one of them measures
CODE = """
import fcntl, os, runpy, sys
import torch._dynamo.config
torch._dynamo.config.cache_size_limit = torch._dynamo.config.recompile_limit = 64
import triton.testing
most, plain = float(os.environ["REPEAT_MS"]), triton.testing.do_bench
turn = open(os.environ["TURN"], "w")
def short(function, warmup=25, rep=100, **options):
    fcntl.flock(turn, fcntl.LOCK_SH if most == 1 else fcntl.LOCK_EX)  # until this script ends
    return plain(function, warmup=min(warmup, most), rep=min(rep, most), **options)
triton.testing.do_bench = short
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_script(args, name, limit_s):
    """A line that says how it went; the rows are in OUT."""
    commit, script = name.split("/")
    root, began = args.root / commit, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="liger_") as folder:
        scripts = pathlib.Path(folder) / "scripts"
        shutil.copytree(root / "benchmark" / "scripts", scripts)
        (scripts.parent / "data").mkdir()
        paths = [scripts, root / "src", root, *sorted((args.root / "packages" / commit).glob("*"))]
        paths += filter(None, [os.environ.get("PYTHONPATH")])
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "TURN": str(args.out / "turn"),
            "REPEAT_MS": "1" if args.warm else str(args.repeat_ms),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        command = [sys.executable, "-c", CODE, str(scripts / f"benchmark_{script}.py"), "--overwrite"]
        problem = ""
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit_s, cwd=scripts)
            if done.returncode:
                problem = (done.stderr.strip() or done.stdout.strip())[-300:]
        except subprocess.TimeoutExpired:
            problem = f"not done within {limit_s:.0f} s"
        written = scripts.parent / "data" / "all_benchmark_data.csv"
        rows = 0
        if written.exists():
            rows = sum(1 for _ in written.open()) - 1
            if not args.warm:
                shutil.copy(written, args.out / f"{commit}-{script}.csv")
    return f"{name}: {rows} rows in {time.monotonic() - began:.0f} s {problem}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--repeat_ms", type=float, default=100)
    parser.add_argument("scripts", nargs="+")
    args = parser.parse_args()
    args.root, args.out = args.root.resolve(), args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * args.minutes
    with concurrent.futures.ThreadPoolExecutor(len(args.scripts) if args.warm else STARTED) as pool:
        left = lambda: max(1.0, deadline - time.monotonic())  # noqa: E731
        for line in pool.map(lambda name: run_script(args, name, left()), args.scripts):
            print(line, flush=True)


if __name__ == "__main__":
    main()
