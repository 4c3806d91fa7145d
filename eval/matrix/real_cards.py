#!/usr/bin/env python3
"""Predict measured runs on real cards from CPU profiles of the same jobs at a small batch, rescaled to the measured one.

    python -m eval.matrix.real_cards --python ENV/bin/python --out /tmp/cards
    python -m eval.matrix.real_cards --python ENV/bin/python --out /tmp/cards --arch cnn --markdown docs/results/cpu-path-accuracy.md

The runs are from the xMem artifact, read as docs/results/accuracy.md says; xMem's own predictions are on the same CPU's profiles
at the full batch. ENV: PyTorch 2.6.0, torchvision 0.21.0 and transformers 4.51.3. Traces are kept in --out.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from eval import page
from eval.jobs import add_gpucast_option
from eval.matrix import run_matrix
from eval.memory import xmem_rows

# The traced batch: small enough for a CPU, and odd, so it divides no size of a model (such a size could be mistaken for the batch).
COMMAND = "python -m eval.matrix.real_cards --python PYTHON --out DIR"
TRACED_BATCH = {"cnn": 7, "transformer": 3}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    xmem_rows.add_data_option(parser)
    parser.add_argument("--out", type=Path, required=True, help="where traces are kept")
    add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable, help="a Python with torch 2.6.0, torchvision 0.21.0 and transformers 4.51.3")
    parser.add_argument("--made", action="store_true", help="make nothing: predict from the files in --out")
    parser.add_argument("--arch", choices=["transformer", "cnn", "all"], default="all")
    parser.add_argument("--min-batch", type=int, default=xmem_rows.KNOWN_LENGTH_BATCH, help="of transformers (default %(default)s)")
    parser.add_argument("--model", help="only this model (part of its name)")
    parser.add_argument("--limit", type=int, help="only the first N rows")
    parser.add_argument("--results", type=Path, help="write one JSON line per row here")
    parser.add_argument("--markdown", type=Path, help="put the tables into this document, between its markers")
    return parser.parse_args()


def make_trace(args, row):
    """One trace for each model, optimizer and place of zero_grad; rows that differ in batch and card share it."""
    place = row["zero_grad_mode"] or 0
    batch = TRACED_BATCH[row["arch"]]
    path = args.out / f"{row['model'].replace('/', '__')}-{row['optimizer'].lower()}-z{place}-b{batch}.json.gz"

    def make(temporary):
        script = [args.python, xmem_rows.WORKLOAD, "--model", row["model"], "--optimizer", row["optimizer"]]
        script += ["--batch", batch, "--zero-grad", place]
        run_matrix.run([args.gpucast, "profile", "--steps", 3, "-o", temporary, "--", *script])

    run_matrix.once(args, path, make)
    return path


def predict(args, row):
    trace = make_trace(args, row)
    words = [args.gpucast, "analyze", trace, "--gpu", xmem_rows.GPU_IDS[row["gpu"]], "--batch", row["batch_size"], "--format", "json"]
    if row["zero_grad_mode"] is None:
        words += ["--without", "cublas"]  # in these runs cuBLAS allocates no workspace
    report = json.loads(run_matrix.run(words, accept=(0, 1)))
    ledger = sum(line["expected_bytes"] for line in report["ledger"])
    context = sum(line["expected_bytes"] for line in report["ledger"] if line["what"] == "CUDA context")
    usable = row["total_gpu_memory"] - ledger
    oom = report["min_capacity_bytes"] is None or report["min_capacity_bytes"] > row["total_gpu_memory"]
    reserved = report["peak"]["reserved_bytes"]
    return {
        "path": row["path"],
        # A run that succeeds on a full card has filled it.
        "peak_reserved_bytes": reserved if oom else min(reserved, usable),
        "peak_allocated_bytes": report["peak"]["allocated_bytes"],
        "ledger_bytes": ledger,
        "growth_bytes": ledger - context,
        "oom": oom,
        "second_run": reserved > usable,
    }


def main():
    args = parse_args()
    rows = xmem_rows.read_rows(args)
    rows = [row for row in rows if row["gpu"] in xmem_rows.GPU_IDS and row["experiment"] != "colab"]
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    kept, results = [], []
    for row in rows:
        try:
            results.append(predict(args, row))
            kept.append(row)
        except (RuntimeError, subprocess.SubprocessError) as error:
            print(f"left out: {xmem_rows.name_of(row)}: {error}", file=sys.stderr)
    if not kept:
        xmem_rows.fail("no row could be predicted")
    agree = sum(row["real_oom"] == result["oom"] for row, result in zip(kept, results))
    verdicts = f"OOM or not: {agree} of {len(kept)} agree ({sum(row['real_oom'] for row in kept)} real OOM)."
    print(xmem_rows.rows_table(kept, results))
    print()
    print(verdicts)
    print(xmem_rows.metrics_table(kept, results, markdown=False))
    if args.results:
        args.results.write_text("".join(json.dumps(result) + "\n" for result in results))
    if args.markdown:
        text = verdicts + "\n\n" + xmem_rows.metrics_table(kept, results, markdown=True)
        page.write(args.markdown, COMMAND, f"{len(kept)} measured runs", {"real cards": text})


if __name__ == "__main__":
    main()
