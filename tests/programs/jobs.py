#!/usr/bin/env python3
"""Jobs of several ranks, each from its own command: the memory of each rank, the job's step on a DGX H100, and the bytes that a rank
sends in a step compared with paper and pencil.

jobs.py --gpucast build/release/bin/gpucast --python ENV/bin/python [--only deepspeed,cp] [--rows FILE] [--page docs/results/programs.md]
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from run import version_of

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
from eval import page  # noqa: E402

MIB, MB = 1 << 20, 1e6
LEAST_BYTES = 50_000  # of a part that the table shows: below are figures, such as losses and norms
CLOSE = 0.02


@dataclass(frozen=True)
class Job:
    name: str
    command: tuple  # SCRIPTS stands for the folder of the scripts
    by_hand: dict  # part of the report -> bytes of one rank in a step
    packages: tuple = ()  # in addition to torch
    options: tuple = ()  # of gpucast run
    replicas: int = 0  # of the model; 0: as many as ranks
    limit_s: float = 900


def torchrun(ranks, *words):
    return ("torchrun", "--nproc-per-node", str(ranks), "--master-port", "29533", *words)


def titan(ranks, *words, module="llama3", config="llama3_debugmodel"):
    return torchrun(ranks, "-m", "torchtitan.train", "--module", module, "--config", config, *words)


BLOCKS = 4 * (2 * 512 * 2048 + 2048 + 512)  # parameters of ranks.py and with_deepspeed.py
BERT = 475_778  # of with_accelerate.py
GPT2 = 541_184  # of with_transformers.py
PERCEPTRON = 64 * 512 + 512 + 512 * 10 + 10  # of with_lightning.py
MICRO_BATCH = 2 * 128 * 512 * 2  # bytes of three_d.py's activations: 2 samples of 128 tokens, width 512, bf16
STAGE = 2 * 2 * 512 * 1024  # parameters of three_d.py on a rank: two layers of two matrices, halved
LLAMA = 6_163_712  # parameters of torchtitan's llama3_debugmodel
OUTPUT = 2048 * 256 * 2  # bytes of its last layer, which a loss in chunks gathers once more
ACTIVATIONS = 8 * 2048 * 256 * 2  # bytes: its batch of 8 by 2048 tokens, width 256, bf16
LLAMA_8B, OUTPUT_8B = 8_030_261_248, 128_256 * 4096 * 2

TITAN = ("torchtitan",)
DEEPSPEED = ("deepspeed", "--num_gpus", "4", "--master_port", "29534", "SCRIPTS/with_deepspeed.py")
ACCELERATE = ("accelerate", "launch", "--num_processes", "4", "--main_process_port", "29535")

JOBS = [
    Job("DDP, no_sync over 4 micro-batches", torchrun(4, "SCRIPTS/ranks.py", "no_sync"), {"data: all_reduce of 4": 4 * BLOCKS}),
    Job(
        "loop of one's own: TP 2, PP 2, DP 2 with ZeRO 1",
        torchrun(8, "SCRIPTS/three_d.py"),
        {
            "tensor: all_reduce of 2": 2 * 4 * 2 * MICRO_BATCH,  # layers, micro-batches, forward and backward
            "pipeline: messages of 2": 4 * 2 * MICRO_BATCH,
            "data: reduce_scatter of 2": 4 * STAGE,
            "data: all_gather of 2": 2 * STAGE,
        },
        replicas=2,
    ),
    *(
        Job(f"DeepSpeed ZeRO {stage}", (*DEEPSPEED, stage), {f"data: {kind} of 4": 2 * BLOCKS for kind in kinds}, ("deepspeed",), ("--gpus", "4"))
        for stage, kinds in (("1", ("all_reduce", "all_gather")), ("2", ("all_reduce", "all_gather")), ("3", ("reduce_scatter", "all_gather")))
    ),
    Job("accelerate, DDP", (*ACCELERATE, "--multi_gpu", "SCRIPTS/with_accelerate.py"), {"data: all_reduce of 4": 4 * BERT}, ("accelerate",)),
    Job("accelerate, FSDP2", (*ACCELERATE, "--use_fsdp", "--fsdp_version", "2", "SCRIPTS/with_accelerate.py"), {"data: reduce_scatter of 4": 2 * BERT}, ("accelerate",)),
    Job("Lightning, ddp", ("python", "SCRIPTS/with_lightning.py", "ddp", "4"), {"data: all_reduce of 4": 4 * PERCEPTRON}, ("lightning",), ("--gpus", "4")),
    Job(
        "Lightning, fsdp",
        ("python", "SCRIPTS/with_lightning.py", "fsdp", "4"),
        {f"data: {kind} of 4": 2 * PERCEPTRON for kind in ("reduce_scatter", "all_gather")},
        ("lightning",),
        ("--gpus", "4"),
    ),
    Job("transformers Trainer", torchrun(4, "SCRIPTS/with_transformers.py", "gpt2"), {"data: all_reduce of 4": 4 * GPT2}, ("transformers",)),
    Job("torchtitan, FSDP2", titan(2), {"data: reduce_scatter of 2": 4 * LLAMA, "data: all_gather of 2": 2 * 2 * LLAMA + OUTPUT}, TITAN),
    Job("torchtitan, float8", titan(2, config="llama3_debugmodel_float8"), {"data: reduce_scatter of 2": 4 * LLAMA, "data: all_gather of 2": 2 * 2 * LLAMA + OUTPUT}, TITAN),
    Job(  # six layers of two blocks: forward, again for backward, and backward; the embedding and the output
        "torchtitan, TP 2",
        titan(2, "--parallelism.tensor_parallel_degree", "2"),
        {f"tensor: {kind} of 2": (3 * 12 + 2) * ACTIVATIONS for kind in ("all_gather", "reduce_scatter")},
        TITAN,
        replicas=1,
    ),
    Job(  # of the blocks' collectives none is left: they are copies
        "torchtitan, async TP 2",
        titan(2, "--parallelism.tensor_parallel_degree", "2", config="llama3_debugmodel_dist_gemm"),
        {f"tensor: {kind} of 2": 2 * ACTIVATIONS for kind in ("all_gather", "reduce_scatter")},
        TITAN,
        replicas=1,
    ),
    Job(  # stages 0 and 2, or 1 and 3, on a rank: six messages for each of eight micro-batches
        "torchtitan, PP 2 (interleaved), FSDP2",
        titan(4, "--parallelism.pipeline_parallel_degree", "2", "--training.disable_cuda_graphs"),
        {"pipeline: messages of 2": 6 * ACTIVATIONS},
        TITAN,
        replicas=2,
    ),
    Job(  # keys and values of six layers: gathered forward and again for backward; their gradients
        "torchtitan, CP 2, FSDP2",
        titan(4, "--parallelism.context_parallel_degree", "2"),
        {
            "context: all_gather of 2": 2 * 2 * 6 * ACTIVATIONS,
            "context: reduce_scatter of 2": 2 * 6 * ACTIVATIONS,
            "data: reduce_scatter of 4": 4 * LLAMA,
            "data: all_gather of 4": 2 * 2 * LLAMA + OUTPUT,
        },
        TITAN,
        replicas=2,
    ),
    Job(
        "torchtitan, deepseek_v3, EP 2",
        titan(2, "--parallelism.expert_parallel_degree", "2", "--training.disable_cuda_graphs", module="deepseek_v3", config="deepseek_v3_debugmodel"),
        {},  # the bytes follow from the drawn routing
        TITAN,
    ),
    Job(
        "torchtitan, HSDP, ranks 0 and 3 of 4",
        ("python", "-m", "torchtitan.train", "--module", "llama3", "--config", "llama3_debugmodel", "--parallelism.data_parallel_replicate_degree", "2"),
        {"data: all_reduce of 2": 2 * LLAMA, "data: reduce_scatter of 2": 4 * LLAMA, "data: all_gather of 2": 2 * 2 * LLAMA + OUTPUT},
        TITAN,
        ("--world-size", "4", "--ranks", "0,3"),
        replicas=4,
    ),
    Job(
        "torchtitan, llama3_8b, rank 0 of 8",
        ("python", "-m", "torchtitan.train", "--module", "llama3", "--config", "llama3_8b", "--hf_assets_path", "./tests/assets/tokenizer", "--dataloader.dataset", "c4_test"),
        {"data: reduce_scatter of 8": 4 * LLAMA_8B, "data: all_gather of 8": 2 * 2 * LLAMA_8B + OUTPUT_8B},
        TITAN,
        ("--world-size", "8", "--ranks", "0"),
        replicas=8,
    ),
]  # fmt: skip


def make_assets(folder, python):
    """What torchtitan's debug configurations read: a tokenizer and a data set, under the names of its repository."""
    random.seed(1)
    words = ["".join(random.choice("etaoinshrdlu") for _ in range(random.randint(2, 9))) for _ in range(3000)]
    data = folder / "tests/assets/c4_test/data.json"
    data.parent.mkdir(parents=True)
    data.write_text("".join(json.dumps({"text": " ".join(random.choices(words, k=400))}) + "\n" for _ in range(2000)))
    code = """
import json, sys, tokenizers
made = tokenizers.Tokenizer(tokenizers.models.BPE())
made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
texts = (json.loads(line)["text"] for line in open(sys.argv[1]))
made.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(vocab_size=2000, special_tokens=["<|begin_of_text|>", "<|end_of_text|>"]))
made.save(sys.argv[2])
"""
    (folder / "tests/assets/tokenizer").mkdir()
    subprocess.run([python, "-c", code, data, folder / "tests/assets/tokenizer/tokenizer.json"], check=True, stdout=subprocess.DEVNULL)
    special = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    (folder / "tests/assets/tokenizer/tokenizer_config.json").write_text(json.dumps(special))


