#!/usr/bin/env python3
"""Fits data/time/corrections.json: what measured kernels of a card say beyond the model (src/time/correction.h).

    python -m eval.operations.fit_corrections --data DIR [--gpucast PATH] [--write]

After the fits of the model's constants, with a gpucast that has them. The rows of a card and class are halved by weight, or by layout of heads
(rows.fitted_half), as in the other fits; only one half is used, and judge.py reports the other one. Trees are fitted to log(measured / expected)
of the model alone (gradient boosting, absolute errors). Their size was chosen by leaving out, in turn, a quarter of the fitted half's weights; a
class whose median does not fall by a twentieth in this way, or whose 90th percentile rises, gets no correction. The interval is from the same
quarters. Needs numpy and lightgbm; half a minute."""

import argparse
import json
import tempfile
from pathlib import Path

import numpy

from eval import ROOT
from eval.jobs import add_gpucast_option
from eval.operations import rows as measured
from eval.operations.fit import MODEL_ALONE
from eval.operations.judge import ask_lines
from eval.tables import sizes

FILE = ROOT / "data" / "time" / "corrections.json"
TREES, FOLDS, LEAST_GAIN = 40, 4, 0.05
SETTINGS = {"objective": "l1", "learning_rate": 0.25, "num_leaves": 16, "min_child_samples": 20, "subsample": 0.8, "subsample_freq": 1, "colsample_bytree": 0.8, "n_jobs": 1, "verbose": -1, "deterministic": True}  # fmt: skip
BEYOND = 1.0  # log2: a correction is used up to half the least and twice the greatest size of its rows
LETTERS = {"gemm": "mnkb", "attention": "bqhgdw"}
GROUPS = {"gemm": ("n", "k"), "attention": measured.LAYOUT}
HALF_PRECISIONS = ["fp16", "bf16"]
AIC, VIDUR, PREFILL = "aic_gemm_bf16 (one layer)", "vidur_ops (linear layers)", "aic_attention prefill"
H100S = ["h200", "h100-80", "h100-64", "h100-94", "h100-96", "h100-nvl", "h800", "h200-nvl", "gh200-96"]
# Card of the rows: the cards that the correction is for. They have the same chip with the same number of multiprocessors.
SAME_CHIP = {
    "a100-80": ["a100-80", "a100-40", "a800-80"],
    "a100-80-pcie": ["a100-80-pcie", "a100-40-pcie", "a800-40-pcie", "a800-80-pcie"],
    "a40": ["a40"],
    "h200": H100S,
    "b200": ["b200"],
    "l40s": ["l40s"],
    "a100-40-pcie": ["a100-40", "a100-80", "a800-80", "a100-40-pcie", "a100-80-pcie", "a800-40-pcie", "a800-80-pcie"],
    "p100-16-pcie": ["p100-16-pcie", "p100-12-pcie", "p100-16-sxm"],
    "p4": ["p4"],
    "t4": ["t4"],
    "v100-32-pcie": ["v100-32-pcie", "v100-16-pcie", "v100-16", "v100-32"],
}
# (kind, class, card of the rows, precision of the rows, precisions that the correction is for, batched)
ENTRIES = [
    *(("gemm", AIC, card, "bf16", HALF_PRECISIONS, False) for card in ("a100-80", "b200", "h200", "l40s")),
    *(
        ("gemm", f"neusight ops_train {op}", card, "fp32", ["fp32"], op == "bmm")
        for card in ("a100-40-pcie", "p100-16-pcie", "p4", "t4", "v100-32-pcie")
        for op in ("linear", "bmm")
    ),
    *(("gemm", VIDUR, card, "fp16", HALF_PRECISIONS, False) for card in ("a100-80-pcie", "a40")),
    *(
        ("attention", f"{PREFILL}, {seen}", card, "bf16", HALF_PRECISIONS, False)
        for card in ("a100-80", "b200", "h200", "l40s")
        for seen in ("causal", "window")
    ),
]


def model_alone(gpucast, lines, card):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(MODEL_ALONE, file)
        file.flush()
        return ask_lines(gpucast, lines, card, file.name)


