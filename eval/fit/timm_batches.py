"""`gpucast fit` compared with the batches that timm's benchmark found on an RTX 3090.

    python -m eval.fit.timm_batches --data DIR --python ENV/bin/python [--models 60] [--seed 1] --out OUT [--page]

timm's benchmark begins with a batch of 512 and takes the next smaller one of its list until no step runs out of memory. So a row says two
things: its batch runs, and the next larger one does not. `fit` brackets a row if it says the same of both. DIR has timm_benchmarks; ENV has
PyTorch with its cuDNN, and timm 0.6 (the rows are of 2022). Rows stay in OUT, so a run that was interrupted goes on.
"""

import argparse
import csv
import json
import os
import random
import subprocess
from pathlib import Path

from eval import page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/results/fit.md"
TABLE = "benchmark-train-amp-{layout}-pt112-cu113-rtx3090.csv"
# Before CUDA 11.7 a context held all of PyTorch's kernels, "more than 1000 MB" (pytorch/pytorch issue 107667, 2023-08-28). The rows are of
# CUDA 11.3; gpucast's figures are of releases that load kernels when they are used.
ALL_KERNELS_BYTES = 1000 << 20
BATCHES = [512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8]


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layout", choices=["nchw", "nhwc"], default="nchw")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", action="store_true", help="renew docs/results/fit.md")
    return parser.parse_args()


def drawn(args):
    """Rows whose next larger batch did not fit, drawn by seed."""
    with open(args.data / "timm_benchmarks" / TABLE.format(layout=args.layout), encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if 8 <= int(float(row["train_batch_size"])) < 512]
    rows = [row for row in rows if int(float(row["train_batch_size"])) in BATCHES]
    return random.Random(args.seed).sample(sorted(rows, key=lambda row: row["model"]), min(args.models, len(rows)))


def ask(args, row):
    batch = int(float(row["train_batch_size"]))
    larger = BATCHES[BATCHES.index(batch) - 1]
    command = [args.python, "timm_step.py", "--model", row["model"], "--batch", str(batch), "--image", row["train_img_size"]]
    command += ["--layout", args.layout, "--mode", "train"]
    words = [os.environ.get("GPUCAST_BIN", "gpucast"), "fit", "--gpu", "rtx3090", "--format", "json", "--cache", args.out / "cache"]
    words += ["--vary", f"batch=--batch:{batch}..{larger}/{larger - batch}", "--", *command]
    done = subprocess.run(words, cwd=ROOT / "eval/steps/models", env={**os.environ, "TIMM_FUSED_ATTN": "0"}, capture_output=True, text=True)
    out = {"model": row["model"], "layout": args.layout, "batch": batch, "larger": larger, "image": int(row["train_img_size"])}
    if done.returncode > 1:
        return {**out, "problem": done.stderr.strip().split("\n")[0]}
    answer = json.loads(done.stdout)["answers"][0]
    needs = {run["values"]["batch"]: run for run in answer["runs"]}
    for name, value in (("fitted", batch), ("too_large", larger)):
        run = needs.get(value, {})
        out[name] = {key: run.get(key) for key in ("verdict", "peak_reserved_bytes", "min_capacity_bytes", "problem") if run.get(key)}
    out["capacity_bytes"] = answer["capacity_bytes"]
    return out


def is_bracketed(row, more_bytes=0):
    def fits(name):
        need = row.get(name, {}).get("min_capacity_bytes")
        return need is not None and need + more_bytes <= row["capacity_bytes"]

    return fits("fitted") and not fits("too_large")


def over(row, name):
    """How much more than the card the smallest card for this batch has, in per cent."""
    need = row.get(name, {}).get("min_capacity_bytes")
    return f"{100 * (need / row['capacity_bytes'] - 1):+.1f} %" if need else "-"


def tables(rows):
    ran = [row for row in rows if "problem" not in row]
    good = [row for row in ran if is_bracketed(row)]
    with_kernels = [row for row in ran if is_bracketed(row, ALL_KERNELS_BYTES)]
    share = 100 / max(len(ran), 1)
    all_right = [mib for mib in range(0, 2001, 20) if all(is_bracketed(row, mib << 20) for row in ran)]
    lines = [
        f"With the context of CUDA 11.3, which holds {ALL_KERNELS_BYTES >> 20} MiB more, {len(with_kernels)} of {len(ran)} models are bracketed "
        f"({share * len(with_kernels):.0f} %); with that of PyTorch 2.14, {len(good)} ({share * len(good):.0f} %), and each miss is a next "
        "batch that would run on today's PyTorch. "
        + (f"All are bracketed with {all_right[0]} to {all_right[-1]} MiB more." if all_right else ""),
    ]
    if len(ran) < len(rows):
        lines.append(
            f"{len(rows) - len(ran)} did not run: " + "; ".join(f"{row['model']}: {row['problem']}" for row in rows if "problem" in row)
        )
    lines += ["", "Not bracketed with the context of PyTorch 2.14:", ""]
    lines += ["| model | measured: fits, does not | gpucast says | need over the card with each |", "|---|---|---|---|"]
    for row in sorted((row for row in ran if not is_bracketed(row)), key=lambda row: row["model"]):
        says = f"{row['fitted']['verdict']}, {row.get('too_large', {}).get('verdict', '-')}"
        lines.append(f"| {row['model']} | {row['batch']}, {row['larger']} | {says} | {over(row, 'fitted')}, {over(row, 'too_large')} |")
    return "\n".join(lines)


def main():
    args = parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    journal = args.out / "timm.jsonl"
    done = {row["model"]: row for row in map(json.loads, journal.read_text().splitlines())} if journal.exists() else {}
    rows = []
    for row in drawn(args):
        if row["model"] not in done:
            done[row["model"]] = ask(args, row)
            with open(journal, "a", encoding="utf-8") as file:
                file.write(json.dumps(done[row["model"]]) + "\n")
        rows.append(done[row["model"]])
    text = tables(rows)
    print(text)
    if args.page:
        command = f"python -m eval.fit.timm_batches --data DIR --python ENV/bin/python --models {args.models} --seed {args.seed} --out OUT"
        page.write(PAGE, command, f"{len(rows)} models of timm, trained on an RTX 3090 ({args.layout})", {"timm": text})


if __name__ == "__main__":
    main()
