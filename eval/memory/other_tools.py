#!/usr/bin/env python3
"""One training that was measured on a card, in three variants: what do other tools say of its memory, and what does gpucast say?

    python -m eval.memory.other_tools --python ENV/bin/python [--cookbook DIR] [--out FILE] [--page]

ENV has transformers, accelerate, deepspeed and torchinfo. DIR is a checkout of EleutherAI/cookbook, whose calculator is a script. FILE keeps
the answers; the same command started again asks only for what is missing.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from eval import ROOT, jobs, page
from eval.tables import error, markdown, signed
from eval.truth import measured_jobs

PAGE = ROOT / "docs/results/other-tools.md"
COMMAND = "python -m eval.memory.other_tools --python ENV/bin/python --cookbook DIR"
MEASURED = ROOT / "eval/truth/h200/steps.jsonl.gz"
JOB = {"model": "transformers:gpt2-medium", "batch": 16, "precision": "amp_bf16", "optimizer": "AdamW", "length": 1024}
VARIANTS = {"as it is": {}, "checkpointing": {"checkpointing": True}, "two parts": {"parts": 2}}
ASKED = Path(__file__).parent / "scripts" / "other_tool.py"
SHAPE = ["--num-layers", "24", "--hidden-size", "1024", "--num-attention-heads", "16", "--vocab-size", "50257"]
GIB = 2**30


def gpucast(args, job):
    words = [args.gpucast, "run", "--gpu", "h200", "--steps", "3", "--format", "json", "--", args.python, str(measured_jobs.TRAINING)]
    done = subprocess.run([*words, json.dumps(job)], capture_output=True, text=True)
    report = json.loads(done.stdout)
    return {"bytes": report["peak"]["allocated_bytes"], "release": ""}


def installed(tool):
    def ask(args, job):
        done = subprocess.run([args.python, str(ASKED), tool, json.dumps(job)], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{tool}:\n{done.stderr[-1000:]}")
        return json.loads(done.stdout.splitlines()[-1])

    return ask


def calculator(args, job):
    script = args.cookbook / "calc" / "calc_transformer_mem.py"
    batch = job["batch"] // job.get("parts", 1)
    words = [*SHAPE, "--sequence-length", str(job["length"]), "--batch-size-per-gpu", str(batch), "--num-gpus", "1"]
    words += ["--checkpoint-activations"] if job.get("checkpointing") else []
    done = subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True, check=True)
    found = re.search(r"Per-GPU Memory Required for Training: ([\d.]+) GiB", done.stdout)
    if not found:
        raise SystemExit(f"{script} printed no sum:\n{done.stdout}")
    return {"bytes": float(found[1]) * GIB, "release": ""}


TOOLS = {  # name on the page: how it is asked
    "gpucast run": gpucast,
    "accelerate estimate-memory": installed("accelerate"),
    "DeepSpeed's estimate for ZeRO": installed("deepspeed"),
    "torchinfo": installed("torchinfo"),
    "PyTorch's MemTracker": installed("torch"),
    "EleutherAI's calculator": calculator,
}


def measured_bytes(job):
    _, rows = measured_jobs.trainings(MEASURED)
    return next(row["max_memory_allocated_3_steps_bytes"] for row in rows if row["job"] == job)


def answers(args):
    kept = json.loads(args.out.read_text()) if args.out and args.out.exists() else {}
    for variant, more in VARIANTS.items():
        for name, ask in TOOLS.items():
            if name == "EleutherAI's calculator" and not args.cookbook:
                continue
            key = f"{name}: {variant}"
            if key not in kept:
                kept[key] = ask(args, {**JOB, **more})
                print(key, kept[key]["bytes"], file=sys.stderr, flush=True)
            if args.out:
                args.out.write_text(json.dumps(kept, indent=1))
    return kept


def cell(said, measured):
    if said is None:
        return "cannot say"
    return f"{said / GIB:.2f} " + ("(equal)" if said == measured else f"({signed(error(said, measured), 1)} %)")


def table(found):
    measured = {variant: measured_bytes({**JOB, **more}) for variant, more in VARIANTS.items()}
    lines = [["measured on an H200", *(f"{measured[variant] / GIB:.2f}" for variant in VARIANTS)]]
    for name in TOOLS:
        of_tool = {variant: found.get(f"{name}: {variant}") for variant in VARIANTS}
        if all(of_tool.values()):
            release = next(iter(of_tool.values()))["release"]
            cells = [cell(one["bytes"], measured[variant]) for variant, one in of_tool.items()]
            lines.append([f"{name} {release}".strip(), *cells])
    return markdown(["peak allocated, GiB", *VARIANTS], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--cookbook", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", action="store_true")
    args = parser.parse_args()
    args.gpucast = jobs.find(args.gpucast)
    found = answers(args)
    text = table(found)
    print(text)
    if args.page:
        page.write(PAGE, COMMAND, f"{len(found)} answers on one training", {"tools": text})


if __name__ == "__main__":
    main()
