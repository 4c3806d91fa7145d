"""Measured operations compared with `gpucast time --operations`: shared by memory.py and convolution.py, which
read data sets and print tables, and by the fits of their constants.
"""

import argparse
import json
import subprocess
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eval.data_sets import GPUS
from eval.jobs import GPUCAST
from eval.tables import sizes


@dataclass
class Row:
    table: str
    label: str  # the operator and precision; one class has one interval
    card: str
    measured_us: float
    operation: dict
    # For a label that includes the host's launches: the smallest row's time, and the part of it before a larger row's kernel.
    floor_us: float = 0.0
    floor_share: float = 0.0
    note: str = ""

    def label_us(self, kernel_us):
        return np.maximum(self.floor_us, self.floor_share * self.floor_us + kernel_us)


def ask(command, operations, card, constants=None):
    """The output of `gpucast time` for each operation of a file."""
    words = [str(command), "time", "--operations", str(operations), "--gpu", card]
    words += ["--constants", str(constants)] if constants else []
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}:\n{done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


class Judge:
    """Runs the command on rows, card by card; the operations are written once."""

    def __init__(self, rows):
        self.rows = list(rows)
        self.folder = tempfile.TemporaryDirectory()
        self.by_card = defaultdict(list)
        for i, row in enumerate(self.rows):
            self.by_card[row.card].append(i)
        for card, members in self.by_card.items():
            with open(f"{self.folder.name}/{card}", "w") as f:
                f.writelines(json.dumps(self.rows[i].operation) + "\n" for i in members)
        self.measured = np.array([row.measured_us for row in self.rows])

    def run(self, constants=None, cards=None):
        """(expected, low, high, ideal) in us for each row (NaN if its card is not in `cards`); `constants`: a dict, or one by card."""
        out = np.full((4, len(self.rows)), np.nan)
        for card in cards or self.by_card:
            file = f"{self.folder.name}/constants" if constants else None
            if file:
                with open(file, "w") as f:
                    json.dump({"schema_version": 1, **constants}, f)
            for i, value in zip(self.by_card[card], ask(GPUCAST, f"{self.folder.name}/{card}", card, file)):
                row = self.rows[i]
                out[:, i] = [row.label_us(value[name] / 1e3) for name in ("expected_ns", "low_ns", "high_ns", "ideal_ns")]
        return out


def errors(predicted, measured):
    return np.abs(predicted / measured - 1) * 100


def figures(error):
    """n, median, mean, 90th percentile and worst, as cells."""
    return "{} | {:.1f} | {:.1f} | {:.1f} | {:.0f}".format(len(error), *sizes(error))


def table(judge, result, left_out=None):
    """Markdown: a line for each class and card; `left_out`: the same with constants fitted without the card."""
    expected, low, high, ideal = result
    head = "| class | card | n | median % | mean | p90 | worst | roofline median | held by 90 % interval | its width |"
    print(head + (" not fitted: median | p90 | held |" if left_out is not None else ""))
    print("|---|---|" + "---|" * (head.count("|") - 3 + (3 if left_out is not None else 0)))
    groups = defaultdict(list)
    for i, row in enumerate(judge.rows):
        groups[row.label, row.card].append(i)
    for label in dict.fromkeys(row.label for row in judge.rows):
        cards = [card for of, card in groups if of == label]
        for card in [*cards, "all"] if len(cards) > 1 else cards:
            i = np.array([x for c in cards if card in (c, "all") for x in groups[label, c]])
            m = judge.measured[i]
            held = np.mean((low[i] <= m) & (m <= high[i])) * 100
            line = f"| {label} | {card} | {figures(errors(expected[i], m))} | {np.median(errors(ideal[i], m)):.1f} | {held:.0f} % | {np.mean((high[i] - low[i]) / expected[i]) * 100:.0f} % |"
            if left_out is not None:
                e = errors(left_out[i], m)
                there = left_out[i] * low[i] / expected[i], left_out[i] * high[i] / expected[i]
                kept = np.mean((there[0] <= m) & (m <= there[1])) * 100
                line += f" {np.median(e):.1f} | {np.quantile(e, 0.9):.1f} | {kept:.0f} % |" if np.all(np.isfinite(e)) else " | | |"
            print(line)


def tables(rows, cause, description):
    """The command of a module: a table for each data set, and each miss above 25 % counted by its cause (`cause(row, measured over expected)`)."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    every = [row for row in rows(parser.parse_args().data) if row.card in GPUS]
    for name in dict.fromkeys(row.table for row in every):
        judge = Judge([row for row in every if row.table == name])
        result = judge.run()
        print(f"\n## {name}\n")
        table(judge, result)
        causes, of = Counter(), Counter(row.label for row in judge.rows)
        for row, expected in zip(judge.rows, result[0]):
            if errors(expected, row.measured_us) > 25:
                causes[row.label, cause(row, row.measured_us / expected)] += 1
        print("\nOff by more than 25 %:\n" if causes else "\nNone is off by more than 25 %.")
        for (label, why), n in sorted(causes.items(), key=lambda item: (item[0][0], -item[1])):
            print(f"- {label}, {n} of {of[label]}: {why}")


def minimise(loss, start, steps=200, size=0.25):
    """Nelder and Mead's simplex, in logarithms: every constant is above 0."""
    from scipy.optimize import minimize

    begin = np.log(np.asarray(start, float))
    simplex = begin + size * np.eye(len(begin) + 1, len(begin), -1)
    options = {"initial_simplex": simplex, "maxiter": steps, "fatol": 1e-4, "xatol": np.inf}
    found = minimize(lambda x: loss(np.exp(x)), begin, method="Nelder-Mead", options=options)
    return np.exp(found.x), found.fun
