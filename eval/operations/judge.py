#!/usr/bin/env python3
"""The errors of `gpucast time --operations` on measured operations: a Markdown table by card and class.

    python -m eval.operations.judge --data DIR [--gpu CARD ...] [--without FOLDER] [--gpucast PATH] [--kinds gemm attention]

"left out": constants of FOLDER/without-CARD.json (fit_gemm.py, fit_attention.py), made without the card's rows. "level known": the same, with
one number from 20 of the card's rows (the median of measured over expected, as from a calibration), judged on the others. "built in":
the constants of the command, on rows that no fit has seen: the other half of the weights (rows.fitted_half), or of the layouts of heads. Rows of one
weight, or few rows, are all judged. The roofline is max(FLOPs, bytes) at the datasheet's rates; of a layer in fp8, the product's."""

import argparse
import tempfile
from pathlib import Path

import numpy

from eval.jobs import add_gpucast_option
from eval.operations import rows as measured
from eval.operations.measured import ask, errors, figures
from eval.tables import markdown_head

ROWS = 900  # of a class in fp32, which an older fit drew at random
FEW = 100
FEW_OF_WINDOW = 50  # prefills with a window: half of them are fitted, too
KNOWN = 20

# NeuSight's (ASPLOS '25) own figures for its predictor, mean over its test operators: a fully connected layer and a batched product.
NEUSIGHT_PUBLISHED = "NeuSight's own figures are means over models, not these rows: 5.2 % median, 7.3 % mean on 26 training cells."


def ask_lines(gpucast, lines, card, constants):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(lines)
        file.flush()
        return ask(gpucast, file.name, card, constants)


def not_fitted(kind, columns, precision, card):
    if kind == "attention":
        return ~measured.fitted_half(columns, measured.LAYOUT)
    rest = ~measured.fitted_half(columns)
    if precision == "fp32" and card != "t4":
        rest[numpy.random.default_rng(0).permutation(len(rest))[:ROWS]] = False
    return rest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--gpu", nargs="*")
    parser.add_argument("--without", default="build/eval/time")
    add_gpucast_option(parser)
    parser.add_argument("--kinds", nargs="*", default=["gemm", "attention"])
    parser.add_argument("--intervals", action="store_true", help="also print the quantiles of measured over expected, pooled over classes")
    options = parser.parse_args()
    header = ["class", "card", "precision", "constants", "n", "median %", "mean %", "90th %", "worst %"]
    header += ["roofline median %", "interval holds %", "mean width"]
    print(markdown_head(header, words=len(header), tight=True))
    pooled = {}
    for kind in options.kinds:
        read, lines_of = {"gemm": (measured.gemms, measured.gemm_lines), "attention": (measured.attentions, measured.attention_lines)}[kind]
        for (name, card, precision), columns in sorted(read(options.data).items()):
            if options.gpu and card not in options.gpu:
                continue
            lines = lines_of(columns, precision)
            without = Path(options.without) / f"without-{card}.json"
            for label, constants in (("left out", without), ("built in", None)):
                if constants and not constants.exists():
                    continue
                answers = ask_lines(options.gpucast, lines, card, constants)
                ns, before = columns["ns"], columns.get("before_ns", 0)
                expected, low, high, ideal = (
                    before + numpy.array([answer[field] for answer in answers])
                    for field in ("expected_ns", "low_ns", "high_ns", "ideal_ns")
                )
                rest = not_fitted(kind, columns, precision, card)
                if not constants and rest.sum() > (FEW_OF_WINDOW if kind == "attention" else 2 * FEW):
                    ns, expected, low, high, ideal = ns[rest], expected[rest], low[rest], high[rest], ideal[rest]
                held, width = 100 * ((low <= ns) & (ns <= high)).mean(), ((high - low) / expected).mean()
                roof = 100 * numpy.median(numpy.abs(ideal / ns - 1))
                print(
                    f"| {name} | {card} | {precision} | {label} | {figures(errors(expected, ns))} | {roof:.1f} | {held:.0f} | {width:.2f} |",
                    flush=True,
                )
                pooled.setdefault((kind, precision, label), []).append(ns / expected)
                if constants and len(ns) > 2 * KNOWN:
                    known = numpy.random.default_rng(1).permutation(len(ns))[:KNOWN]
                    rest = numpy.setdiff1d(numpy.arange(len(ns)), known)
                    scale = numpy.median(ns[known] / expected[known])
                    print(
                        f"| {name} | {card} | {precision} | left out, level known ({scale:.2f}) | {figures(errors(expected[rest] * scale, ns[rest]))} | | | |",
                        flush=True,
                    )
                    pooled.setdefault((kind, precision, "level known"), []).append(ns[rest] / expected[rest] / scale)
    if options.intervals:
        header = ["kind", "precision", "constants", "5th percentile of measured / expected", "95th"]
        print("\n" + markdown_head(header, words=len(header), tight=True))
        for (kind, precision, label), ratios in sorted(pooled.items()):
            # Each class and card counts the same, whatever its number of rows.
            quantiles = numpy.mean([numpy.quantile(ratio, [0.05, 0.95]) for ratio in ratios], axis=0)
            print(f"| {kind} | {precision} | {label} | {quantiles[0]:.2f} | {quantiles[1]:.2f} |")
    print(f"\n{NEUSIGHT_PUBLISHED}")


if __name__ == "__main__":
    main()
