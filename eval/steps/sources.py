#!/usr/bin/env python3
"""Does the interval of a step hold for a laboratory that gpucast never saw? Leaves whole sources out, one after the other.

    python -m eval.steps.sources --data DIR --captures DIR --python ENV/bin/python [--sample 40] [--out FILE] [--page]

A row's error is ln(measured / expected) = bias + source + row. *Source*: a laboratory's card, with its clocks, cooling, container and host.
The spread of both is estimated from the other sources; the interval for a new one is

    exp(bias -+ t sqrt(source^2 (1 + 1 / n) + row^2))

with Student's t for n - 1 degrees of freedom, of 90 % (two-sided). The rows are those of run_steps.py, and the captures may be shared
with it. FILE gets a line of JSON for each row.
"""

import argparse
import collections
import dataclasses
import json
import math
import statistics
import sys
from pathlib import Path

from eval import ROOT, jobs, page
from eval.steps import predict
from eval.steps import step_rows as measured
from eval.steps.split import half
from eval.tables import markdown, percent, quantile

COMMAND = "python -m eval.steps.sources --data DIR --captures DIR --python PYTHON"
PAGE = ROOT / "docs/results/time-accuracy.md"
LABORATORIES = {"timm-train": "timm", "timm-infer": "timm", "lambda": "Lambda", "lambda-suite": "Lambda", "own": "gpucast"}
CONFIDENCE = 0.9
KNOWN_SHARE = json.loads((ROOT / "data/step.json").read_text())["step"]["known"]["share"]  # as `--known` corrects other cards
FITTED = "rtx3090", "rtx4090", "rtx5090"  # half of timm's rows: constants were fitted on them


@dataclasses.dataclass(frozen=True)
class Judged:
    source: str
    card: str
    name: str
    model: str
    job: str
    kind: str  # "own": the card's constants were measured; "datasheet"
    bound: str
    measured_ms: float
    expected_ms: float
    low_ms: float
    high_ms: float
    gpu_ms: float
    host_ms: float

    @property
    def of_host(self):
        """The host alone decides, also a host that is quicker by a half."""
        return self.host_ms > 1.5 * self.gpu_ms

    @property
    def error(self):
        return math.log(self.measured_ms / self.expected_ms)

    @property
    def inside(self):
        return self.low_ms <= self.measured_ms <= self.high_ms

    @property
    def width(self):
        """Of the interval, in logarithms."""
        return math.log(self.high_ms / self.low_ms)


# --- The spread of sources and rows --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Spread:
    bias: float
    source: float  # standard deviation
    row: float
    sources: int

    def interval(self):
        """(low, high) of ln(measured / expected) for a source that was not seen."""
        away = student(self.sources - 1) * math.sqrt(self.source**2 * (1 + 1 / self.sources) + self.row**2)
        return self.bias - away, self.bias + away


def student(freedom):
    """The quantile of Student's t for CONFIDENCE, two-sided."""
    quantiles = {1: 6.31, 2: 2.92, 3: 2.35, 4: 2.13, 5: 2.02, 6: 1.94, 7: 1.89, 8: 1.86, 9: 1.83, 10: 1.81, 15: 1.75, 20: 1.72, 30: 1.70}
    return next((quantiles[known] for known in sorted(quantiles, reverse=True) if known <= freedom), math.inf) if freedom < 60 else 1.65


def by_laboratory(rows):
    """{(source, card): its rows}"""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row.source, row.card].append(row)
    return groups


def spread_of(rows):
    """By moments. Each laboratory's card with two rows and more has equal weight; None for fewer than three."""
    groups = [[row.error for row in some] for some in by_laboratory(rows).values() if len(some) >= 2]
    if len(groups) < 3:
        return None
    means = [statistics.fmean(errors) for errors in groups]
    within = [statistics.variance(errors) for errors in groups]
    of_means = statistics.fmean(variance / len(errors) for variance, errors in zip(within, groups))
    between = max(0.0, statistics.variance(means) - of_means)
    return Spread(statistics.fmean(means), math.sqrt(between), math.sqrt(statistics.fmean(within)), len(groups))


# --- Rows ----------------------------------------------------------------------------------------------------------------------------


def judged_rows(args):
    gpucast = jobs.find(args.gpucast)
    options = measured.Options(args.data, args.python, args.old_timm, args.sample, args.captures)
    found = []
    for table in args.tables:
        rows = [row for row in measured.TABLES[table](options) if row.card]
        files, problems = predict.captures(gpucast, rows, args.captures, args.jobs)
        print(f"{table}: {len(rows)} rows, {len(files)} captures, {len(problems)} without", file=sys.stderr)
        constants = measured.CONSTANTS.get(table)
        extra = ["--cpu-speed", str(args.cpu_speed), *(["--constants", str(constants)] if constants else [])]
        predictions = predict.predict(gpucast, rows, files, extra)
        for row in rows:
            if row.name in predictions and not (row.card in FITTED and table.startswith("timm") and half(row.model)):
                one = predictions[row.name]
                source, kind = LABORATORIES.get(table, table), "own" if one.card_measured else "datasheet"
                times = row.measured_ms, one.expected_ms, one.low_ms, one.high_ms, one.gpu_ms, one.host_ms
                found.append(Judged(source, row.card, row.name, row.model, row.job["name"], kind, one.bound, *times))
    return found


