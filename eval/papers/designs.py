#!/usr/bin/env python3
"""The two designs of the xMem paper (section 4.1.4) as jobs of `gpucast batch`, to run on the virtual GPU or on a real card.

    python -m eval.papers.designs anova --python ENV/bin/python -o jobs.jsonl
    python -m eval.papers.designs montecarlo --runs 200 --seed 1 --python ENV/bin/python -o jobs.jsonl
    gpucast batch jobs.jsonl -o results.jsonl

anova: every model with every optimizer and batch size that the paper pairs it with, each --repeats times, on one card.
montecarlo: configurations drawn at random, with the place of zero_grad and the card. The same seed draws the same.
"""

import argparse
import dataclasses
import itertools
import json
import random
import sys
from pathlib import Path

from eval import ROOT

WORKLOAD = ROOT / "eval/memory/xmem_workload.py"
STEPS = 4
CNN_OPTIMIZERS = ("AdamW", "Adam", "SGD", "RMSprop", "Adagrad")
TRANSFORMER_OPTIMIZERS = ("AdamW", "Adam", "SGD", "Adafactor")
CNN_BATCHES = tuple(range(200, 701, 100))
TRANSFORMER_BATCHES = tuple(range(5, 56, 5))
LARGE_BATCHES = tuple(range(1, 9))
CNNS = [
    "VGG16",
    "VGG19",
    "ResNet101",
    "ResNet152",
    "MobileNetV2",
    "MobeNetV3Small",
    "MobeNetV3Large",
    "MnasNet",
    "RegNetX400MF",
    "RegNetY400MF",
    "ConvNeXtTiny",
    "ConvNeXtBase",
]
TRANSFORMERS = [
    "distilbert/distilgpt2",
    "openai-community/gpt2",
    "T5-small",
    "t5-base",
    "EleutherAI/gpt-neo-125M",
    "facebook/opt-125m",
    "facebook/opt-350m",
    "cerebras/Cerebras-GPT-111M",
]
LARGE_TRANSFORMERS = ["Qwen/Qwen3-0.6B"]  # and Pythia-1b, for which there is no configuration in eval/memory/configs
CARDS = ("rtx3060", "rtx4060")


@dataclasses.dataclass(frozen=True)
class Configuration:
    model: str
    optimizer: str
    batch: int
    zero_grad: int
    gpu: str
    repeat: int = 0

    @property
    def name(self):
        return f"{self.gpu} {self.model} {self.optimizer} {self.batch} z{self.zero_grad} #{self.repeat}"


def factors(models=None):
    """(model, optimizers, batch sizes) of table 2."""
    for names, optimizers, batches in (
        (CNNS, CNN_OPTIMIZERS, CNN_BATCHES),
        (TRANSFORMERS, TRANSFORMER_OPTIMIZERS, TRANSFORMER_BATCHES),
        (LARGE_TRANSFORMERS, TRANSFORMER_OPTIMIZERS, LARGE_BATCHES),
    ):
        for name in names:
            if not models or name in models:
                yield name, optimizers, batches


def anova(repeats=5, gpu="rtx3060", models=None):
    return [
        Configuration(model, optimizer, batch, 0, gpu, repeat)
        for model, optimizers, batches in factors(models)
        for optimizer, batch, repeat in itertools.product(optimizers, batches, range(repeats))
    ]


def monte_carlo(runs, seed, gpus=CARDS, models=None):
    """A model, then its optimizer and batch size (any within its range), the place of zero_grad and the card, all equally likely."""
    chance = random.Random(seed)
    table = list(factors(models))
    drawn = []
    for repeat in range(runs):
        model, optimizers, batches = chance.choice(table)
        batch = chance.randint(batches[0], batches[-1])
        drawn.append(Configuration(model, chance.choice(optimizers), batch, chance.choice((0, 1, 2)), chance.choice(gpus), repeat))
    return drawn


def job_of(configuration, python):
    command = [python, str(WORKLOAD), "--model", configuration.model, "--optimizer", configuration.optimizer]
    command += ["--batch", str(configuration.batch), "--zero-grad", str(configuration.zero_grad)]
    return {"name": configuration.name, "command": command, "gpu": configuration.gpu, "steps": STEPS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("design", choices=["anova", "montecarlo"])
    parser.add_argument("--runs", type=int, default=1306, help="of montecarlo (default %(default)s, the paper's)")
    parser.add_argument("--repeats", type=int, default=5, help="of anova (default %(default)s, the paper's)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gpu", action="append", help="a card of `gpucast gpus`; may be repeated for montecarlo (default: the paper's)")
    parser.add_argument("--model", action="append", help="only this model; may be repeated")
    parser.add_argument("--python", default=sys.executable, help="a Python with torch, torchvision and transformers")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    unknown = set(args.model or ()) - {model for model, _, _ in factors()}
    if unknown:
        sys.exit(f"designs.py: no model {', '.join(sorted(unknown))}; known: {', '.join(model for model, _, _ in factors())}")
    if args.design == "anova":
        configurations = anova(args.repeats, (args.gpu or CARDS)[0], args.model)
    else:
        configurations = monte_carlo(args.runs, args.seed, args.gpu or CARDS, args.model)
    args.output.write_text("".join(json.dumps(job_of(configuration, args.python)) + "\n" for configuration in configurations))
    print(f"{len(configurations)} jobs in {args.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