def captures_in(folder):
    return sorted(folder.glob("capture*.gpucast"))


def part_name(part):
    return f"{part['purpose']}: {part['kind']} of {part['ranks']}"


def timed(options, folder):
    """The job's step, or what gpucast said."""
    done = subprocess.run([options.gpucast, "time", *captures_in(folder), "--format", "json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        return {"problem": done.stderr.strip()[:300]}
    report = json.loads(done.stdout)
    ranks = {rank["rank"]: rank for rank in report["ranks"]}
    rank = ranks[report["job"]["busiest_rank"]]
    parts = [(part_name(part), part["calls"], part["bytes"]) for part in rank["by_communication"] if part["bytes"] >= LEAST_BYTES]
    shares = {
        "compute": rank["compute_ns"],
        "exposed": rank["communication"]["exposed_ns"],
        "waiting": rank["bubble_ns"],
        "idle": rank["idle_ns"],
    }
    return {
        "step_ms": rank["step_ns"] / 1e6,  # with its batches ready
        "job_ranks": report["job"]["ranks"],
        "shares": {name: ns / rank["step_ns"] for name, ns in shares.items()},
        "hidden_ms": rank["communication"]["hidden_ns"] / 1e6,
        "replicas": report["job"]["replicas"],
        "notes": report["job"]["notes"],
        "parts": parts,
        "phases": {part["name"]: part["share"] for part in report["by_phase"]},
    }


def differences(job, row):
    """What is not as on paper."""
    found = {name: size for name, _, size in row["parts"]}
    out = [
        f"{name}: {found.get(name, 0) / MB:.1f} MB" for name, size in job.by_hand.items() if abs(found.get(name, 0) - size) > CLOSE * size
    ]
    if row["replicas"] != (job.replicas or row["ranks"]):
        out.append(f"{row['replicas']} replicas")
    return out + [note for note in row["notes"] if "assumed" in note]


def run(options, job):
    row = {"name": job.name, "versions": {package: version_of(options.python, package) for package in ("torch", *job.packages)}}
    if None in row["versions"].values():
        return {**row, "problem": "not installed"}
    folder = Path(tempfile.mkdtemp(prefix="jobs-"))
    if "torchtitan" in job.packages:
        make_assets(folder, options.python)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PATH": f"{Path(options.python).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(HERE / "scripts"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    words = [word.replace("SCRIPTS", str(HERE / "scripts")) for word in job.command]
    command = [
        options.gpucast,
        "run",
        "--gpu",
        "h100-80",
        "--format",
        "json",
        "-o",
        str(folder / "capture.gpucast"),
        *job.options,
        "--",
        *words,
    ]
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=job.limit_s
    )
    row["seconds"] = round(time.monotonic() - began)
    if options.logs:
        Path(options.logs).mkdir(parents=True, exist_ok=True)
        (Path(options.logs) / f"{job.name.replace(' ', '-').replace(',', '')}.log").write_text(done.stderr)
    if done.returncode in (0, 1):
        report = json.loads(done.stdout)
        ranks = report.get("ranks") or [report["peak"]]
        row |= {"ranks": len(ranks), "steps": report["steps"]}
        row |= {kind: [one[f"{kind}_bytes"] for one in ranks] for kind in ("allocated", "reserved")}
        row |= timed(options, folder)
        if "parts" in row:
            row["differs"] = differences(job, row)
    else:
        row["problem"] = (done.stderr.strip().splitlines() or ["?"])[-1][:300]
    shutil.rmtree(folder)
    return row


def range_text(sizes):
    low, high = (f"{size / MIB:.0f}" for size in (min(sizes), max(sizes)))
    return low if low == high else f"{low} to {high}"


def percent(share):
    return f"{100 * share:.0f} %"


def table(rows):
    lines = [
        "| job | ranks | peak reserved of a rank, MiB | a step, batches ready | compute | exposed | waiting | host too late |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "parts" not in row:
            lines.append(f"| {row['name']} | | {row['problem']} | | | | | |")
            continue
        shares = " | ".join(percent(row["shares"][name]) for name in ("compute", "exposed", "waiting", "idle"))
        ranks = row["ranks"] if row["ranks"] == row["job_ranks"] else f"{row['ranks']} of {row['job_ranks']}"
        lines.append(f"| {row['name']} | {ranks} | {range_text(row['reserved'])} | {row['step_ms']:.2f} ms | {shares} |")
    return "\n".join(lines)


def communication_table(rows):
    by_name = {job.name: job for job in JOBS}
    lines = ["| job | a rank's communication in a step | calls | MB | by hand |", "|---|---|---:|---:|---:|"]
    for row in rows:
        for name, calls, size in row.get("parts", ()):
            by_hand = by_name[row["name"]].by_hand.get(name)
            lines.append(f"| {row['name']} | {name} | {calls} | {size / MB:.1f} | {'' if by_hand is None else f'{by_hand / MB:.1f}'} |")
    return "\n".join(lines)


def write_page(path, rows):
    versions = {package: version for row in rows for package, version in row["versions"].items() if version}
    words = f"{len(rows)} jobs; " + ", ".join(f"{package} {version}" for package, version in versions.items())
    page.write(Path(path), "make programs", words, {"jobs": table(rows), "communication": communication_table(rows)})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpucast")
    parser.add_argument("--python")
    parser.add_argument("--only", help="jobs in whose name one of these words is, separated by commas")
    parser.add_argument("--again", action="store_true", help="also those that have a row")
    parser.add_argument("--rows", help="keep results in this file, and continue from it")
    parser.add_argument("--logs", help="keep the jobs' output in this folder")
    parser.add_argument("--page", help="renew the tables of this page")
    options = parser.parse_args()
    rows = {}
    if options.rows and os.path.exists(options.rows):
        rows = {row["name"]: row for row in map(json.loads, Path(options.rows).read_text().splitlines())}
    words = [word.lower() for word in (options.only or "").split(",") if word]
    if options.gpucast:
        options.gpucast, options.python = os.path.abspath(options.gpucast), os.path.abspath(options.python)
    for job in JOBS if options.gpucast else ():
        if (words and not any(word in job.name.lower() for word in words)) or (job.name in rows and not options.again):
            continue
        rows[job.name] = row = run(options, job)
        print(json.dumps(row), flush=True)
        if options.rows:
            Path(options.rows).write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    kept = [rows[job.name] for job in JOBS if job.name in rows]
    if options.page:
        write_page(options.page, kept)
    return 0 if all(row.get("differs") == [] for row in kept) else 1


if __name__ == "__main__":
    sys.exit(main())
