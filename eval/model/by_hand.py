#!/usr/bin/env python3
"""`gpucast model` compared with the same training written by hand with transformers' Trainer: scripts/by_hand.py.

    python -m eval.model.by_hand --python ENV/bin/python --out OUT [--only 'gpt2|vit'] [--train full,lora]

ENV has torch, transformers, accelerate, peft and bitsandbytes. Each training runs twice: by `gpucast model`, and by hand under `gpucast run`
(fsdp: four ranks under torchrun). Peak allocated and peak reserved must be equal to the byte. OUT keeps a line for each; what it has is
not run again. --page renews docs/results/model.md.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

from eval import ROOT, jobs, page

SCRIPT = Path(__file__).parent / "scripts" / "by_hand.py"
ALL = (
    "openai-community/gpt2", "Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-0.6B", "meta-llama/Llama-3.2-1B", "mistralai/Mistral-7B-v0.1", "google/gemma-3-270m",
    "google/gemma-2-2b", "microsoft/phi-1_5", "allenai/OLMoE-1B-7B-0924", "google-bert/bert-base-uncased", "google-t5/t5-small",
    "google/vit-base-patch16-224", "openai/whisper-small",
)  # fmt: skip
TRAININGS = {
    "full": ALL,
    "lora": tuple(name for name in ALL if "OLMoE" not in name),
    "qlora": ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-0.6B", "meta-llama/Llama-3.2-1B", "microsoft/phi-1_5"),
    "fsdp": ("openai-community/gpt2", "Qwen/Qwen2.5-0.5B", "meta-llama/Llama-3.2-1B", "google/gemma-3-270m"),
}
RANKS = 4


def report_of(words, folder):
    """(the report, CPU seconds, seconds)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(words)}\n{done.stderr[-3000:]}")
    report = json.loads(done.stdout)
    return report.get("report", report), round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)


def both(gpucast, python, name, train, folder):
    words = [gpucast, "model", name, "--batch", "2", "--gpu", "a100-80", "--format", "json", "--python", python]
    words += ["--gpus", str(RANKS), "--fsdp"] if train == "fsdp" else ["--train", train]
    model, model_s = report_of(words, folder)
    launcher = [str(Path(python).with_name("torchrun")), "--nproc-per-node", str(RANKS)] if train == "fsdp" else [python]
    gpus = ["--gpus", str(RANKS)] if train == "fsdp" else []
    hand, hand_s = report_of(
        [gpucast, "run", "--gpu", "a100-80", "--format", "json", *gpus, "--", *launcher, str(SCRIPT), name, train], folder
    )
    figures = {f"{kind}_bytes": [one["peak"][f"{kind}_bytes"] for one in (model, hand)] for kind in ("allocated", "reserved")}
    return {"model": name, "train": train, **figures, "cpu_s": [model_s, hand_s]}


def line_text(row):
    pairs = [row[f"{kind}_bytes"] for kind in ("allocated", "reserved")]
    sizes = " ".join(f"{model:>15,} {'=' if model == hand else f'not {hand:,}'}" for model, hand in pairs)
    return f"{row['model']:32} {row['train']:6} {sizes}   {row['cpu_s'][0]:6.1f} s of CPU, by hand {row['cpu_s'][1]:6.1f} s"


def page_table(rows):
    lines = ["| model | training | peak allocated | peak reserved | by hand |", "|---|---|---:|---:|---|"]
    for row in rows:
        (allocated, its_allocated), (reserved, its_reserved) = row["allocated_bytes"], row["reserved_bytes"]
        equal = (allocated, reserved) == (its_allocated, its_reserved)
        hand = "equal" if equal else f"{its_allocated:,} and {its_reserved:,}"
        lines.append(f"| {row['model']} | {row['train']} | {allocated:,} | {reserved:,} | {hand} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", required=True, help="of the environment named above")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--only", default="", help="models whose names match")
    parser.add_argument("--train", default=",".join(TRAININGS), help="some of these, with commas between them")
    parser.add_argument("--page", action="store_true", help="renew the page of results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = options.out / "by_hand.jsonl"
    rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    done = {(row["model"], row["train"]) for row in rows}
    gpucast, python = jobs.find(options.gpucast), os.path.abspath(options.python)
    for train in options.train.split(","):
        for name in TRAININGS[train]:
            if (name, train) in done or not re.search(options.only, name):
                continue
            rows.append(both(gpucast, python, name, train, options.out))
            print(line_text(rows[-1]), flush=True)
            with results.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    equal = [row for row in rows if all(len(set(row[key])) == 1 for key in ("allocated_bytes", "reserved_bytes"))]
    allocated = [row for row in rows if len(set(row["allocated_bytes"])) == 1]
    print(
        f"\n{len(rows)} trainings of {len({row['model'] for row in rows})} models: peak allocated equal in {len(allocated)}, both peaks in {len(equal)}"
    )
    if options.page:
        words = f"{len(rows)} trainings of {len({row['model'] for row in rows})} models, batch 2 a card"
        rows.sort(key=lambda row: (list(TRAININGS).index(row["train"]), ALL.index(row["model"])))
        command = "python -m eval.model.by_hand --python ENV/bin/python --out OUT"
        page.write(ROOT / "docs/results/model.md", command, words, {"by hand": page_table(rows)})
    return 0 if len(equal) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
