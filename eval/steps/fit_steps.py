#!/usr/bin/env python3
"""Constants of a card, fitted to measured training steps of one half of timm's models and judged by the other.

    python -m eval.steps.fit_steps --data DIR --captures DIR --python ENV/bin/python
    python -m eval.steps.fit_steps --data DIR --captures DIR --python ENV/bin/python --table timm-infer --write constants.json
    python -m eval.steps.fit_steps --data DIR --captures DIR --python ENV/bin/python --table timm-infer --from-card rtx3090

The first prints the effect of one factor per operation kind: the errors of the other half's models, over many random halves. The second
fits constants of data/time to the half that split.py names, and writes them: the other half stays unseen. For timm-train they belong to a release (pytorch_1.12.json);
for another card than the table's first (--from-card) it fits only its rates. The third fits the factors to one card's rows and prints the errors of the other cards.
Halves are of architectures, so no model is in both halves under another name.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path

import numpy

from eval.jobs import add_gpucast_option
from eval.operations.fit import merge
from eval.steps import predict
from eval.steps import step_rows as measured
from eval.steps import step_tables as tables
from eval.steps.split import architecture, half, random_half
from eval.tables import error, markdown, percent

RIDGE = 0.5  # weight, in rows, of the belief that a factor is 1, for a kind with all of a step's time
HUBER = 0.1  # errors above this count linearly, not squared: mismatched models must not dominate
ROUNDS = 60


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--captures", type=Path, required=True)
    add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--old-timm", default="")
    parser.add_argument("--release", **measured.RELEASE_OPTION)
    parser.add_argument("--sample", type=int, default=0, help="only N models, spread over families (default: all)")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--seeds", type=int, default=20, help="random halves (default %(default)s)")
    parser.add_argument("--table", choices=list(measured.TABLES), nargs="+", default=["timm-train"])
    parser.add_argument("--from-card", help="fit the factors on this card's rows, judge the other cards'")
    parser.add_argument("--write", type=Path, help="fit constants of the card to the fixed half, and write them here")
    return parser.parse_args()


# --- The fit -----------------------------------------------------------------------------------------------------------------------------


def fit(samples):
    """{kind: factor} for samples of ({kind: predicted ms}, measured ms): least absolute log error, nearly, by Gauss-Newton."""
    kinds = sorted({kind for parts, _ in samples for kind in parts})
    predicted = numpy.array([[parts.get(kind, 0.0) for kind in kinds] for parts, _ in samples])
    measured_ms = numpy.array([ms for _, ms in samples])
    logs = numpy.zeros(len(kinds))
    for _ in range(ROUNDS if kinds else 0):
        times = predicted * numpy.exp(logs)
        total = times.sum(axis=1)
        off = numpy.log(measured_ms / total)
        slopes = times / total[:, None]
        weighted = slopes / numpy.maximum(1, abs(off) / HUBER)[:, None]
        step = numpy.linalg.solve(RIDGE * numpy.eye(len(kinds)) + weighted.T @ slopes, weighted.T @ off - RIDGE * logs)
        logs += step.clip(-0.3, 0.3)
        if abs(step).max() < 1e-6:
            break
    return dict(zip(kinds, numpy.exp(logs).tolist()))


def corrected(parts, factors):
    return sum(ms * factors.get(kind, 1.0) for kind, ms in parts.items())


# --- The effect --------------------------------------------------------------------------------------------------------------------------


def samples_of(pairs):
    return [(prediction.kinds_ms, row.measured_ms) for row, prediction in pairs]


def judge(pairs, factors):
    return [error(corrected(prediction.kinds_ms, factors), row.measured_ms) for row, prediction in pairs]


def halves(pairs, seeds):
    """Signed errors of the halves that were not fitted, one list per group, over all seeds; and every seed's median."""
    errors, medians = {}, {}
    for seed in range(seeds):
        fitted = random_half([row.model for row, _ in pairs], seed)
        factors = fit(samples_of([pair for pair in pairs if architecture(pair[0].model) in fitted]))
        for group in sorted({row.group for row, _ in pairs}):
            others = [pair for pair in pairs if architecture(pair[0].model) not in fitted and pair[0].group == group]
            found = judge(others, factors)
            errors.setdefault(group, []).extend(found)
            medians.setdefault(group, []).append(statistics.median(map(abs, found)))
    return errors, medians


# --- Constants ---------------------------------------------------------------------------------------------------------------------------

