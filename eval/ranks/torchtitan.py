#!/usr/bin/env python3
"""torchtitan's and torchao's published throughput of Llama 3.1 8B on eight cards, in bf16 and float8: what float8 brings, compared with `gpucast time`.

    python -m eval.ranks.torchtitan --python ENV/bin/python --titan FOLDER --cache OUT

ENV has PyTorch with Triton, torchao, and what torchtitan needs, such as .venv/programs. FOLDER has torchtitan 0.2.1: `pip install --no-deps
--target FOLDER torchtitan==0.2.1` (0.3 has no scales for whole tensors). Rank 0 of eight is captured, with the program's own command and made texts;
captures are kept. The H100s of these rows have 96 GB of HBM2e (2.4 TB/s) and a limit of 500 W."""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

from eval import ROOT, jobs, tables
from eval.ranks.ask import ask, server_speed, step_s

LENGTH, RANKS = 8192, 8
HBM2E = {"like": "h100-96", "name": "NVIDIA H100 96GB HBM2e", "bandwidth_bytes_per_s": 2.4e12, "sources": ["pytorch/torchtitan: benchmarks"]}  # fmt: skip
H100, B200 = "h100-hbm2e.json@500W", "b200"
COMPILE = ("--compile.enable",)
FLOAT8 = (*COMPILE, "--model.converters", "quantize.linear.float8")
TENSORWISE = (*FLOAT8, "--quantize.linear.float8.enable_fsdp_float8_all_gather", "--quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp")  # fmt: skip
ROWWISE = (*FLOAT8, "--quantize.linear.float8.recipe_name", "rowwise")
CAPTURES = {
    "bf16, batch 1": (1, COMPILE),
    "tensorwise, batch 1": (1, TENSORWISE),
    "rowwise, batch 1": (1, ROWWISE),
    "eager, batch 2": (2, ()),
    "bf16, batch 2": (2, COMPILE),
    "tensorwise, batch 2": (2, TENSORWISE),
}
TITAN, TORCHAO = "benchmarks/llama3_h100_202412_torchtitan.md", "docs/source/workflows/training.md"
# (source, card, from, to, their tokens a second of one card)
ROWS = [
    (f"torchtitan, {TITAN}", H100, "eager, batch 2", "bf16, batch 2", 5762, 6667),
    (f"torchtitan, {TITAN}", H100, "bf16, batch 2", "tensorwise, batch 2", 6667, 8532),
    (f"torchao, {TORCHAO}", H100, "bf16, batch 1", "tensorwise, batch 1", 6150, 7689.5),
    (f"torchao, {TORCHAO}", H100, "bf16, batch 1", "rowwise, batch 1", 6150, 6768),
    (f"torchao, {TORCHAO}", B200, "bf16, batch 1", "tensorwise, batch 1", 8307.5, 10417),
    (f"torchao, {TORCHAO}", B200, "bf16, batch 1", "rowwise, batch 1", 8307.5, 8640.5),
]


def make_texts(python, folder):
    """The tokenizer and the data set of the tests' programs, in this folder."""
    code = "import sys, pathlib, jobs; jobs.make_assets(pathlib.Path(sys.argv[1]), sys.executable)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests/programs")}
    subprocess.run([python, "-c", code, folder], env=environment, check=True)


def capture(args, name):
    """The capture, made unless it exists."""
    batch, words = CAPTURES[name]
    file = args.cache / f"{name.replace(', ', '_').replace(' ', '')}.gpucast"
    if file.exists():
        return file
    with tempfile.TemporaryDirectory() as folder:
        make_texts(args.python, folder)
        command = [args.gpucast, "run", "--gpu", "h100-96", "--gpus", str(RANKS), "--world-size", str(RANKS), "--ranks", "0"]
        command += ["-o", str(file), "--", str(args.python), "-m", "torchtitan.train", "--model.name", "llama3", "--model.flavor", "8B"]
        command += ["--model.hf_assets_path", "tests/assets/tokenizer", "--training.dataset", "c4_test"]
        command += ["--training.local_batch_size", str(batch), "--training.seq_len", str(LENGTH), "--training.steps", "100"]
        command += ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "op", *words]
        environment = {**os.environ, "PYTHONPATH": str(args.titan), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    if not file.exists():
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-3000:]}")
    return file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--titan", type=Path, required=True, help="a folder with torchtitan 0.2.1")
    parser.add_argument("--cache", type=Path, required=True, help="for captures, which are made once")
    parser.add_argument("--cpu-speed", help="of the measured machines' hosts, relative to this one; default: the host of an A100's server")
    jobs.add_gpucast_option(parser)
    args = parser.parse_args()
    args.gpucast, args.python = jobs.find(args.gpucast), args.python.absolute()
    args.titan, args.cache = args.titan.resolve(), args.cache.resolve()
    args.cache.mkdir(parents=True, exist_ok=True)
    (args.cache / "h100-hbm2e.json").write_text(json.dumps(HBM2E))
    cards = {H100: str(args.cache / H100), B200: B200}
    steps = {}

    def tokens_per_s(name, card):
        if (name, card) not in steps:
            file = capture(args, name)
            speed = args.cpu_speed or str(server_speed(args.gpucast, file, cards[card]))
            steps[name, card] = step_s(ask(args.gpucast, [file], cards[card], ["--cpu-speed", speed]))
        return CAPTURES[name][0] * LENGTH / steps[name, card]

    lines = []
    for source, card, before, after, measured_before, measured_after in ROWS:
        ours = tokens_per_s(before, card), tokens_per_s(after, card)
        gain, measured = ours[1] / ours[0] - 1, measured_after / measured_before - 1
        cells = [f"{measured_before:.0f}, {measured_after:.0f}", f"{ours[0]:.0f}, {ours[1]:.0f}"]
        lines.append([source, card.split(".")[0], f"{before} to {after.split(',')[0]}", *cells, tables.signed(measured, 1), tables.signed(gain, 1), tables.signed(gain - measured, 1)])  # fmt: skip
    head = ["source", "card", "change", "measured tokens a second", "predicted", "measured gain %", "predicted gain %", "points"]
    print(tables.markdown(head, lines))


if __name__ == "__main__":
    main()
