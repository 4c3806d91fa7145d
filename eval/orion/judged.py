"""Measured training steps with each method's predictions, held out by row, by model or by card."""

import dataclasses
import hashlib
import json
import random
import re

from eval.steps.split import architecture, half
from python.orion import features, steps, trees

FOLDS = 5
# Chips that are sold as several cards: one of them would reveal too much about another.
CHIPS = {"a100": "A100", "v100": "V100", "titanv": "V100", "h100": "H100 and H200", "h200": "H100 and H200"}
MLP = re.compile(r"mixer|mlp")
CNN = re.compile(r"convnext")  # its 1 x 1 convolutions are linear layers in timm


@dataclasses.dataclass(frozen=True)
class Judged:
    name: str
    table: str
    group: str  # layout or precision
    card: str
    model: str  # architecture: other weights do not make another model
    family: str
    size: str  # of an input
    measured_ms: float
    step: steps.Step
    roofline_ms: float
    gpucast_ms: float
    seen_by_gpucast: bool  # some of its constants may have been fitted on it, or on its model on a sister card

    @property
    def chip(self):
        return next((chip for prefix, chip in CHIPS.items() if self.card.startswith(prefix)), self.card)


def model_of(row):
    """NVIDIA's two tasks and NeuSight's cells are of the same BERT."""
    name = architecture(row.model)
    return "bert_large" if name.startswith("bert_") else name


def family_of(model, step):
    if MLP.search(model):
        return "MLP"
    convolutions = step.layers["convolution"][0]
    return "CNN" if CNN.search(model) or convolutions > 0.5 * sum(layer[0] for layer in step.layers.values()) else "Transformer"


def judge(gpucast, rows, files, options_of, say):
    """[Judged] of the rows that have captures and cards; `options_of`: a table's options for `gpucast time`."""
    known = steps.cards(steps.ask(gpucast, "gpus")["gpus"])
    by_job = {}
    for row in rows:
        if row.card in known and row.job["name"] in files:
            by_job.setdefault(row.job["name"], []).append(row)
    for card in sorted({row.card for row in rows} - set(known)):
        say(f"{sum(row.card == card for row in rows)} rows of {card}: `gpucast gpus` does not have it")
    out, names = [], set()
    for name, mine in by_job.items():
        try:
            step, times = steps.read(gpucast, files[name], sorted({row.card for row in mine}), options_of(mine[0].table))
        except (RuntimeError, ValueError, KeyError) as error:
            say(f"{name}: {error}")
            continue
        for row in mine:
            if row.name in names:
                say(f"{row.name}: a second row of this name")
                continue
            names.add(row.name)
            model = model_of(row)
            out.append(
                Judged(
                    row.name,
                    row.table,
                    row.group,
                    row.card,
                    model,
                    family_of(model, step),
                    row.size,
                    row.measured_ms,
                    step,
                    steps.roofline_ms(times[row.card]),
                    times[row.card]["step"]["expected_ns"] / 1e6,
                    row.table.startswith("timm-") and half(row.model),
                )
            )
    return out, known


# --- What is held out --------------------------------------------------------------------------------------------------------------------


def folds(values, seed):
    """{value: fold}."""
    values = sorted(set(values))
    random.Random(seed).shuffle(values)
    return {value: place % FOLDS for place, value in enumerate(values)}


def held_out(rows, protocol, seed):
    """[rows that are judged together, by trees that none of them trained]."""
    if protocol == "card":
        key = {row.name: row.chip for row in rows}
    else:
        by = {row.name: row.name if protocol == "row" else row.model for row in rows}
        fold = folds(by.values(), seed)
        key = {name: fold[value] for name, value in by.items()}
    parts = {}
    for row in rows:
        parts.setdefault(key[row.name], []).append(row)
    return [parts[value] for value in sorted(parts)]


def kept(folder, content, fit):
    """The result of fit(), computed once for the same content: later read from a file of the folder."""
    path = folder / f"{hashlib.sha1(json.dumps(content).encode()).hexdigest()}.json"
    if not path.exists():
        found = fit()
        folder.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(found))
        fresh.replace(path)
    return json.loads(path.read_text())


PROTOCOLS = {"row": "five-fold", "model": "by model", "card": "by card"}


class Fits:
    """Predictions of trees, kept in a folder: the same rows are not fitted on twice."""

    def __init__(self, known_cards, folder, seed=1, progress=lambda text: None):
        self.cards, self.folder, self.seed, self.progress = known_cards, folder, seed, progress

    def features_of(self, method, row):
        return features.METHODS[method][1](row.step, self.cards[row.card])

    def train(self, method, rows, logarithm=True):
        x = [self.features_of(method, row) for row in rows]
        return trees.train(x, [row.measured_ms for row in rows], features.METHODS[method][0], logarithm, self.seed)

    def predictions(self, method, rows, protocol, logarithm=True):
        """{row name: ms}; rows without others to learn from are missing."""
        out = {}
        parts = held_out(rows, protocol, self.seed)
        for place, part in enumerate(parts):
            names = {row.name for row in part}
            others = [row for row in rows if row.name not in names]
            if not others:
                continue
            self.progress(f"{method}, {PROTOCOLS[protocol]}: {place + 1} of {len(parts)}")
            out.update(self._kept(method, others, part, logarithm))
        return out

    def _kept(self, method, others, part, logarithm):
        content = [
            method,
            logarithm,
            self.seed,
            trees.SETTINGS,
            [(row.name, row.measured_ms, self.features_of(method, row)) for row in others],
            [(row.name, self.features_of(method, row)) for row in part],
        ]

        def fit():
            model = self.train(method, others, logarithm)
            return {row.name: trees.predict(model, self.features_of(method, row)) for row in part}

        return kept(self.folder, content, fit)
