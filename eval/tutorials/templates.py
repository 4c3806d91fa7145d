#!/usr/bin/env python3
"""The matrix products that torch.compile chooses among (cuBLAS and inductor's templates), compared with logs of its autotuner on real cards.

    python -m eval.tutorials.templates --python ENV/bin/python [--gpucast BIN]

LOGS has what authors of PyTorch have published. ENV has torch and triton: Triton 3.3 or later has the persistent templates. Kernels are matched
by their template, tile, stages and warps.
"""

import argparse
import os
import pathlib
import re
import subprocess
import tempfile

from eval import jobs
from eval.tables import error, markdown, signed

HERE = pathlib.Path(__file__).resolve().parent
# (source, card, arguments of compile_product.py, {(template, BLOCK_M, BLOCK_N, BLOCK_K, num_stages, num_warps): ms}); "mm" is cuBLAS.
LOGS = (
    (
        "pytorch/pytorch 156477",
        "h100-80",
        ("4096", "3008", "2048", "float16"),
        {
            ("mm",): 0.0721,
            ("triton_mm_persistent_tma", 256, 128, 64, 4, 8): 0.0757,
            ("triton_mm_persistent_tma", 128, 256, 64, 3, 8): 0.0764,
        },
    ),
    (
        "pytorch/pytorch 159982",
        "b200",
        ("3840", "1152", "49136", "bfloat16", "--a-transposed", "--row-stride", "49152"),
        {
            ("mm",): 0.3848,
            ("triton_mm", 128, 128, 32, 3, 4): 0.6288,
            ("triton_mm", 128, 64, 32, 3, 4): 0.6299,
            ("triton_mm", 128, 128, 64, 3, 4): 0.6728,
        },
    ),
)
LINE = re.compile(r"^\s*(?P<name>mm|triton_\w+?)(_\d+)? (?P<ms>[\d.]+) ms [\d.]+%(?P<rest>.*)$")
SETTINGS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages", "num_warps")


def times_in(text):
    """{(template, settings...): ms} of an autotuner's log."""
    found = {}
    for line in text.splitlines():
        match = LINE.match(line)
        if match:
            settings = dict(re.findall(r"(\w+)=(\d+)", match["rest"]))
            key = (match["name"], *(int(settings[name]) for name in SETTINGS if name in settings))
            found[key] = float(match["ms"])
    return found


def log_of(options, card, arguments):
    program = [os.path.abspath(options.python), str(HERE / "compile_product.py"), *arguments]
    with tempfile.TemporaryDirectory() as folder:
        command = [jobs.find(options.gpucast), "run", "--warp", "--gpu", card, "--", *program]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    jobs.add_gpucast_option(parser)
    options = parser.parse_args()
    rows = []
    for source, card, arguments, published in LOGS:
        found = times_in(log_of(options, card, arguments))
        sizes = " x ".join(arguments[:3])
        for kernel, ms in published.items():
            here = found.get(kernel)
            shown = ["-", "-"] if here is None else [f"{here:.4f}", signed(error(here, ms), 1)]
            rows.append([source, card, sizes, kernel[0], " ".join(map(str, kernel[1:])), f"{ms:.4f}", *shown])
    print(
        markdown(
            ["source", "card", "m x k x n", "kernel", "tile m, n, k, stages, warps", "measured ms", "gpucast ms", "error %"], rows, words=5
        )
    )


if __name__ == "__main__":
    main()
