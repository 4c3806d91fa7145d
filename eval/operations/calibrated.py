#!/usr/bin/env python3
"""The effect of tools/calibrate.py: predicted matrix products of a card, before and after a calibration with four of the card's times.

    python -m eval.operations.calibrated --data DIR [--without FOLDER] [--gpucast PATH]

For each card and precision, the four measured products nearest to calibrate.py's replace its measurement; all others are
judged. "before": without the card's own constants (also with FOLDER/without-CARD.json, which fit_gemm.py makes without the card's rows);
the calibration uses the same constants as the comparison.
"naive": the four's FLOP/s over the datasheet's as the card's rate; this counts effects twice that the formula already has."""

import argparse
import contextlib
import json
from pathlib import Path

import numpy

from eval.jobs import add_gpucast_option
from eval.operations import rows as measured
from eval.tables import error, markdown_head, markdown_row, percent, sizes
from tools import calibrate

LIKE = [(8192, 8192, 8192), (4096, 4096, 4096), (8192, 4096, 1024), (4096, 4096, 4096)]
MOST = 2500


class Over(calibrate.Gpucast):
    """gpucast with other constants; for `card` only the caller's."""

    def __init__(self, command, before):
        super().__init__(command)
        self.before = before

    def expected_ns(self, card, operations, constants=None):
        own = (constants or {}).get("cards", {}).get(card)
        return super().expected_ns(card, operations, {**self.before, "cards": {card: own}})


def nearest(columns):
    """The rows most similar to those of the script: four different ones, aligned."""
    sizes = numpy.stack([columns["m"] * columns["batch"], columns["n"], columns["k"]])
    aligned = (sizes % 16 == 0).all(0) & ~columns["a_transposed"]
    taken = []
    for like in LIKE:
        distance = numpy.abs(numpy.log(sizes / numpy.array(like)[:, None])).sum(0) + numpy.where(aligned, 0, 0.3)
        taken.append(next(int(i) for i in numpy.argsort(distance) if int(i) not in taken))
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--without", default="build/eval/time")
    add_gpucast_option(parser)
    options = parser.parse_args()
    cards = {card["id"]: card for card in calibrate.Gpucast(options.gpucast).cards()}
    print(markdown_head(["class", "card", "precision", "n", "before: median %, 90th %", "naive", "calibrated"], words=7, tight=True))
    for (name, card, precision), columns in sorted(measured.gemms(options.data).items()):
        peak = cards[card]["peak_flop_per_s"].get(precision)
        if not peak or "bmm" in name:
            continue
        operations = [json.loads(line) for line in measured.gemm_lines(columns, precision).splitlines()]
        times, few = columns["ns"], nearest(columns)
        others = numpy.setdiff1d(numpy.random.default_rng(0).permutation(len(times))[:MOST], few)
        judged = [operations[i] for i in others]
        told = [{"operation": operations[i], "tells": f"rates.{precision}_fraction", "ns": float(times[i])} for i in few]
        without = Path(options.without) / f"without-{card}.json"
        gpucast = Over(options.gpucast, json.loads(without.read_text()) if without.exists() else {"schema_version": 1})
        rate = float(numpy.median([row["operation"]["flops"] / row["ns"] * 1e9 for row in told]) / peak)
        device = {key: cards[card][key] for key in ("name", "multiprocessors", "total_memory_bytes")}
        layers = [None, {"rates": {f"{precision}_fraction": rate, "source": "naive"}}]
        with contextlib.suppress(calibrate.Refused):
            layers.append(calibrate.fit({"device": device, "torch": "?", "cuda": "?", "date": "?", "rows": told}, gpucast, card)[1])
        cells = []
        for own in layers:
            middle, _, p90, _ = sizes(error(numpy.array(gpucast.expected_ns(card, judged, {"cards": {card: own}})), times[others]))
            cells.append(f"{percent(middle, 1)}, {percent(p90, 1)}")
        cells += ["refused, as before"] * (3 - len(cells))
        print(markdown_row([name, card, precision, len(others), *cells]), flush=True)


if __name__ == "__main__":
    main()
