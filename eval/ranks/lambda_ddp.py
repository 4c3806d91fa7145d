"""python -m eval.ranks.lambda_ddp --data DIR --python ENV/bin/python --cache OUT

Lambda's benchmark of training on 1, 2, 4 and 8 cards: the throughput of N cards over that of one card, predicted by scripts/train_lambda.py.
"""

import argparse
import collections
import csv
import dataclasses
import functools
import math
import os
import random
import re
import statistics
import subprocess
from pathlib import Path

from eval import jobs, tables
from eval.ranks import judge
from eval.ranks.ask import add_options, ask, options_of, server_speed, step_s

SCRIPT = Path(__file__).parent / "scripts" / "train_lambda.py"
MODELS = ("resnet50", "ssd", "bert_base_squad", "bert_large_squad")
# By words of a system's name, in this order: its cards, their memory in the benchmark's configuration (GB), the machine.
CARDS = (
    ("GH200|lambda-scalar", None, 0, None),  # lambda-scalar: H200 NVL. Neither has runs on one card and on several
    ("B200", "b200", 192, "dgx-b200"),
    ("H200", "h200", 140, "dgx-h200"),
    ("H100.*PCIe", "h100-80-pcie", 80, "pcie5-server"),
    ("H100", "h100-80", 80, "lambda-h100"),
    ("A100 40GB PCIe", "a100-40-pcie", 40, "pcie4-server"),
    ("A100 80GB PCIe", "a100-80-pcie", 80, "pcie4-server"),
    ("A100 40GB", "a100-40", 40, "lambda-a100-40"),
    ("A100 80GB", "a100-80", 80, "lambda-a100-80"),
    ("V100 16GB", "v100-16", 16, "dgx-1"),
    ("RTX 6000 Ada|AdaA6000", "rtx6000ada", 48, "pcie4-server"),
    ("A6000", "a6000", 48, "pcie4-server"),
    ("4090", "rtx4090", 24, "rtx4090-2"),
    ("3090", "rtx3090", 24, "rtx3090-2"),
)
# NGC containers: 24.03 and later, by words of the name; the others are 22.10.
LATER = re.compile("1cc|Dell|SMC|RAIDZ1|LambdaOD|LambdaBM|B200|H200", re.IGNORECASE)
# From 2022-10-16 to 2023-02-06 the benchmark's script had NCCL_P2P_DISABLE=1. Of the systems of 22.10 these were measured afterwards.
AFTER_P2P_DISABLE = {"h100-80": (2, 4, 8), "rtx6000ada": (4, 8)}
# PyTorch's builds for CUDA 13 have no kernels for Volta; a step's time is asked for the row's card in any case.
CAPTURED_ON = {"v100-16": "a10"}
SQUAD_FEATURES, BERT_STEPS, BERT_EPOCHS = 88641, 100, 2
BATCHES = {  # of a card, fp32 and fp16, by the benchmark's configuration for this much memory
    16: {"resnet50": (128, 256), "ssd": (48, 96), "bert_base_squad": (24, 48), "bert_large_squad": (8, 16)},
    24: {"resnet50": (224, 448), "ssd": (80, 140), "bert_base_squad": (48, 96), "bert_large_squad": (16, 28)},
    40: {"resnet50": (360, 720), "ssd": (128, 224), "bert_base_squad": (80, 160), "bert_large_squad": (28, 48)},
    48: {"resnet50": (496, 928), "ssd": (144, 256), "bert_base_squad": (96, 192), "bert_large_squad": (32, 64)},
    80: {"resnet50": (640, 1280), "ssd": (256, 448), "bert_base_squad": (172, 320), "bert_large_squad": (64, 112)},
    140: {"resnet50": (1280, 2560), "ssd": (512, 896), "bert_base_squad": (296, 592), "bert_large_squad": (96, 192)},
    192: {"resnet50": (1664, 3328), "ssd": (640, 1152), "bert_base_squad": (384, 768), "bert_large_squad": (128, 256)},
}


