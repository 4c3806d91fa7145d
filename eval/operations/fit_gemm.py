#!/usr/bin/env python3
"""Fits the constants of matrix products (data/time) to measured rows.

    python -m eval.operations.fit_gemm --data DIR [--write] [--out FOLDER]

The constants of an operation and precision are fitted on all cards at once, with one number for each card (the sustained share of its datasheet's
FLOP/s; the share of its bytes/s is the one that `add` and `relu` reach: fit_memory_bound.py). A card that is judged as unmeasured is left out of all of that: FOLDER/without-CARD.json holds
constants from the other cards, with the median of their sustained shares. --write puts the fit on all cards into data/time.
Needs numpy and scipy; less than a minute."""

import argparse
import json
from pathlib import Path

import numpy

from eval import ROOT
from eval.operations import gemm_model
from eval.operations import rows as measured
from eval.operations.fit import family as card_family

DATA = ROOT / "data" / "time"
ARCHITECTURES = json.loads((DATA / "architectures.json").read_text())["architectures"]
OF_ALL = json.loads((DATA / "operations.json").read_text())["operations"]["gemm"]["all"]  # not fitted
START = {
    "tensor": dict(
        k_overhead=100,
        edge=0.09,
        least_k_cycles=4,
        feed_bytes_per_cycle=36,
        tile_cycles=150,
        split_cycles=5000,
        floor_cycles=4500,
        wave_smoothing=0.6,
        overlap=0.35,
        l2_bytes_per_cycle=16,
        warm_inputs=0.6,
        warm_weights=0.11,
        throttle=0.3,
        throttle_ns=8e5,
    ),
    "plain": dict(
        k_overhead=15,
        edge=0.06,
        least_k_cycles=10,
        feed_bytes_per_cycle=36,
        tile_cycles=300,
        split_cycles=8000,
        floor_cycles=4300,
        wave_smoothing=0.3,
        overlap=0.2,
        l2_bytes_per_cycle=25,
        warm_inputs=0.3,
        warm_weights=0.3,
        throttle=3.0,
    ),
}
MOST = {
    "edge": 0.15,
    "wave_smoothing": 0.98,
    "overlap": 0.9,
    "warm_inputs": 1.5,
    "warm_weights": 1.0,
    "throttle": 20,
    "floor_cycles": 6000,
    "l2_bytes_per_cycle": 32,
    "split_cycles": 20000,
}
LEAST = {
    "l2_bytes_per_cycle": 8,
    "warm_inputs": 0.3,
    "warm_weights": 0.08,
    "k_overhead": 4,
    "feed_bytes_per_cycle": 16,
    "tile_cycles": 20,
    "floor_cycles": 2000,
}
START_RATE = 0.92  # of the datasheet's FLOP/s
TRANSPOSED = {6: 1.25}  # P100: the time of its linear layers over that of its batched products
PLAIN_EDGE = 0.06  # with more, the cards' levels (they have different tiles) drift apart
LARGEST = {6: 4096, 7: 16384}  # and the largest tile (m x n) of linear layers; 128 x 64 where none is named
THROTTLE_OF = {"tf32": 2.0, "fp8": 0.5, "int8": 0.5}  # a product in tf32 needs the power of two in fp16, and fp16's rate is twice as high
TILES = {
    6: (64, 128),
    7: (1, 1),
    8: (128, 128),
    9: (128, 128),
}  # by capability's first digit: tiles of batched fp32 products, from kernel names
# If the card that shows a limit of 75 W or 350 W is left out, its limit is unknown: then the other one's, or none.
POWER_WITHOUT = {
    "l40s": {"fp16_flop_per_joule": 1e13, "bf16_flop_per_joule": 1e13},
    "t4": {"fp32_flop_per_joule": ARCHITECTURES["6.1"]["rates"]["fp32_flop_per_joule"]},
    "p4": {"fp32_flop_per_joule": ARCHITECTURES["7.5"]["rates"]["fp32_flop_per_joule"]},
}
ROWS = 900  # of a class and card, drawn at random


def draw(rows, count=ROWS, seed=0):
    index = numpy.random.default_rng(seed).permutation(len(rows["ns"]))[:count]
    return {name: values[index] for name, values in rows.items()}


