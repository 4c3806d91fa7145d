#!/usr/bin/env python3
"""One job many times, to its end, under freed_memory.c: how many runs fail, and what writes to freed memory.

repeat.py --gpucast build/release/bin/gpucast --python ENV/bin/python --runs 50 [--ranks 8]

The job is torchtitan's llama3_debugmodel: its steps are CUDA graphs, its forward is compiled, each rank has several threads."""

import argparse
import os
import re
import subprocess
import tempfile
from pathlib import Path

from jobs import make_assets, titan

HERE = Path(__file__).resolve().parent
LEAST_BLOCKS = 1000  # of a process that imported PyTorch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpucast", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    options.gpucast = str(Path(options.gpucast).resolve())
    with tempfile.TemporaryDirectory(prefix="repeat-") as name:
        folder = Path(name)
        make_assets(folder, options.python)
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", folder / "freed.so", HERE / "freed_memory.c", "-ldl", "-lpthread"], check=True
        )
        failed = sum(run(options, folder, number) for number in range(1, options.runs + 1))
        log = (folder / "freed.log").read_text()
    processes = [int(blocks) for blocks in re.findall(r"^\d+: (\d+) freed blocks", log, re.MULTILINE)]
    writes = re.findall(r"^.* of a freed block .*$", log, re.MULTILINE)
    checked = sum(blocks >= LEAST_BLOCKS for blocks in processes)
    print(
        f"{options.runs} runs of {options.ranks} ranks: {failed} failed; {checked} processes checked, {len(writes)} writes to freed memory"
    )
    print("\n".join(writes))


def run(options, folder, number):
    """Whether the run failed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "PATH": f"{Path(options.python).absolute().parent}:{os.environ['PATH']}",
        "LD_PRELOAD": str(folder / "freed.so"),
        "FREED_MEMORY_LOG": str(folder / "freed.log"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no processes for it: eight ranks would have too many
    }
    words = [options.gpucast, "run", "--gpu", "h100-80", "--until-end", "--", *titan(options.ranks, "--training.steps", "4")]
    done = subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(f"run {number}: exit code {done.returncode}", flush=True)
    if done.returncode != 0:
        print(done.stdout[-3000:])
    return done.returncode != 0


if __name__ == "__main__":
    main()