@dataclasses.dataclass(frozen=True)
class Row:
    model: str
    half: bool
    card: str
    machine: str
    system: str  # machines of the same card and software
    peer: bool
    batch: int
    gpus: int
    ratio: float  # the throughput of all cards over that of one

    @property
    def precision(self):
        return "fp16" if self.half else "fp32"

    @property
    def name(self):
        return f"{self.system} {self.model} {self.precision} x{self.gpus}"

    @property
    def single(self):
        """The same on one card."""
        return dataclasses.replace(self, peer=True, gpus=1, ratio=1)

    @property
    def ended_early(self):
        """Its few steps were measured together with what a program starts with."""
        return "bert" in self.model and bert_share(self.batch, self.gpus) < 1

    @property
    def step_s(self):  # as `judge` compares it
        return self.ratio


def system_of(name):
    """(card, memory, machine, software, cards) of a system of Lambda's tables; None if it is of no use."""
    text = name.replace("_", " ")
    card, memory, machine = next((rest for words, *rest in CARDS if re.search(words, text)), (None, 0, None))
    if card is None:
        return None
    numbers = re.findall(r"(\d+)x ?(?=RTX|Ada|A\d|V100|H\d|B200|[34]090)", text)
    return card, memory, machine, "24.03" if LATER.search(text) else "22.10", int(numbers[-1]) if numbers else 1


def figures_of(data):
    """(system's name, model, half, samples/s) of every published figure."""
    folder = data / "lambda_benchmarks"
    for file in sorted(folder.glob("*throughput*.csv")):
        for line in csv.DictReader(file.open()):
            name = line.get("name_gpu") or line.get("") or ""
            # These medians of 24.03 have names of 22.10 and are in a table of their own, too.
            if not (file.name.startswith("csv_v1_v2") and "H100" in name):
                yield from ((name, model, "fp16" in file.name, float(line[model])) for model in MODELS if float(line[model]))
    runs = folder / "resnet50_synthetic_all_runs.csv"
    for line in csv.DictReader(runs.open()) if runs.exists() else ():
        yield line["dir"], "resnet50", line["precision"] == "AMP", float(line["median_compute_ips_after_10"])


def bert_share(batch, gpus):
    """Of the steps that the program counted: it stops after two epochs, and divides the samples of 100 steps by the time."""
    epoch = math.ceil(math.ceil(SQUAD_FEATURES / gpus) / batch)
    return min(BERT_STEPS + 1, BERT_EPOCHS * epoch) / BERT_STEPS


def speeds_of(data):
    """{(card, memory, machine, software, cards, model, half): samples/s of all such systems}"""
    speeds = collections.defaultdict(set)
    for name, model, half, samples_per_s in figures_of(data):
        found = system_of(name)
        if found:
            speeds[(*found, model, half)].add(samples_per_s)
    return speeds


def rows_of(data):
    speeds = speeds_of(data)
    rows = []
    for (card, memory, machine, software, gpus, model, half), some in sorted(speeds.items()):
        single = speeds.get((card, memory, machine, software, 1, model, half))
        if gpus == 1 or not single:
            continue
        batch = BATCHES[memory][model][half]
        counted = bert_share(batch, gpus) / bert_share(batch, 1) if "bert" in model else 1
        ratio = statistics.median(some) / statistics.median(single) * counted
        peer = software != "22.10" or gpus in AFTER_P2P_DISABLE.get(card, ())
        rows.append(Row(model, half, card, machine, f"{card} {software}", peer, batch, gpus, ratio))
    return rows


