#!/usr/bin/env python3
"""Memory of PyTorch processes outside its allocator, by card: the ledger's estimate for unmeasured cards.

    python -m eval.memory.fit_beside [--data FILE] [--markdown docs/reference/ledger.md]

beside.csv has published out-of-memory messages: the process's memory minus PyTorch's allocated and cached memory. The line is fitted to
the cards of rows with an address; each card's median counts once. Rows without one (from an index of public files without addresses) only judge it.
"""

import argparse
import csv
import json
import statistics
from pathlib import Path

import numpy

from eval import page
from eval.tables import markdown_head, markdown_row, quantile

HERE = Path(__file__).resolve().parent

CONTEXT = json.loads((HERE.parents[1] / "data/ledger.json").read_text())["ledger"]["context"]  # of bare contexts
CONTEXT_MIB, CONTEXT_PER_STACK = CONTEXT["base_mib"], CONTEXT["per_stack_mib"]


def read(path):
    """[(card, stack MiB, beside MiB, has an address)] of jobs that were computing: while weights are loaded, few kernels are loaded."""
    rows = []
    for line in csv.DictReader(path.open()):
        if line["stage"] == "computing":
            stacks = int(line["multiprocessors"]) * int(line["threads"]) / 1024
            rows.append((line["card"], stacks, int(line["beside_mib"]), bool(line["source"])))
    return rows


def medians(rows):
    """{(card, stack MiB): median MiB}"""
    cards = {}
    for card, stacks, mib, _ in rows:
        cards.setdefault((card, stacks), []).append(mib)
    return {key: statistics.median(values) for key, values in cards.items()}


def fit(points):
    """(a, b) of a + b x stacks with the least squares of relative errors."""
    stacks, mib = numpy.array([(stacks, mib) for (_, stacks), mib in points.items()], float).T
    b, a = numpy.polyfit(stacks, mib, 1, w=1 / mib)
    return float(a), float(b)


def table(rows):
    sourced, others = [row for row in rows if row[3]], [row for row in rows if not row[3]]
    points, apart = medians(sourced), medians(others)
    a, b = fit(points)
    header = ["card", "stacks MiB", "messages", "median MiB", "line", "fitted without the card", "rows without an address", "median MiB"]
    lines = [markdown_head(header)]
    left_out, judged = [], []
    for key in sorted({*points, *apart}, key=lambda key: (key[1], key[0])):
        card, stacks = key
        count, other_count = (sum(row[:2] == key for row in part) for part in (sourced, others))
        line, own = a + b * stacks, "-"
        if key in points:
            c, d = fit({other: mib for other, mib in points.items() if other != key})
            own = f"{c + d * stacks:.0f}"
            left_out.append(abs((c + d * stacks) / points[key] - 1))
        if key in apart:
            judged.append(abs(line / apart[key] - 1))
        cells = [card, f"{stacks:.0f}", count or "-", f"{points[key]:.0f}" if count else "-", f"{line:.0f}", own]
        cells += [other_count or "-", f"{apart[key]:.0f}" if other_count else "-"]
        lines.append(markdown_row(cells))
    off = sorted(mib - a - b * stacks for _, stacks, mib, _ in rows)
    say = lambda errors: f"median {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} %"  # noqa: E731
    lines += ["", f"The line: {a:.1f} MiB + {b:.3f} x stacks. Errors of cards left out of the fit: {say(left_out)}. Errors of cards from the rows "
              f"without an address: {say(judged)}. 90 % of single messages are off by {quantile(off, 0.05):+.0f} to {quantile(off, 0.95):+.0f} MiB, "
              f"the worst by {off[0]:+.0f} and {off[-1]:+.0f}. Above the bare context this is {a - CONTEXT_MIB:.1f} MiB + "
              f"{b - CONTEXT_PER_STACK:.3f} x stacks."]  # fmt: skip
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE / "beside.csv", help="default %(default)s")
    parser.add_argument("--markdown", type=Path, help="also put the table into this document, between its markers")
    args = parser.parse_args()
    text = table(read(args.data))
    print(text)
    if args.markdown:
        args.markdown.write_text(page.between(args.markdown.read_text(), "fit_beside", text))


if __name__ == "__main__":
    main()
