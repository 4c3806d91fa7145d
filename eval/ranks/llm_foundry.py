"""python -m eval.ranks.llm_foundry --data DIR --python ENV/bin/python --cache OUT

llm-foundry's benchmark of MPT models under FSDP: scripts/train_mpt.py captured as one rank of each row's job, and its step compared.
"""

import argparse
import dataclasses
import random
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


def capture(gpucast, row, python, folder):
    """(the capture, None), made unless it exists; or (None, the end of what was printed)."""
    file = folder / f"{row.name}.gpucast"
    if file.exists():
        return file, None
    width, heads, layers = SIZES[row.model]
    sizes = {"width": width, "heads": heads, "layers": layers, "length": row.length}
    sizes |= {"micro-batch": row.micro_batch, "micro-batches": row.micro_batches, "sharding": row.sharding}
    words = [word for name, value in sizes.items() for word in (f"--{name}", str(value))] + (["--checkpoint"] if row.checkpoint else [])
    job = ["--gpu", row.card, "--gpus", str(min(row.gpus, row.gpus_per_node)), "--world-size", str(row.gpus), "--steps", "2"]
    done = subprocess.run([gpucast, "run", *job, "-o", str(file), "--", str(python), str(SCRIPT), *words], capture_output=True, text=True)
    return (file, None) if file.exists() else (None, done.stderr[-2000:])


def predictions(args, rows):
    args.cache.mkdir(parents=True, exist_ok=True)
    found = {}
    for number, row in enumerate(rows):
        file, problem = capture(args.gpucast, row, args.python, args.cache)
        if problem:
            print(f"{row.name}: {problem}")
            continue
        answer = ask(args.gpucast, [file], row.card, options_of(args))
        found[row] = step_s(answer)
        error = tables.signed(tables.error(found[row], row.step_s), 1)
        print(
            f"{number + 1}/{len(rows)} {row.name} {row.step_s:.3f} s, predicted {found[row]:.3f} ({error} %), {answer['bound']}", flush=True
        )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="has multi_gpu/runs_llm_foundry.csv")
    parser.add_argument("--python", type=Path, required=True, help="of an environment with PyTorch")
    parser.add_argument("--cache", type=Path, required=True, help="for captures, which are made once")
    parser.add_argument("--rows", type=int, default=0, help="this many rows, drawn at random; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    add_options(parser)
    args = parser.parse_args()
    args.gpucast, args.python = jobs.find(args.gpucast), args.python.absolute()
    rows = rows_of(args.data)
    if args.rows:
        rows = random.Random(args.seed).sample(rows, min(args.rows, len(rows)))
    predicted = predictions(args, rows)
    rows = [row for row in rows if row in predicted]
    print(tables.text(("steps", *tables.ERROR_HEAD), judge.error_lines(rows, predicted, ("card", "nodes", "model", "length"))))
    print(f"Spearman {judge.spearman([predicted[row] for row in rows], [row.step_s for row in rows]):.3f}")


if __name__ == "__main__":
    main()