def capture(args, row, gpus):
    """The capture of rank 0, made unless it exists; or None and the end of what was printed."""
    file = args.cache / f"{row.card}_{row.model}_{row.precision}_{row.batch}_x{gpus}{'' if row.peer or gpus == 1 else '_host'}.gpucast"
    if file.exists():
        return file, None
    words = ["--model", row.model, "--batch", str(row.batch), *(["--half"] if row.half else [])]
    job = ["--gpu", CAPTURED_ON.get(row.card, row.card), "--gpus", str(gpus), "--world-size", str(gpus), "--steps", "2", "-o", str(file)]
    environment = os.environ | ({} if row.peer else {"NCCL_P2P_DISABLE": "1"})
    command = [args.gpucast, "run", *job, "--", str(args.python), str(SCRIPT), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return (file, None) if file.exists() else (None, done.stderr[-2000:])


@dataclasses.dataclass(frozen=True)
class Times:
    step_s: float
    communication_s: float = 0
    hidden_s: float = 0  # of the communication, behind kernels

    def step_without_hiding_s(self, slower=1):
        """With all communication exposed, and this many times as slow."""
        return self.step_s + self.hidden_s + (slower - 1) * self.communication_s


def predicted(args, row, gpus):
    """None if it could not be captured."""
    file, problem = capture(args, row, gpus)
    if problem:
        print(f"{row.name}: {problem}")
        return None
    options = options_of(args) if args.machine else ["--machine", row.machine, *options_of(args)]
    if not args.cpu_speed:
        options += ["--cpu-speed", str(server_speed(args.gpucast, file, row.card))]
    answer = ask(args.gpucast, [file], row.card, options)
    if not answer.get("job"):
        return Times(step_s(answer))
    parts = answer["job"]["communication"]
    return Times(step_s(answer), (parts["exposed_ns"] + parts["hidden_ns"]) / 1e9, parts["hidden_ns"] / 1e9)


def predictions(args, rows):
    """{row: (Times on one card, on all)}"""
    of = functools.cache(functools.partial(predicted, args))
    found = {}
    for number, row in enumerate(rows):
        one, several = of(row.single, 1), of(row, row.gpus)
        if one and several:
            found[row] = one, several
            ratio = row.gpus * one.step_s / several.step_s
            error = tables.signed(tables.error(ratio, row.ratio), 1)
            print(f"{number + 1}/{len(rows)} {row.name}: {row.ratio:.3f}, predicted {ratio:.3f} ({error} %)", flush=True)
    return found


def slower_links(times):
    """{(system, cards): how many times as slow as predicted the communication was, if none was hidden}, from rows of ResNet-50 alone."""
    found = collections.defaultdict(list)
    for row, (one, several) in times.items():
        if row.model == "resnet50":
            more_s = row.gpus * one.step_s / row.ratio - several.step_without_hiding_s()
            found[row.system, row.gpus].append(1 + more_s / several.communication_s)
    return {key: max(1, statistics.median(some)) for key, some in found.items()}


def report(times):
    """Three tables: as predicted; with all communication exposed; and with its rate from ResNet-50, for the other models."""
    slower = slower_links(times)
    ratios = {row: row.gpus * one.step_s / several.step_s for row, (one, several) in times.items()}
    exposed = {row: row.gpus * one.step_s / several.step_without_hiding_s() for row, (one, several) in times.items()}
    fitted = {
        row: row.gpus * one.step_s / several.step_without_hiding_s(slower[row.system, row.gpus])
        for row, (one, several) in times.items()
        if (row.system, row.gpus) in slower and row.model != "resnet50"
    }
    for name, some in (("as predicted", ratios), ("nothing hidden", exposed), ("nothing hidden, rate of ResNet-50", fitted)):
        print(
            tables.text((name, *tables.ERROR_HEAD), judge.error_lines(list(some), some, ("peer", "ended_early", "system", "model", "gpus")))
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="has lambda_benchmarks/")
    parser.add_argument("--python", type=Path, required=True, help="of an environment with PyTorch and torchvision")
    parser.add_argument("--cache", type=Path, required=True, help="for captures, which are made once")
    parser.add_argument("--rows", type=int, default=0, help="this many rows, drawn at random; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    add_options(parser)
    args = parser.parse_args()
    args.gpucast, args.python = jobs.find(args.gpucast), args.python.absolute()
    args.cache.mkdir(parents=True, exist_ok=True)
    rows = rows_of(args.data)
    report(predictions(args, random.Random(args.seed).sample(rows, min(args.rows or len(rows), len(rows)))))


if __name__ == "__main__":
    main()