def logs(kind, columns, expected_ns, ideal_ns):
    """The features of correction.cc, in the order of its letters."""
    if kind == "gemm":
        sizes_of = [columns[name] for name in ("m", "n", "k", "batch")]
    else:
        sizes_of = [columns[name] for name in ("batch", "seq", "heads", "kv_heads", "head_dim")] + [columns["window_size"] + 1]
    return numpy.log2(numpy.array([expected_ns, expected_ns / ideal_ns, *sizes_of], dtype=float)).T


def rows_of(options, tables, entry):
    """(features, log(measured / expected), group of each row) of the fitted half."""
    kind, name, card, precision, _, _ = entry
    columns = tables[kind][name, card, precision]
    lines_of = measured.gemm_lines if kind == "gemm" else measured.attention_lines
    answers = model_alone(options.gpucast, lines_of(columns, precision), card)
    expected, ideal = (numpy.array([answer[field] for answer in answers]) for field in ("expected_ns", "ideal_ns"))
    half = measured.fitted_half(columns, GROUPS[kind])
    group = numpy.array([hash(key) for key in zip(*(columns[field] for field in GROUPS[kind]))])
    return logs(kind, columns, expected, ideal)[half], numpy.log(columns["ns"] / expected)[half], group[half]


def fitted(features, target):
    import lightgbm

    return lightgbm.LGBMRegressor(n_estimators=TREES, **SETTINGS).fit(features, target)


def left_out(features, target, group):
    """Each row's correction by trees that have not seen its group."""
    groups = numpy.unique(group)
    fold = dict(zip(groups, numpy.random.default_rng(0).integers(0, FOLDS, len(groups))))
    of_row = numpy.array([fold[value] for value in group])
    out = numpy.zeros(len(target))
    for part in range(FOLDS):
        seen = of_row != part
        out[~seen] = fitted(features[seen], target[seen]).predict(features[~seen])
    return out


def written(node, letters):
    """A tree as correction.cc reads it: a node before its two branches."""
    if "leaf_value" in node:
        return f"{node['leaf_value']:.4f}"
    letter = letters[node["split_feature"]]
    return f"{letter}{node['threshold']:.3f} {written(node['left_child'], letters)} {written(node['right_child'], letters)}"


def percent(error):
    return 100 * numpy.abs(numpy.expm1(error))


def correction(options, tables, entry):
    kind, name, card, precision, precisions, batched = entry
    if (name, card, precision) not in tables[kind]:
        return None
    features, target, group = rows_of(options, tables, entry)
    rest = target - left_out(features, target, group)
    before, after = percent(-target), percent(-rest)
    used = numpy.median(after) <= (1 - LEAST_GAIN) * numpy.median(before) and numpy.quantile(after, 0.9) <= numpy.quantile(before, 0.9)
    cells = [*sizes(before), *sizes(after)]
    print(f"{name} on {card}: {len(target)} rows, {cells[0]:.1f} / {cells[2]:.1f} % alone, {cells[4]:.1f} / {cells[6]:.1f} % corrected" + ("" if used else ", not used"), flush=True)  # fmt: skip
    if not used:
        return None
    letters = "tr" + LETTERS[kind]
    trees = fitted(features, target).booster_.dump_model()["tree_info"]
    low, high = numpy.exp(numpy.quantile(rest, [0.05, 0.95]))
    bounds = features.min(axis=0) - BEYOND, features.max(axis=0) + BEYOND
    return {
        "source": f"python -m eval.operations.fit_corrections: half of the rows of {name}, {card}",
        "kind": kind,
        "precisions": precisions,
        "cards": SAME_CHIP[card],
        "batched": batched,
        "low": round(float(low), 3),
        "high": round(float(high), 3),
        "ranges": {letters[i]: [round(float(bounds[0][i]), 2), round(float(bounds[1][i]), 2)] for i in range(2, len(letters))},
        "trees": [written(tree["tree_structure"], letters) for tree in trees],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    add_gpucast_option(parser)
    parser.add_argument("--write", action="store_true", help=f"write {FILE.relative_to(ROOT)}")
    options = parser.parse_args()
    tables = {"gemm": measured.gemms(options.data), "attention": measured.attentions(options.data)}
    found = [correction(options, tables, entry) for entry in ENTRIES]
    if options.write:
        Path(FILE).write_text(json.dumps({"schema_version": 1, "corrections": [entry for entry in found if entry]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
