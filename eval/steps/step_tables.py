"""Errors of predictions, in Markdown: plain functions of rows and predictions."""

import json
import math
import statistics

from eval import ROOT
from eval.tables import error, markdown, percent, signed, sizes

NOTED_ERROR = 0.25


def summary(errors):
    """median, mean, 90th percentile, worst of the errors' sizes; the median with its sign."""
    return [*(percent(size, 1) for size in sizes(errors)), signed(statistics.median(errors), 1)]


def middle(errors):
    """median (mean), or - for none."""
    return "{} ({})".format(*(percent(size, 1) for size in sizes(errors)[:2])) if errors else "-"


def judged(rows, predictions):
    return [(row, predictions[row.name]) for row in rows if row.name in predictions]


def inside(row, prediction):
    return prediction.low_ms <= row.measured_ms <= prediction.high_ms


def relative_width(prediction):
    return (prediction.high_ms - prediction.low_ms) / prediction.expected_ms


HEADER = ["", "n", "median", "mean", "p90", "worst", "bias", "in 90 % interval", "its width", "roofline"]


def line_of(title, pairs, published=()):
    errors = [error(p.expected_ms, row.measured_ms) for row, p in pairs]
    roofs = [error(p.roofline_ms, row.measured_ms) for row, p in pairs if p.roofline_ms > 0]
    held = percent(sum(inside(row, p) for row, p in pairs) / len(pairs), 1)
    width = percent(statistics.fmean(relative_width(p) for _, p in pairs), 1)
    theirs = [
        middle([error(row.published_ms[name], row.measured_ms) for row, _ in pairs if name in row.published_ms]) for name in published
    ]
    return [title, len(pairs), *summary(errors), held, width, middle(roofs), *theirs]


def overview(rows, predictions, keys):
    """A line for all rows, then one for each value of each key: {title: function of a row}."""
    pairs = judged(rows, predictions)
    if not pairs:
        return "no row has a prediction"
    published = sorted({name for row, _ in pairs for name in row.published_ms})
    lines = [line_of("all", pairs, published)]
    for key in keys:
        groups = {}
        for row, prediction in pairs:
            groups.setdefault(key(row), []).append((row, prediction))
        if len(groups) > 1:
            lines += [line_of(title, groups[title], published) for title in sorted(groups)]
    return markdown(HEADER + published, lines)


def parts_overview(rows, predictions):
    """For rows with separately measured phases."""
    found = {}
    for row, prediction in judged(rows, predictions):
        for phase, measured in row.parts_ms.items():
            if phase in prediction.phases_ms and measured > 0:
                found.setdefault(phase, []).append(error(prediction.phases_ms[phase], measured))
    if not found:
        return ""
    return markdown(["phase", "n", "median", "mean", "p90", "worst", "bias"], [[phase, len(e), *summary(e)] for phase, e in found.items()])


def shares(prediction, count=3):
    total = sum(prediction.kinds_ms.values())
    if not total:
        return "-"
    largest = sorted(prediction.kinds_ms.items(), key=lambda item: -item[1])[:count]
    return ", ".join(f"{kind} {100 * ms / total:.0f} %" for kind, ms in largest)


def misses(rows, predictions, causes=()):
    """Rows with errors above NOTED_ERROR. causes: (function of row and prediction, words); the first that applies is named."""
    lines = []
    for row, prediction in judged(rows, predictions):
        off = error(prediction.expected_ms, row.measured_ms)
        if abs(off) > NOTED_ERROR:
            cause = next((words for holds, words in causes if holds(row, prediction)), "not known")
            lines.append(
                (off, [row.name, f"{row.measured_ms:.1f}", f"{prediction.expected_ms:.1f}", signed(off, 1), shares(prediction), cause])
            )
    lines.sort(key=lambda line: -abs(line[0]))
    header = ["row", "measured ms", "predicted ms", "error %", "predicted for", "cause"]
    return markdown(header, [line for _, line in lines]) if lines else f"none above {100 * NOTED_ERROR:.0f} %"


# The part of one card's error, in its logarithm, that another card's error shares; known_share() fits it.
KNOWN_SHARE = json.loads((ROOT / "data/step.json").read_text(encoding="utf-8"))["step"]["known"]["share"]
WILD = 0.1


def with_known(rows, predictions, known):
    """[(row, prediction, measured / predicted of the same job on card `known`)]. A job is the same model, group and size."""
    times = {(row.table, row.model, row.group, row.size): row for row in rows if row.card == known and row.name in predictions}
    found = []
    for row, prediction in judged(rows, predictions):
        other = times.get((row.table, row.model, row.group, row.size))
        if row.card != known and other is not None:
            found.append((row, prediction, other.measured_ms / predictions[other.name].expected_ms))
    return found


def by_known(rows, predictions, known, share=KNOWN_SHARE):
    """[(row, expected ms)]: the prediction, corrected by its error on card `known`."""
    return [(row, prediction.expected_ms * factor**share) for row, prediction, factor in with_known(rows, predictions, known)]


def known_share(rows, predictions, known):
    """The share with the least sum of errors, in steps of a hundredth. Larger errors count as WILD: wild rows are so on all cards."""
    found = with_known(rows, predictions, known)

    def off(share):
        return sum(min(WILD, abs(math.log(p.expected_ms * factor**share / row.measured_ms))) for row, p, factor in found)

    return min((step / 100 for step in range(101)), key=off) if found else None


def known_overview(rows, predictions, known, fitted):
    """fitted(row): whether known_share() may see it."""
    groups = {}
    for row, expected in by_known(rows, predictions, known):
        half = "half that the share was fitted on" if fitted(row) else "not fitted"
        for title in (f"{row.card}, {half}", f"{row.card}, {row.group}, {half}"):
            groups.setdefault(title, []).append(error(expected, row.measured_ms))
    if not groups:
        return ""
    header = [f"from {known}", "n", "median", "mean", "p90", "worst", "bias"]
    best = known_share([row for row in rows if fitted(row)], predictions, known)
    fit = f"\n\nShare of the error on {known} that fits that half best: {best} (built in: {KNOWN_SHARE})." if best is not None else ""
    return markdown(header, [[title, len(e), *summary(e)] for title, e in sorted(groups.items())]) + fit
