"""python -m eval.ranks.neusight --data DIR --megatron REPOSITORY --python ENV/bin/python --cache OUT

NeuSight's steps of GPT-2 and GPT-3 on four cards, data, tensor or pipeline parallel, compared with Megatron-LM's own program.
"""

import argparse
import dataclasses
import re
import statistics
from pathlib import Path

from eval import jobs, tables
from eval.data_sets import card_of, read_csv
from eval.ranks import judge, megatron
from eval.ranks.ask import add_options, ask, options_of, server_speed, step_s
from eval.ranks.sweeps import Row

# Hidden size, heads and layers: scripts/asplos/data/DLmodel_configs there.
SIZES = {"gpt2_large": (1280, 20, 36), "gpt3_xl": (3072, 24, 24)}


@dataclasses.dataclass(frozen=True)
class NeuSightRow(Row):
    """fp32 without TF32; the pipelines have one micro batch."""

    published_s: float = 0  # NeuSight's own prediction
    half = False
    recomputes = False

    @property
    def plan(self):
        return next(f"{name} parallel" for name, size in (("tensor", self.tp), ("pipeline", self.pp), ("data", self.dp)) if size > 1)


def rows_of(data):
    found = []
    for line in read_csv(data / "multi_gpu" / "runs_neusight.csv"):
        hidden, heads, layers = SIZES[line["model"]]
        plan = {name: int(line[name] or 1) for name in ("gpus", "gpus_per_node", "global_batch", "tp", "dp", "pp")}
        sizes = {"hidden": hidden, "heads": heads, "layers": layers, "sequence": int(line["seq_len"])}
        published_s = float(re.search(r"predicts ([0-9.]+) s", line["notes"])[1])
        times = {"step_s": float(line["step_s"]), "published_s": published_s}
        micro_batch = plan["global_batch"] // plan["dp"]
        found.append(NeuSightRow(line["model"], card_of(line["card"]), micro_batch=micro_batch, **plan, **sizes, **times))
    return found


def predict(args, files, row):
    """With a server's host: this machine's may be busy during the capture."""
    options = options_of(args)
    if not args.cpu_speed:
        speeds = [server_speed(args.gpucast, file, row.card) for file in files]
        options += ["--cpu-speed", str(statistics.median(speeds))]
    return ask(args.gpucast, files, row.card, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="has multi_gpu/runs_neusight.csv")
    megatron.add_options(parser)
    add_options(parser)
    args = parser.parse_args()
    args.gpucast, args.python, args.cache = jobs.find(args.gpucast), args.python.absolute(), args.cache.resolve()
    rows, predicted = rows_of(args.data), {}
    program = megatron.checkout(args.megatron, args.cache, waits=False)  # accelerate leaves Megatron's all-reduces overlapped
    for row in rows:
        folder = args.cache / row.card
        folder.mkdir(exist_ok=True)
        files, problem = megatron.capture(args.gpucast, row, args.python, program, folder)
        if problem:
            print(f"{megatron.name_of(row)}: {problem}")
            continue
        answer = predict(args, files, row)
        predicted[row] = step_s(answer)
        errors = [tables.signed(tables.error(time, row.step_s), 1) for time in (predicted[row], row.published_s)]
        times = f"{1e3 * row.step_s:.1f} ms, predicted {1e3 * predicted[row]:.1f} ({errors[0]} %, NeuSight {errors[1]} %)"
        print(f"{row.card} {row.model} {row.plan}, batch {row.global_batch}: {times}, {answer['bound']}", flush=True)
    rows = list(predicted)
    print(tables.text(("steps", *tables.ERROR_HEAD), judge.error_lines(rows, predicted, ("card", "plan", "model"))))
    published = [tables.error(row.published_s, row.step_s) for row in rows]
    print(tables.text(("NeuSight", *tables.ERROR_HEAD), [("all", *tables.error_cells(published))]))


if __name__ == "__main__":
    main()
