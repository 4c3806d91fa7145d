"""Fits constants of the time model: shared by fit_memory_bound.py and fit_convolution.py."""

import json
import random

import numpy as np

from eval import ROOT
from eval.operations.measured import Judge, minimise

FILES = ROOT / "data/time"
MODEL_ALONE = {"schema_version": 1, "operations": {"rates": {"source": "the model alone", "correction_share": 1e-30}}}


def merge(into, more):
    for key, value in more.items():
        into[key] = merge(into.get(key, {}), value) if isinstance(value, dict) else value
    return into


def family(card):
    return card.split("-")[0]


class Group:
    """Constants (kind, precision, name) that rows of some labels determine, and the start of the search."""

    def __init__(self, name, labels, constants, weights=None):
        self.name, self.labels, self.constants, self.weights = name, labels, constants, weights or {}

    def as_file(self, values):
        file = {}
        for (kind, precision, name), value in zip(self.constants, values):
            merge(file, {"operations": {kind: {precision: {"source": self.name, name: float(f"{value:.4g}")}}}})
        return file

    def start(self):
        built_in = json.loads((FILES / "operations.json").read_text())["operations"]
        return [built_in[kind].get(precision, {}).get(name) or built_in[kind]["all"][name] for kind, precision, name in self.constants]

    def fit(self, rows, without=None, base=None, a_card=250, steps=120):
        """Every card and label counts the same, unless it has a weight. `without`: a card whose family's rows are left out. Returns the values."""
        pick, chosen = random.Random(1), []
        parts = {}
        for row in rows:
            if row.label in self.labels and (without is None or family(row.card) != family(without)):
                parts.setdefault((row.card, row.label), []).append(row)
        for part in parts.values():
            chosen += pick.sample(part, min(a_card, len(part)))
        judge = Judge(chosen)
        weights = [self.weights.get(label, 1) for _, label in parts]
        members = [[i for i, row in enumerate(judge.rows) if (row.card, row.label) == part] for part in parts]
        start = self.start()

        def loss(values):
            predicted = judge.run(merge(json.loads(json.dumps(base or {})), self.as_file(values)))[0]
            error = np.minimum(np.abs(np.log(predicted / judge.measured)), 0.8)  # limits the effect of one wild row
            return np.average([np.mean(error[m]) for m in members], weights=weights) + 0.002 * np.sum(
                np.log(np.asarray(values) / start) ** 2
            )

        return minimise(loss, start, steps)[0]


def write_constants(file, source):
    for name in ("operations", "architectures"):
        path = FILES / f"{name}.json"
        data = json.loads(path.read_text())
        new = json.loads(json.dumps(file.get(name, {})))
        for of in new.values():
            for group in of.values():
                group["source"] = source
        merge(data[name], new)
        path.write_text(json.dumps(data, indent=1) + "\n")


def intervals(judge, predicted, kind_of, quantiles=(0.05, 0.95)):
    """measured / predicted at the quantiles, by kind and precision; cards count the same."""
    ratio = {}
    for i, row in enumerate(judge.rows):
        if np.isfinite(predicted[i]):
            ratio.setdefault(kind_of(row), {}).setdefault(row.card, []).append(judge.measured[i] / predicted[i])
    out = {}
    for key, cards in ratio.items():
        n = min(2000, max(len(v) for v in cards.values()))
        out[key] = [
            float(f"{x:.3g}")
            for x in np.quantile(np.concatenate([np.random.default_rng(0).choice(v, n) for v in cards.values()]), quantiles)
        ]
    return out
