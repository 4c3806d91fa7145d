"""python -m eval.ranks.llm_foundry --data DIR --python ENV/bin/python --cache OUT

llm-foundry's benchmark of MPT models under FSDP: scripts/train_mpt.py captured as one rank of each row's job, and its step compared.
With --flash-attention REPOSITORY its attention is the kernel in Triton that most rows were measured with.
"""

import argparse
import dataclasses
import os
import random
import re
import subprocess
from pathlib import Path

from eval import jobs, tables
from eval.data_sets import card_of, read_csv
from eval.ranks import judge
from eval.ranks.ask import add_options, ask, options_of, step_s

SCRIPT = Path(__file__).parent / "scripts" / "train_mpt.py"
# Width, heads and layers, from llm-foundry's scripts/train/benchmarking/yamls.
SIZES = {
    "MPT-125m": (768, 12, 12),
    "MPT-350m": (1024, 16, 24),
    "MPT-760m": (1536, 12, 24),
    "MPT-1b": (2048, 16, 24),
    "MPT-3b": (2560, 20, 32),
    "MPT-7b": (4096, 32, 32),
    "MPT-13b": (5120, 40, 40),
    "MPT-30b": (7168, 56, 48),
    "MPT-70b": (8192, 64, 80),
}


PARTS = ("place", "card", "nodes", "model", "length")  # of the printed tables
FLASH_ATTENTION = "v1.0.9"  # that llm-foundry 0.4 has
# Of the rows on 128 and more cards (scripts/train/benchmarking/sweep.py); all others are Triton.
FLASH_MODELS, FLASH_GPUS = ("MPT-1b", "MPT-3b", "MPT-7b", "MPT-70b"), 128


# Triton's documentation of May 2023 measured this attention with heads of 64 on an A100: the time of its kernels over the counted time
# of what today's compiler makes (docs/results/tutorials.md, medians). No such table has heads of 128.
OLD_COMPILER = {"_fwd_kernel": 1.29, "_bwd_kernel": 1.36}