FORWARD = {  # fitted for every table: the constant, the start of the fit
    ("rates", "fp16_fraction"): 1.2,
    ("rates", "dram_fraction"): 0.95,
    ("convolution", "fp16", "forward_efficiency"): 0.9,
    ("convolution", "fp16", "forward_turned"): 0.37,
    ("convolution", "fp16", "forward_few_channels"): 1.5,
    ("convolution", "fp16", "forward_uneven"): 1.3,
    ("normalization", "all", "layer_row_cycles"): 500,
    ("elementwise", "all", "strided_fraction"): 0.6,
    ("elementwise", "all", "index_cycles"): 0.9,
    ("copy", "all", "strided_fraction"): 0.8,
    ("copy", "all", "index_cycles"): 0.9,
}
DEPTHWISE = {
    ("convolution", "fp16", "forward_depthwise"): 0.15,
    ("convolution", "fp16", "forward_depthwise_passes"): 1.3,
}
GRADIENTS = {
    ("convolution", "fp16", "data_gradient_efficiency"): 1.5,
    ("convolution", "fp16", "data_gradient_turned"): 1.5,
    ("convolution", "fp16", "data_gradient_uneven"): 1.3,
    ("convolution", "fp16", "weight_gradient_efficiency"): 0.5,
    ("convolution", "fp16", "weight_gradient_uneven"): 1.3,
    ("convolution", "fp16", "weight_gradient_turned"): 1.3,
    ("convolution", "fp16", "weight_gradient_few_channels"): 1.5,
    ("convolution", "fp16", "weight_gradient_depthwise_wide"): 0.005,
    ("normalization", "all", "batch_backward_passes"): 2.5,
    ("normalization", "all", "backward_passes"): 1.6,
}
GROUPS = {
    ("convolution", "fp16", "forward_grouped"): 0.5,
    ("convolution", "fp16", "data_gradient_grouped"): 0.2,
    ("convolution", "fp16", "weight_gradient_grouped"): 0.2,
    ("convolution", "fp16", "data_gradient_grouped_strided"): 5,
    ("convolution", "fp16", "forward_grouped_turned"): 1.5,
    ("convolution", "fp16", "data_gradient_grouped_turned"): 1.5,
    ("convolution", "fp16", "weight_gradient_grouped_turned"): 1.5,
}
RATES = {path: FORWARD[path] for path in FORWARD if path[0] == "rates"}
CONSTANTS = {"timm-train": {**FORWARD, **GRADIENTS, **GROUPS}, "timm-infer": {**FORWARD, **DEPTHWISE}}
AT_LEAST_1 = ("few_channels",)  # times, over those of channels in fours; no belief in the starting values
AT_MOST_1 = ("strided_fraction", "dram_fraction")
OF_ALL_CARDS = (
    "turned",
    "uneven",
    "grouped",
    "grouped_strided",
    "depthwise",
    "depthwise_wide",
    "depthwise_passes",
    "strided_fraction",
    "index_cycles",
)
BELIEF = 0.0003  # the cost of moving a constant by its logarithm
MEDIAN = 0.05  # errors above this count as their size, not as its square
SLOPE = 0.03  # the step of a constant's logarithm for its slope
STEPS = 8


def constants_file(card, values, source):
    """The cost of a library or a kernel is the same on all cards; the rest is the card's."""
    file = {"schema_version": 1, "operations": {}, "cards": {card: {}}}
    for path, value in values.items():
        group = file["operations"] if path[-1].endswith(OF_ALL_CARDS) else file["cards"][card]
        for word in path[:-1]:
            group = group.setdefault(word, {})
        group[path[-1]] = float(f"{value:.4g}")
        group["source"] = source
    return file


def bounds(path):
    return 0.0 if path[-1].endswith(AT_LEAST_1) else -math.inf, 0.0 if path[-1].endswith(AT_MOST_1) else math.inf


def newton_step(matrix, vector, place, limits):
    """The minimum of the quadratic; a constant that would leave its limits stays, and the others move without it."""
    step, moving = numpy.zeros(len(vector)), numpy.arange(len(vector))
    low, high = limits
    while moving.size:
        found = numpy.linalg.solve(matrix[numpy.ix_(moving, moving)], -vector[moving])
        stays = ((place[moving] <= low[moving]) & (found < 0)) | ((place[moving] >= high[moving]) & (found > 0))
        if not stays.any():
            step[moving] = found.clip(-0.5, 0.5)
            break
        moving = moving[~stays]
    return step


def least(starts, offs, say=lambda text: None):
    """The values with the least errors, in their logarithms: nearly least absolute, by Gauss-Newton with slopes by differences.

    offs: function of {path: value}; the logarithms of predicted / measured, one per row.
    """
    paths = list(starts)
    begin = numpy.log([starts[path] for path in paths])
    low, high = limits = numpy.array([bounds(path) for path in paths]).T
    belief = numpy.array([0.001 * BELIEF if path[-1].endswith(AT_LEAST_1) else BELIEF for path in paths])

    def values_of(place):
        return dict(zip(paths, numpy.exp(place).tolist()))

    def errors_for(place):
        return numpy.array(offs(values_of(place)))

    def cost(found, place):
        size = abs(found)
        errors = numpy.where(size < MEDIAN, size * size, 2 * MEDIAN * size - MEDIAN * MEDIAN).mean()
        return errors + (belief * (place - begin) ** 2).sum()

    place = begin
    now = errors_for(place)
    best = cost(now, place)
    for _ in range(STEPS):
        changes = numpy.diag(numpy.where(place + SLOPE <= high, SLOPE, -SLOPE))
        slopes = numpy.array([(errors_for(place + change) - now) / change.sum() for change in changes])
        weighted = slopes / numpy.maximum(1, abs(now) / MEDIAN) / len(now)
        matrix = weighted @ slopes.T + numpy.diag(belief + 1e-6)
        step = newton_step(matrix, weighted @ now + belief * (place - begin), place, limits)
        length = 1.0
        while length > 0.05:
            tried = (place + length * step).clip(low, high)
            found = errors_for(tried)
            if cost(found, tried) < best:
                break
            length /= 2
        else:
            break
        gain = best - cost(found, tried)
        place, now, best = tried, found, best - gain
        say(f"{best:.6f}: " + ", ".join(f"{path[-1]} {value:.4g}" for path, value in values_of(place).items()))
        if gain < 1e-6:
            break
    return values_of(place)


