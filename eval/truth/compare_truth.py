#!/usr/bin/env python3
"""Rows of measure_on_gpu.py compared with the same jobs on the virtual GPU.

    python -m eval.truth.compare_truth --python ENV/bin/python                    # all of eval/truth
    python -m eval.truth.compare_truth --python ENV/bin/python --data DIR --cudnn .venv/cudnn --out /tmp/truth

ENV should hold the measured PyTorch release; a row of another release is compared too, and marked. Runs are kept in --out.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from eval import ROOT, jobs
from eval.tables import error, percent, sizes
from eval.truth import measured_jobs

MIB = 2**20


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data",
        type=Path,
        default=ROOT / "eval/truth",
        help="a file of rows, or a folder of *.jsonl and CARD/jobs.jsonl (default %(default)s)",
    )
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable, help="a Python with the PyTorch that was measured")
    parser.add_argument("--cudnn", default="auto", help="value for `gpucast run --cudnn` (default %(default)s)")
    parser.add_argument("--out", type=Path, help="where results are kept")
    return parser.parse_args()


def read_rows(path):
    files = [path] if path.is_file() else [*sorted(path.glob("*.jsonl")), *sorted(path.glob("*/jobs.jsonl"))]
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines() if line.strip()]
    rows = [row for row in rows if "error" not in row]
    if not rows:
        raise SystemExit(f"compare_truth.py: no rows in {path}; eval/truth/measure_on_gpu.py makes them on a card")
    return rows


def compare_jobs(args, rows, gpu_of):
    asked = [measured_jobs.job_of(row, args.python, gpu_of[row["source"]["card"]], args.cudnn) for row in rows]
    results = jobs.run(args.gpucast, asked, args.out / "results.jsonl" if args.out else None)
    print(f"{'job':62} {'reserved MiB':>12} {'ours':>8} {'%':>7} {'device MiB':>11} {'ours':>8} {'%':>7}")
    errors = []
    for row, job in zip(rows, asked):
        result = results[job["name"]]
        if jobs.problem(result):
            print(f"{job['name']:62} {jobs.problem(result).splitlines()[0]}")
            continue
        report = result["report"]
        real, ours = row["max_memory_reserved_3_steps_bytes"], report["peak"]["reserved_bytes"]
        errors.append(error(ours, real))
        device = ""
        if row.get("device_used_peak_bytes") and row.get("device_used_before_bytes") is not None:
            taken, expected = row["device_used_peak_bytes"] - row["device_used_before_bytes"], report["device"]["expected_bytes"]
            inside = "" if report["device"]["low_bytes"] <= taken <= report["device"]["high_bytes"] else " outside the range"
            device = f"{taken / MIB:11.0f} {expected / MIB:8.0f} {100 * error(expected, taken):+7.2f}{inside}"
        other = "" if report["environment"]["torch"] == row["source"]["torch"] else f"  measured on {row['source']['torch']}"
        print(f"{job['name']:62} {real / MIB:12.0f} {ours / MIB:8.0f} {100 * errors[-1]:+7.2f} {device}{other}")
    if errors:
        middle, _, p90, worst = sizes(errors)
        print(f"reserved: {len(errors)} jobs, median {percent(middle)} %, 90th percentile {percent(p90)} %, worst {percent(worst)} %")


def virtual_rows(args, card, part):
    """The same part, measured on the virtual GPU."""
    with tempfile.TemporaryDirectory(prefix="compare_truth_") as folder:
        result = Path(folder) / "rows.json"
        words = [args.gpucast, "run", "--gpu", card, "--cudnn", args.cudnn, "--steps", "999999", "--"]
        words += [args.python, str(measured_jobs.MEASURE), "--part", part, "--minutes", "10", "--result", str(result)]
        done = subprocess.run(words, capture_output=True, text=True)
        if not result.exists():
            raise SystemExit(f"compare_truth.py: {part} on {card}: {done.stderr[-2000:]}")
        return json.loads(result.read_text())


def compare_convolutions(real, ours):
    names = [f"{name}_workspace_bytes" for name in ("forward", "backward_data", "backward_filter")]
    equal = near = count = 0
    for measured, asked in zip(real["problems"], ours["problems"]):
        for name in names:
            if name not in measured or name not in asked:
                continue
            count += 1
            equal += measured[name] == asked[name]
            near += abs(measured[name] - asked[name]) <= 2 * MIB
            if abs(measured[name] - asked[name]) > 2 * MIB:
                case = {key: value for key, value in measured.items() if not key.endswith("_bytes")}
                print(f"  {name.split('_workspace')[0]} {case}: {measured[name] / MIB:.1f} MiB, ours {asked[name] / MIB:.1f}")
    print(f"convolution workspaces: {equal} of {count} equal, {near} within 2 MiB")


def main():
    args = parse_args()
    args.gpucast = jobs.find(args.gpucast)
    if args.cudnn not in ("auto", "ask", "off"):
        args.cudnn = str(Path(args.cudnn).resolve())
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
    rows, gpu_of = read_rows(args.data), {gpu["name"]: gpu["id"] for gpu in jobs.gpus(args.gpucast)}
    unknown = sorted({row["source"]["card"] for row in rows} - set(gpu_of))
    if unknown:
        print(f"left out, not in `gpucast gpus`: {', '.join(unknown)}", file=sys.stderr)
    rows = [row for row in rows if row["source"]["card"] in gpu_of]
    compare_jobs(args, [row for row in rows if row["part"] == "job"], gpu_of)
    for row in rows:
        gpu = gpu_of[row["source"]["card"]]
        if row["part"] == "convolutions":
            if row["source"].get("cudnn_device_json"):
                print(f"{gpu}: cuDNN's own properties of the card: {json.dumps(row['source']['cudnn_device_json'])}")
            compare_convolutions(row, virtual_rows(args, gpu, "convolutions")[0])
        if row["part"] == "allocator":
            same = row["reserved_changes"] == virtual_rows(args, gpu, "allocator")[0]["reserved_changes"]
            print(f"{gpu}: allocator sequence of {row['count']}: {'equal' if same else 'DIFFERENT'}")
        if row["part"] == "context":
            for step in row["steps"]:
                if "error" not in step:
                    taken = step["mem_get_info_used_bytes"] - step["reserved_bytes"]
                    print(f"{gpu}: outside the allocator after {step['after']:24} {taken / MIB:8.0f} MiB")


if __name__ == "__main__":
    main()