@dataclasses.dataclass(frozen=True)
class Row:
    model: str
    card: str
    gpus: int
    gpus_per_node: int
    length: int
    micro_batch: int
    micro_batches: int
    sharding: str
    checkpoint: bool
    step_s: float

    @property
    def nodes(self):
        return max(1, self.gpus // self.gpus_per_node)

    @property
    def place(self):
        return f"{self.card.split('-')[0]}, {'one node' if self.nodes == 1 else 'several nodes'}"

    @property
    def triton(self):
        return self.gpus < FLASH_GPUS or self.model not in FLASH_MODELS

    @property
    def width_of_heads(self):
        width, heads, _ = SIZES[self.model]
        return width // heads

    @property
    def name(self):
        kept = f"{self.sharding}_{'checkpoint' if self.checkpoint else 'all'}"
        return f"{self.model}_{self.card}_n{self.gpus}_s{self.length}_m{self.micro_batch}x{self.micro_batches}_{kept}"


def rows_of(data):
    """Without fp8, which needs TransformerEngine."""
    found = []
    for line in read_csv(data / "multi_gpu" / "runs_llm_foundry.csv"):
        if line["model"] in SIZES and line["step_s"] and "fp8" not in line["precision"]:
            whole = {name: int(line[name]) for name in ("gpus", "gpus_per_node", "micro_batch")}
            kept = {"sharding": line["sharding"], "checkpoint": line["act_ckpt"] == "True", "step_s": float(line["step_s"])}
            sizes = {"length": int(line["seq_len"]), "micro_batches": int(line["grad_accum"])}
            found.append(Row(model=line["model"], card=card_of(line["card"]), **whole, **sizes, **kept))
    return found


def todays_triton(text):
    """The same kernels in the words of today's Triton.

    Atomics order nothing else, as they did then by default. Two whole blocks no longer fit into shared memory with heads of 128: half a
    block does. Of the two ways to split the backward pass, the one that is faster by its count: autotuning in a capture takes the first.
    """
    text = re.sub(r"tl\.dot\((.+?), (\w+), trans_b=True\)", r"tl.dot(\1, tl.trans(\2))", text)
    text = re.sub(r"tl\.dot\((.+?), (\w+), trans_a=True\)", r"tl.dot(tl.trans(\1), \2)", text)
    text = re.sub(r"tl\.atomic_add\((\w+), (\w+)", r'tl.atomic_add(\1, \2, sem="relaxed"', text)
    text = text.replace('"SEQUENCE_PARALLEL": False', '"SEQUENCE_PARALLEL": True')
    return re.sub(r'(?m)^( *triton\.Config.*"BLOCK_M": )128(.*)$', r"\g<0>\n\g<1>64\2", text)


def write_attention(repository, folder):
    """flash_attn_triton.py of this git directory."""
    command = ["git", "--git-dir", str(repository), "show", f"{FLASH_ATTENTION}:flash_attn/flash_attn_triton.py"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    folder.mkdir(exist_ok=True)
    (folder / "flash_attn_triton.py").write_text(todays_triton(text))


def capture(args, row):
    """(the capture, None), made unless it exists; or (None, the end of what was printed)."""
    triton = row.triton and args.flash_attention
    file = args.cache / f"{row.name}{'_triton' if triton else ''}.gpucast"
    if file.exists():
        return file, None
    width, heads, layers = SIZES[row.model]
    sizes = {"width": width, "heads": heads, "layers": layers, "length": row.length}
    sizes |= {"micro-batch": row.micro_batch, "micro-batches": row.micro_batches, "sharding": row.sharding}
    words = [word for name, value in sizes.items() for word in (f"--{name}", str(value))] + (["--checkpoint"] if row.checkpoint else [])
    words += ["--attention", "triton" if triton else "flash"]
    environment = os.environ | ({"PYTHONPATH": str(args.cache / "attention")} if triton else {})
    # Triton of that time had no instructions of Hopper's own.
    card = "a100-80" if triton and row.card == "h100-80" else row.card
    job = ["--gpu", card, "--gpus", str(min(row.gpus, row.gpus_per_node)), "--world-size", str(row.gpus), "--steps", "2"]
    command = [args.gpucast, "run", *job, "-o", str(file), "--", str(args.python), str(SCRIPT), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return (file, None) if file.exists() else (None, done.stderr[-2000:])


def old_compilers_s(answer):
    """What the kernels of the old compiler take more."""
    return sum((OLD_COMPILER.get(kernel["name"], 1) - 1) * kernel["gpu_ns"] for kernel in answer["kernels"]) / 1e9


def predictions(args, rows):
    """Two: today's compiler, and with heads of 64 the one of the measured kernels."""
    args.cache = args.cache.resolve()
    args.cache.mkdir(parents=True, exist_ok=True)
    if args.flash_attention:
        write_attention(args.flash_attention, args.cache / "attention")
    found, with_old = {}, {}
    for number, row in enumerate(rows):
        file, problem = capture(args, row)
        if problem:
            print(f"{row.name}: {problem}")
            continue
        answer = ask(args.gpucast, [file], row.card, options_of(args))
        found[row] = with_old[row] = step_s(answer)
        if row.triton and args.flash_attention and row.width_of_heads == 64:
            with_old[row] += old_compilers_s(answer)
        error = tables.signed(tables.error(found[row], row.step_s), 1)
        print(
            f"{number + 1}/{len(rows)} {row.name} {row.step_s:.3f} s, predicted {found[row]:.3f} ({error} %), {answer['bound']}", flush=True
        )
    return found, with_old


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="has multi_gpu/runs_llm_foundry.csv")
    parser.add_argument("--python", type=Path, required=True, help="of an environment with PyTorch")
    parser.add_argument("--cache", type=Path, required=True, help="for captures, which are made once")
    parser.add_argument("--flash-attention", type=Path, help=f"a git directory of Dao-AILab/flash-attention with the tag {FLASH_ATTENTION}")
    parser.add_argument("--rows", type=int, default=0, help="this many rows, drawn at random; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    add_options(parser)
    args = parser.parse_args()
    args.gpucast, args.python = jobs.find(args.gpucast), args.python.absolute()
    rows = rows_of(args.data)
    if args.rows:
        rows = random.Random(args.seed).sample(rows, min(args.rows, len(rows)))
    predicted, with_old = predictions(args, rows)
    rows = [row for row in rows if row in predicted]
    print(tables.text(("steps", *tables.ERROR_HEAD), judge.error_lines(rows, predicted, PARTS)))
    if args.flash_attention:
        print("with the compiler of 2023 for heads of 64:")
        print(tables.text(("steps", *tables.ERROR_HEAD), judge.error_lines(rows, with_old, PARTS)))
    print(f"Spearman {judge.spearman([predicted[row] for row in rows], [row.step_s for row in rows]):.3f}")


if __name__ == "__main__":
    main()