# --- Tables --------------------------------------------------------------------------------------------------------------------------


def covered(rows):
    return sum(row.inside for row in rows) / len(rows)


def held(rows, spread):
    low, high = spread.interval()
    return sum(low <= row.error <= high for row in rows) / len(rows)


def by_source(rows):
    lines, inside_all = [], collections.Counter()
    for source in sorted({row.source for row in rows}):
        for kind in ("own", "datasheet"):
            some = [row for row in rows if (row.source, row.kind) == (source, kind)]
            spread = spread_of([row for row in rows if row.source != source and row.kind == kind])
            if not some:
                continue
            share = held(some, spread) if spread else None
            if spread:
                inside_all.update({"n": len(some), "held": round(share * len(some))})
            lines.append(
                [
                    *(source, kind, len(some), percent(statistics.median(math.expm1(row.error) for row in some), 1)),
                    *(percent(covered(some), 0), f"{statistics.median(row.width for row in some):.2f}", percent(share, 0)),
                    f"{spread.interval()[1] - spread.interval()[0]:.2f}" if spread else "-",
                ]
            )
    total = f"{percent(inside_all['held'] / inside_all['n'], 0)}" if inside_all["n"] else "-"
    lines.append(["all", "", len(rows), "", percent(covered(rows), 0), f"{statistics.median(row.width for row in rows):.2f}", total, ""])
    head = ["source left out", "card known by", "n", "measured over expected, median %", "interval holds %", "its width"]
    return markdown([*head, "interval from the other sources holds %", "its width"], lines, words=2)


def spreads(rows):
    lines = []
    for kind in ("own", "datasheet"):
        spread = spread_of([row for row in rows if row.kind == kind])
        if spread:
            low, high = (math.exp(end) for end in spread.interval())
            lines.append(
                [kind, spread.sources, f"{spread.bias:+.3f}", f"{spread.source:.3f}", f"{spread.row:.3f}", f"{low:.2f} to {high:.2f}"]
            )
    return markdown(["card known by", "sources", "bias", "source", "row", "interval"], lines)


def hosts(rows):
    """How much longer a laboratory's host takes than this machine's."""
    lines = [
        [
            source,
            card,
            len(some),
            *(f"{value:.2f}" for value in quantile([row.measured_ms / row.expected_ms for row in some], [0.1, 0.5, 0.9])),
        ]
        for (source, card), some in sorted(by_laboratory([row for row in rows if row.of_host]).items())
    ]
    return markdown(["source", "card", "n", "10 % quantile", "median", "90 %"], lines, words=2)


def known_pairs(rows):
    """(error left, error before) of each row whose job was measured on another card by the same laboratory: as `--known` corrects it."""
    jobs_of = collections.defaultdict(list)
    for row in rows:
        jobs_of[row.source, row.job].append(row)
    pairs = []
    for some in jobs_of.values():
        for row in some:
            others = [other for other in some if other.card != row.card]
            pairs.extend((row.error - KNOWN_SHARE * other.error, row.error) for other in others[:3])
    return pairs


def known_table(rows):
    """What is left of the errors when another step of the same laboratory is known: one on the same card, or the same step on another card."""
    errors = [[row.error for row in some] for some in by_laboratory(rows).values()]
    after = [error - other for of_one in errors for i, error in enumerate(of_one) for j, other in enumerate(of_one) if j != i]
    pairs = known_pairs(rows)
    lines = []
    for name, some in (
        ("nothing", [error for of_one in errors for error in of_one]),
        ("one other step of this laboratory on this card", after),
        ("nothing", [old for _, old in pairs]),
        ("the same step on another card", [new for new, _ in pairs]),
    ):
        if some:
            low, high = quantile(some, [0.05, 0.95])
            lines.append([name, len(some), f"{math.exp(low):.2f} to {math.exp(high):.2f}", f"{high - low:.2f}"])
    return markdown(["known", "n", "90 % of measured over expected", "width"], lines)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--captures", type=Path, required=True)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--old-timm", default="")
    parser.add_argument("--tables", nargs="+", choices=list(measured.TABLES), default=list(measured.TABLES))
    parser.add_argument("--sample", type=int, default=0, help="only N models of timm, spread over families")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--cpu-speed", type=float, default=1.0)
    parser.add_argument("--out", type=Path, help="keep the rows in this file")
    parser.add_argument("--page", action="store_true", help="renew docs/results/time-accuracy.md")
    return parser.parse_args()


def main():
    args = parse_args()
    rows = judged_rows(args)
    if args.out:
        args.out.write_text("".join(json.dumps(dataclasses.asdict(row)) + "\n" for row in rows))
    of_gpu = [row for row in rows if not row.of_host]
    tables = {"sources": by_source(rows), "spreads": spreads(of_gpu), "hosts": hosts(rows), "known": known_table(of_gpu)}
    for text in tables.values():
        print(text, end="\n\n")
    if args.page:
        page.write(PAGE, COMMAND, f"{len(rows)} measured steps of {len({row.source for row in rows})} laboratories", tables)


if __name__ == "__main__":
    main()