def predictions(gpucast, rows, files, more=None, say=lambda text: None):
    """For rows of several tables: each with its libraries' constants, and `more` on top."""
    found = {}
    for table in sorted({row.table for row in rows}):
        own = measured.CONSTANTS.get(table)
        file = merge(json.loads(own.read_text()) if own else {"schema_version": 1}, more or {})
        with tempfile.NamedTemporaryFile("w", suffix=".json") as constants:
            json.dump(file, constants)
            constants.flush()
            of_table = [row for row in rows if row.table == table]
            found.update(predict.predict(gpucast, of_table, files, ["--constants", constants.name], say))
    return found


def fit_constants(gpucast, card, rows, files, starts, source, path):
    def offs(values):
        found = predictions(gpucast, rows, files, constants_file(card, values, source))
        return [math.log(found[row.name].gpu_ms / row.measured_ms) for row in rows]

    values = least(starts, offs, say=lambda text: print(text, file=sys.stderr))
    path.write_text(json.dumps(constants_file(card, values, source), indent=1) + "\n")


# --- The command -------------------------------------------------------------------------------------------------------------------------


def line_of(title, errors, count=None, more=""):
    return [title, count or len(errors), *tables.summary(errors), more]


def halves_table(pairs, seeds):
    errors, medians = halves(pairs, seeds)
    lines = []
    for group, found in errors.items():
        before = [error(prediction.expected_ms, row.measured_ms) for row, prediction in pairs if row.group == group]
        spread = f"{percent(min(medians[group]), 1)} to {percent(max(medians[group]), 1)}"
        lines += [line_of(f"{group}, as it is", before), line_of(f"{group}, models not fitted", found, len(found) // seeds, spread)]
    return markdown(["", "n", "median", "mean", "p90", "worst", "bias", "median by half"], lines)


def cards_table(pairs, card):
    """Factors by group (layout, precision) of one card's rows, on the others'."""
    lines = []
    for group in sorted({row.group for row, _ in pairs}):
        mine = [pair for pair in pairs if pair[0].group == group]
        factors = fit(samples_of([pair for pair in mine if pair[0].card == card]))
        for other in sorted({row.card for row, _ in mine} - {card}):
            of_card = [pair for pair in mine if pair[0].card == other]
            before = [error(prediction.expected_ms, row.measured_ms) for row, prediction in of_card]
            lines += [
                line_of(f"{other}, {group}, as it is", before),
                line_of(f"{other}, {group}, factors of {card}", judge(of_card, factors)),
            ]
    return markdown(["", "n", "median", "mean", "p90", "worst", "bias", ""], lines)


def main():
    args = parse_args()
    options = measured.Options(args.data, args.python, args.old_timm, args.sample, args.captures, dict(args.release))
    rows = [row for table in args.table for row in measured.TABLES[table](options)]
    gpucast = predict.jobs.find(args.gpucast)
    files, _ = predict.captures(gpucast, rows, args.captures, args.jobs)
    pairs = tables.judged(rows, predictions(gpucast, rows, files, say=lambda text: print(text, file=sys.stderr)))
    if not pairs:
        sys.exit(f"fit_steps.py: no row of {args.data} has a prediction")
    if args.write:
        card = args.from_card or pairs[0][0].card
        mine = [row for row, _ in pairs if row.card == card and half(row.model)]
        if not mine:
            sys.exit(f"fit_steps.py: no row of {card} is of the half that is fitted")
        if len(args.table) > 1 or args.table[0] not in CONSTANTS:
            sys.exit(f"fit_steps.py: --write takes one table of: {', '.join(CONSTANTS)}")
        source = f"eval/steps/fit_steps.py --table {args.table[0]}: {len(mine)} rows, the architectures that eval/steps/split.py names"
        fit_constants(gpucast, card, mine, files, CONSTANTS[args.table[0]] if card == pairs[0][0].card else RATES, source, args.write)
    elif args.from_card:
        print(f"Errors in %; factors fitted on {args.from_card}.\n\n" + cards_table(pairs, args.from_card))
    else:
        print(f"Errors in %, over {args.seeds} random halves of the models.\n\n" + halves_table(pairs, args.seeds))


if __name__ == "__main__":
    main()
