#!/usr/bin/env python3
"""The FLOPs of the operator table against PyTorch's own counter (torch.utils.flop_counter), for products, convolutions and attention at
random shapes, forward and backward.

    python -m eval.operations.flops --python ENV/bin/python [--gpucast PATH] [--gpu h100-80] [--shapes 10] [--only NAME,NAME] [--markdown docs/results/flops.md]
"""

import argparse
import ast
import json
import pathlib
import subprocess
import sys
import tempfile

from eval import page
from eval.jobs import add_gpucast_option
from eval.tables import markdown

SCRIPT = pathlib.Path(__file__).with_name("random_products.py")
PRODUCTS = ("gemm", "convolution", "attention")
COMMAND = "python -m eval.operations.flops --python PYTHON"


def operators():
    """The names in the script's table, which is not imported: it needs torch."""
    for node in ast.parse(SCRIPT.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "OPERATORS":
            return [key.value for key in node.value.keys]
    raise AssertionError(f"no table of operators in {SCRIPT}")


def row(name, options):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "flops"
        script = [options.python, str(SCRIPT), name, str(options.shapes), str(report)]
        command = [options.gpucast, "time", "--gpu", options.gpu, "--format", "json", "--", *script]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return [name, "did not run: " + done.stderr.strip().splitlines()[-1], "", "", ""]
        found = json.loads(done.stdout)
        counted = float(report.read_text())
    here = sum(part["flops"] for part in found["by_kind"] if part["name"] in PRODUCTS)
    ratio = f"{here / counted:.4f}" if counted else "-"
    return [name, f"{counted / 1e9:.3f}", f"{here / 1e9:.3f}", ratio, f"{100 * found['unknown_share']:.1f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    add_gpucast_option(parser)
    parser.add_argument("--gpu", default="h100-80")
    parser.add_argument("--shapes", type=int, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--markdown", type=pathlib.Path, help="a page to write the table into")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else operators()
    rows = []
    for name in names:
        print(name, file=sys.stderr, flush=True)
        rows.append(row(name, options))
    text = markdown(["operator", "PyTorch GFLOP", "gpucast GFLOP", "ratio", "unknown %"], rows)
    print(text)
    if options.markdown:
        page.write(options.markdown, COMMAND, f"{len(rows)} operators, {options.shapes} shapes each", {"flops": text})


if __name__ == "__main__":
    main()
