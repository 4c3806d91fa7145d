"""Kernels' figures as gpucast reads them from an installed PyTorch, compared with NVIDIA's own cuobjdump (package nvidia-cuda-cuobjdump): registers,
static shared memory and stack of every kernel for one card's machine code.

    python -m eval.occupancy.check_registers --cuobjdump .../bin/cuobjdump --wheel .venv/torch-2.6.0/lib/python3.11/site-packages/torch --gpu a100-80 --arch sm_80
"""

import argparse
import collections
import json
import re
import subprocess
import sys
from pathlib import Path

from eval.jobs import add_gpucast_option

FIGURES = ("registers", "static_shared_bytes", "local_bytes")


def ours(options):
    words = [options.gpucast, "occupancy", "--wheel", options.wheel, "--gpu", options.gpu]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    return {row["kernel"]: tuple(row[name] for name in FIGURES) for row in map(json.loads, lines)}


def theirs(options):
    """mangled name -> every (registers, shared, stack) that it has in some library; a name can be in several."""
    found = collections.defaultdict(set)
    # From 9.0 on a kernel's section includes the driver's KiB for each block; the rules of occupancy count that.
    reserved = 1024 if int(options.arch[3:].rstrip("af")) >= 90 else 0
    for library in sorted(Path(options.wheel).glob("lib/libtorch_cuda*.so")):
        words = [options.cuobjdump, "--dump-resource-usage", "--gpu-architecture", options.arch, str(library)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            name = None
            for line in process.stdout:
                if match := re.match(r"\s*Function (\S+):", line):
                    name = match[1]
                elif name and "REG:" in line:
                    figures = dict(re.findall(r"(\w+):(\d+)", line))
                    shared = max(0, int(figures["SHARED"]) - reserved)
                    if not name.startswith("__cuda_sm"):  # a function, not a kernel
                        found[name].add((int(figures["REG"]), shared, int(figures["STACK"])))
                    name = None
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_gpucast_option(parser)
    parser.add_argument("--cuobjdump", required=True)
    parser.add_argument("--wheel", required=True, help="the folder `torch` of an installed PyTorch")
    parser.add_argument("--gpu", default="a100-80")
    parser.add_argument("--arch", default="sm_80", help="the machine code that the card runs")
    options = parser.parse_args()
    mine, reference = ours(options), theirs(options)
    missing = [name for name in reference if name not in mine]
    extra = [name for name in mine if name not in reference]
    different = [name for name, figures in mine.items() if name in reference and figures not in reference[name]]
    equal = len(mine) - len(extra) - len(different)
    print(f"{options.arch}: {len(reference)} kernels by cuobjdump, {len(mine)} by gpucast; {equal} equal in {', '.join(FIGURES)}")
    for what, names in (("not read", missing), ("unknown to cuobjdump", extra), ("different", different)):
        if names:
            print(f"{what}: {len(names)}")
            for name in names[:10]:
                print(f"  {name[:120]} {mine.get(name)} {sorted(reference.get(name, ()))}")
    return 1 if missing or extra or different or not mine else 0


if __name__ == "__main__":
    sys.exit(main())