def bandwidth_part(card):
    """The share of the datasheet's that cards of its architecture reach."""
    return ARCHITECTURES[measured.GPUS[card]["compute_capability"]]["rates"]["dram_fraction"]


def constants(card, precision, shared, rate):
    gpu = measured.GPUS[card]
    tile = TILES.get(int(float(gpu["compute_capability"])), (128, 128))
    peak = gpu["peak_flop_per_s"]
    given = {
        "most_throttle": OF_ALL["most_throttle"],
        "thin_passes": OF_ALL["thin_passes"],
        "l2_copies": ARCHITECTURES[gpu["compute_capability"]]["rates"]["l2_copies"],
    }
    return {
        **shared,
        **given,
        "throttle": gemm_model.throttle(gpu, precision, {**shared, **given}),
        "unaligned_flop_per_cycle": OF_ALL["unaligned_flop_per_cycle"],
        "rate": rate * peak.get(precision, peak["fp32"]),
        "dram": bandwidth_part(card) * gpu["bandwidth_bytes_per_s"],
        "batched_tile_m": float(tile[0]),
        "batched_tile_n": float(tile[1]),
        "transposed": TRANSPOSED.get(int(float(gpu["compute_capability"])), 1.0),
        "largest_tile": LARGEST.get(int(float(gpu["compute_capability"])), 8192),
    }


def predict(family, key, rows, shared, rate):
    return gemm_model.gemm_ns(rows, measured.GPUS[key[1]], constants(key[1], key[2], shared, rate), family == "tensor", "bmm" in key[0])


def least_log_errors(predicted, count, f_scale, iterations, bound):
    """The `count` logarithms of factors with the best predicted(x) = [(predicted times, measured ones)]; values near 0 are slightly preferred."""

    from scipy.optimize import least_squares

    def residuals(x):
        return numpy.concatenate([numpy.log(times / ns) for times, ns in predicted(x)] + [0.03 * x])

    start, bounds = numpy.zeros(count), (-bound, bound)
    return least_squares(residuals, start, loss="soft_l1", f_scale=f_scale, diff_step=0.03, max_nfev=iterations, bounds=bounds).x


def fit(family, classes, given=None, iterations=18):
    """(shared constants, {card: part of its datasheet's FLOP/s}) of these classes. `given`: shared constants that are not fitted."""
    cards = sorted({key[1] for key in classes})
    names = list(START[family])
    drawn = {key: draw(rows) for key, rows in classes.items()}

    def unpack(x):
        factors = [float(factor) for factor in numpy.exp(x)]
        shared = dict(given or {})
        for name, factor in zip(names, factors):
            most = PLAIN_EDGE if family == "plain" and name == "edge" else MOST.get(name, numpy.inf)
            shared[name] = min(max(START[family][name] * factor, LEAST.get(name, 0)), most)
        return shared, {card: START_RATE * factor for card, factor in zip(cards, factors[len(names) :])}

    def predicted(x):
        shared, rates = unpack(x)
        return [(predict(family, key, rows, shared, rates[key[1]]), rows["ns"]) for key, rows in drawn.items()]

    return unpack(least_log_errors(predicted, len(names) + len(cards), 0.04, iterations, 2.5))


def level(family, classes, shared):
    """The part of its datasheet's FLOP/s of one card, everything else given."""
    drawn = {key: draw(rows, 400) for key, rows in classes.items()}

    def rate(x):
        return START_RATE * float(numpy.exp(x[0]))

    def predicted(x):
        return [(predict(family, key, rows, shared, rate(x)), rows["ns"]) for key, rows in drawn.items()]

    return rate(least_log_errors(predicted, 1, 0.04, 15, 2.5))


def rounded(numbers):
    return {name: float(f"{value:.4g}") for name, value in numbers.items()}


def layers(family, shared, rates, source):
    """A constants file for any card, from these cards."""
    precisions = ["fp32"] if family == "plain" else ["tf32", "fp16", "bf16", "fp8", "int8"]
    middle = float(numpy.median(list(rates.values())))
    fractions = {f"{precision}_fraction": middle for precision in (["fp32"] if family == "plain" else ["tf32", "fp16", "bf16"])}
    fractions["dram_fraction"] = float(numpy.median([bandwidth_part(card) for card in rates]))
    kinds = {p: {**rounded({**shared, "throttle": shared["throttle"] * THROTTLE_OF.get(p, 1)}), "source": source} for p in precisions}
    return kinds, rounded(fractions)


