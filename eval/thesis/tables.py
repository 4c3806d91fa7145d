#!/usr/bin/env python3
"""The tables of the thesis "Profiling GPU Memory with PyTorch" (I. Niksan, 2020), repeated on the virtual GPU.

    python -m eval.thesis.tables ncf
    python -m eval.thesis.tables resnet50 --gpucast build/release/bin/gpucast --csv eval/thesis/resnet50.csv

Runs the thesis's training jobs (train.py in this folder) under `gpucast run` with the Python that runs this script, reads
`gpucast breakdown --format csv`, and prints the table as Markdown, with the thesis's figures next to ours; --csv also writes it.
Docs: docs/results/thesis-tables.md.
"""

import argparse
import csv
import io
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from eval import ROOT, jobs, page

HERE = Path(__file__).resolve().parent
MB = 1e6  # the thesis's: mf_user_embed.weight, 138493 * 64 * 4 bytes, is 35 of them, but 34 MiB
STEPS = 12  # by then no step brings new addresses
GPU = "rtx3060"  # 28 multiprocessors, like the thesis's GTX 1080 Ti: scratch memory of embeddings' gradients grows with them


def capture(gpucast: str, job: str, batch: int, folder: Path):
    """Runs a job; returns its capture file, and the thesis's counts after the last step."""
    path = folder.resolve() / f"{job}-{batch}.gpucast"
    words = [gpucast, "run", "--gpu", GPU, "--steps", str(STEPS), "-o", str(path), "--"]
    words += [sys.executable, "-m", "eval.thesis.train", job, "--batch", str(batch)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    counts = re.findall(r"^thesis counts (\{.*\})$", done.stderr, re.MULTILINE)
    if not path.exists() or len(counts) < 2:
        raise SystemExit(f"tables.py: the capture failed: {' '.join(words)}\n{done.stderr}")
    last, before = json.loads(counts[-1]), json.loads(counts[-2])
    if {**last, "step": 0} != {**before, "step": 0}:
        print(f"tables.py: {job}, batch {batch}: the counts still grow after {STEPS} steps", file=sys.stderr)
    return path, last


def breakdown(gpucast: str, path: Path, by: str):
    done = subprocess.run([gpucast, "breakdown", str(path), "--by", by, "--format", "csv"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"tables.py: {done.stderr}")
    return list(csv.DictReader(io.StringIO(done.stdout)))


def measure(gpucast: str, job: str, batch: int, folder: Path):
    """Bytes by row of the thesis's table, twice: of the blocks, and as the thesis counts."""
    path, counts = capture(gpucast, job, batch, folder)
    analysis = subprocess.run([gpucast, "analyze", str(path), "--format", "json"], capture_output=True, text=True)
    reserved = json.loads(analysis.stdout)["peak"]["reserved_bytes"]

    def total(category, moment):
        lines = [line for line in breakdown(gpucast, path, "module") if line["category"] == category and line["depth"] == "0"]
        return sum(int(line[f"{moment}_requested_bytes"]) for line in lines)

    tensors = breakdown(gpucast, path, "tensor")

    def by_tensor(category, moment):
        lines = [line for line in tensors if line["category"] == category and line["name"] in counts["gradient_bytes"]]
        return {line["name"]: int(line[f"{moment}_requested_bytes"]) for line in lines}

    weights, gradients = by_tensor("parameters", "end"), by_tensor("gradients", "maximum")
    names = list(counts["gradient_bytes"])
    blocks = {"peak cached": reserved, "total feature map usage": total("activations", "forward_end")}
    counted = {"peak cached": reserved, "total feature map usage": counts["feature_map_bytes"]}
    for out in blocks, counted:
        out["total layer weight usage"] = sum(weights.values())
        out.update((name, weights[name]) for name in names)
    blocks["total layer weight gradient usage"] = sum(gradients.values())
    counted["total layer weight gradient usage"] = sum(counts["gradient_bytes"].values())
    for name in names:
        blocks[f"{name}_grad"] = gradients[name]
        counted[f"{name}_grad"] = counts["gradient_bytes"][name]
    blocks["intermediate gradients"] = total("intermediate_gradients", "maximum")
    counted["intermediate gradients"] = counts["intermediate_gradient_bytes"]
    return blocks, counted


COLUMNS = ["batch", "row", "thesis_mb", "blocks_mb", "blocks_difference_mb", "counted_mb", "counted_difference_mb"]


def table(job: str, gpucast: str):
    """The rows of the table. Rows that the thesis left out as zero are left out if they are zero here, too."""
    with open(HERE / f"thesis_{job}.csv", encoding="utf-8") as file:
        thesis = list(csv.DictReader(file))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for batch in (int(column) for column in thesis[0] if column != "row"):
            figures = {line["row"]: int(line[str(batch)]) for line in thesis}
            blocks, counted = measure(gpucast, job, batch, Path(folder))
            missing = figures.keys() - blocks.keys()
            if missing:
                raise SystemExit(f"tables.py: the capture has no {', '.join(sorted(missing))}")
            for row in blocks:
                ours, theirs = round(blocks[row] / MB), round(counted[row] / MB)
                known = figures.get(row, 0)
                if row in figures or ours or theirs:
                    rows.append(dict(zip(COLUMNS, [batch, row, known, ours, ours - known, theirs, theirs - known])))
    return rows


def markdown(rows) -> str:
    lines = ["| batch | | thesis | blocks | difference | counted as the thesis | difference |", "|--:|---|--:|--:|--:|--:|--:|"]
    for row in rows:
        sign = {column: f"{row[column]:+d}" if row[column] else "0" for column in ("blocks_difference_mb", "counted_difference_mb")}
        cells = {**row, **sign}
        lines.append("| " + " | ".join(str(cells[column]) for column in COLUMNS) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["ncf", "resnet50"], help="table 3, or appendix A")
    jobs.add_gpucast_option(parser)
    parser.add_argument("--csv", metavar="PATH", help="also write the table to this file")
    args = parser.parse_args()
    rows = table(args.table, jobs.find(args.gpucast))
    print(page.opening((f"python -m eval.thesis.tables {args.table}", f"{len(rows)} rows")))
    print("\nAll figures in MB (10^6 bytes), rounded.\n\n" + markdown(rows))
    if args.csv:
        with open(args.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
