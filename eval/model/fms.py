#!/usr/bin/env python3
"""`gpucast model` compared with fms-acceleration's full fine-tuning of Mistral 7B on one A100 80 GB.

    python -m eval.model.fms --data DIR --python ENV/bin/python

DIR has multi_gpu/runs_fms_acceleration.csv.gz. ENV has the measured releases: torch 2.4.1, transformers 4.48.1. Their trainer adds a token
for padding, so the vocabulary has 32,001 entries.
"""

import argparse
import csv
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from eval import ROOT, jobs

MODEL = "mistralai/Mistral-7B-v0.1"
LENGTH = 4096


def measured(data):
    """{batch: peak allocated} of the runs without plugins."""
    with gzip.open(data / "multi_gpu" / "runs_fms_acceleration.csv.gz", "rt") as file:
        rows = [
            row for row in csv.DictReader(file) if row["model"] == MODEL and row["gpus"] == "1" and row["notes"].endswith("plugin none")
        ]
    found = {int(row["micro_batch"]): re.search(r"peak torch allocated (\d+) B", row["notes"]) for row in rows}
    return {batch: int(peak.group(1)) for batch, peak in sorted(found.items()) if peak}


def predicted(gpucast, python, batch):
    models = json.loads((ROOT / "python/api/gpucast/model/models.json").read_text())["models"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps({**models[MODEL]["config"], "vocab_size": 32001}))
        words = [gpucast, "model", str(path), "--python", python, "--gpu", "a100-80", "--format", "json", "--batch", str(batch)]
        words += ["--seq", str(LENGTH), "--checkpointing", "--optimizer", "adamw_torch"]
        done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout)["report"]["peak"]["allocated_bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--data", type=Path, required=True, help="has multi_gpu/runs_fms_acceleration.csv.gz")
    parser.add_argument("--python", required=True, help="of the environment named above")
    options = parser.parse_args()
    gpucast, python = jobs.find(options.gpucast), os.path.abspath(options.python)
    all_equal = True
    for batch, truth in measured(options.data).items():
        ours = predicted(gpucast, python, batch)
        all_equal = all_equal and ours == truth
        print(f"batch {batch}: measured {truth:,} bytes, gpucast {ours:,}, {ours - truth:+,}", flush=True)
    return 0 if all_equal else 1


if __name__ == "__main__":
    sys.exit(main())