def family_rows(data):
    found = measured.gemms(data)
    tensor = {key: rows for key, rows in found.items() if key[2] in ("bf16", "fp16") and ("aic" in key[0] or "vidur" in key[0])}
    plain = {key: rows for key, rows in found.items() if key[2] == "fp32" and "ops_train" in key[0]}
    return {"tensor": tensor, "plain": plain}


def parse_args(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", default="build/eval/time")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


def main():
    options = parse_args(__doc__)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    files, heating = {}, {}
    capabilities = list(ARCHITECTURES)
    operations = json.loads((DATA / "operations.json").read_text())
    cards = json.loads((DATA / "cards.json").read_text())
    for family, classes in family_rows(options.data).items():
        # Cards with a falling clock (75 W or less) show nothing about a kernel's shape.
        # Neither do Pascal's linear layers: older kernels, a third slower than its batched products.
        steady = {
            key: rows
            for key, rows in classes.items()
            if measured.GPUS[key[1]]["power_w"] > 75 and not ("linear" in key[0] and key[1].startswith("p100"))
        }
        for left_out in [None, *sorted({key[1] for key in classes})]:
            # A100s on PCIe are the same chip as those on SXM.
            here = {key: rows for key, rows in steady.items() if not left_out or card_family(key[1]) != card_family(left_out)}
            # A card's heating does not depend on its kernels: from tensor cores, on cards other than the one left out.
            relative = next((card for card in heating if card and left_out and card_family(card) == card_family(left_out)), None)
            shared, rates = fit(family, here, heating[relative] if family == "plain" else None)
            if family == "tensor":
                heating[left_out] = {"throttle_ns": shared["throttle_ns"]}
            what = "NeuSight's linear and bmm rows (fp32)" if family == "plain" else "ai-dynamo's bf16 and vidur's fp16 linear layers"
            source = f"eval/operations/fit_gemm.py on {what}: {', '.join(sorted(rates))}"
            kinds, fractions = layers(family, shared, rates, source)
            print(
                family,
                "without",
                left_out,
                {name: round(value, 3) for name, value in shared.items()},
                rounded(rates),
                flush=True,
            )
            if left_out:
                # Each capability gets the others' medians, so nothing of the left-out card remains.
                file = files.setdefault(
                    left_out,
                    {
                        "schema_version": 1,
                        "operations": {"gemm": {}},
                        "architectures": {c: {"rates": {"source": source}} for c in capabilities},
                        "cards": {left_out: None},
                    },
                )
                file["operations"]["gemm"].update(kinds)
                for capability in capabilities:
                    file["architectures"][capability]["rates"].update({**fractions, **POWER_WITHOUT.get(left_out, {})})
                if left_out.startswith("p100"):  # its own rows give the extra time of Pascal's linear layers
                    for capability in (c for c in capabilities if c.startswith("6.")):
                        file["architectures"][capability]["gemm"] = {"fp32": {"source": source, "transposed": 1.0}}
            elif options.write:
                for precision, numbers in kinds.items():
                    operations["operations"]["gemm"][precision] = {**operations["operations"]["gemm"].get(precision, {}), **numbers}
                alone = {
                    card: level(
                        family,
                        {
                            key: rows
                            for key, rows in classes.items()
                            if key[1] == card and not ("linear" in key[0] and card.startswith("p"))
                        },
                        shared,
                    )
                    for card in sorted({key[1] for key in classes})
                }
                for card, rate in alone.items():
                    layer = cards["cards"].setdefault(card, {}).setdefault("rates", {})
                    for precision in ["fp32"] if family == "plain" else ["fp16", "bf16"]:
                        layer[f"{precision}_fraction"] = float(f"{rate:.3g}")
                    layer["source"] = "sustained rate of the card's own matrix products: eval/operations/fit_gemm.py"
    for card, file in files.items():
        (out / f"without-{card}.json").write_text(json.dumps(file, indent=1) + "\n")
    if options.write:
        (DATA / "operations.json").write_text(json.dumps(operations, indent=1) + "\n")
        (DATA / "cards.json").write_text(json.dumps(cards, indent=1) + "\n")


if __name__ == "__main__":
    main()
