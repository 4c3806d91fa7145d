#!/usr/bin/env python3
"""Does the same script get the same answer on a busy machine? Runs `gpucast time` many times, alone and with a program that keeps each core
busy, and prints how far the answers of a script lie apart.

    python -m eval.steps.busy_machine --python ENV/bin/python [--gpucast PATH] [--runs 20] [--only NAME,NAME] [--out FILE] [--page docs/results/host-time.md]

ENV has timm, torchvision and transformers. FILE has a line of JSON for each run; runs in it are not made again.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys

from eval import jobs, page
from eval.tables import error, markdown, signed

FOLDER = pathlib.Path(__file__).parents[1]
COMMAND = "python -m eval.steps.busy_machine --python PYTHON"


def training(model, batch, precision, optimizer):
    job = {"model": model, "batch": batch, "length": 128, "precision": precision, "optimizer": optimizer}
    return [str(FOLDER / "truth/training_job.py"), json.dumps(job), "--steps", "1000"]


SCRIPTS = {  # name: its command, and the card
    "ViT-B, batch 128": ([str(FOLDER / "advise/scripts/vit.py"), "-m", "vit_base_patch16_224", "-b", "128"], "rtx3090"),
    "DenseNet-121, batch 8": (training("torchvision:densenet121", 8, "default", "SGD"), "h200"),
    "BERT-base, batch 4": (training("transformers:bert-base", 4, "amp_bf16", "AdamW"), "h200"),
}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--runs", type=int, default=20, help="of each script, alone and on a busy machine")
    parser.add_argument("--only", type=lambda text: text.split(","), help="beginnings of names")
    parser.add_argument("--out", type=pathlib.Path, help="keep the answers in this file")
    parser.add_argument("--page", type=pathlib.Path, help="renew the table of this page")
    return parser.parse_args()


@contextlib.contextmanager
def busy_cores(count):
    programs = [subprocess.Popen([sys.executable, "-c", "while 1: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def answer(args, command, gpu, busy):
    words = [args.gpucast, "time", "--format", "json", "--gpu", gpu, "--", args.python, *command]
    with busy_cores(os.cpu_count() if busy else 0):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def short(report):
    step = report["step"]
    return {
        "step_ms": step["expected_ns"] / 1e6,
        "low_ms": step["low_ns"] / 1e6,
        "high_ms": step["high_ns"] / 1e6,
        "host_ms": report["host_ns"] / 1e6,
        "bound": report["bound"],
    }


HEADER = (
    "script",
    "machine",
    "runs",
    "step, median ms",
    "least",
    "most",
    "host, median ms",
    "least",
    "most",
    "bound",
    "intervals that hold the median",
)


def table(rows):
    lines = []
    for name in dict.fromkeys(row["script"] for row in rows):
        alone, busy = ([row for row in rows if row["script"] == name and row["busy"] == busy] for busy in (False, True))
        median = statistics.median(row["step_ms"] for row in alone or busy)
        for machine, found in (("alone", alone), ("busy", busy)):
            if found:
                lines.append([name, machine, len(found), *cells(found, median)])
    return markdown(HEADER, lines, words=2)


def cells(found, median_ms):
    """`median_ms`: of the machine without other programs."""
    own = statistics.median(row["step_ms"] for row in found)
    away = f" ({signed(error(own, median_ms), 1)} %)" if own != median_ms else ""
    out = [f"{own:.1f}{away}", *least_and_most(found, "step_ms")]
    out += [f"{statistics.median(row['host_ms'] for row in found):.1f}", *least_and_most(found, "host_ms")]
    bounds = [row["bound"] for row in found]
    out.append(", ".join(f"{bound} {bounds.count(bound)}" for bound in dict.fromkeys(bounds)))
    return [*out, sum(row["low_ms"] <= median_ms <= row["high_ms"] for row in found)]


def least_and_most(found, key):
    values = [row[key] for row in found]
    return f"{min(values):.1f}", f"{max(values):.1f}"


def main():
    args = parse_args()
    args.gpucast = jobs.find(args.gpucast)
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out and args.out.exists() else []
    kept = {(row["script"], row["busy"], row["run"]) for row in rows}
    for number in range(args.runs):
        for name, (command, gpu) in SCRIPTS.items():
            for busy in (False, True):
                if (args.only and not name.startswith(tuple(args.only))) or (name, busy, number) in kept:
                    continue
                rows.append({"script": name, "busy": busy, "run": number, **short(answer(args, command, gpu, busy))})
                if args.out:
                    with args.out.open("a") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
    text = table(rows)
    print(text)
    if args.page:
        page.write(args.page, COMMAND, f"{len(rows)} runs of {len({row['script'] for row in rows})} scripts", {"busy": text})


if __name__ == "__main__":
    main()
