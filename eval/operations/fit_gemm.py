#!/usr/bin/env python3
"""Fits the constants of matrix products (data/time) to measured rows.

    python -m eval.operations.fit_gemm --data DIR [--only NAME ...] [--write] [--out FOLDER]

Only half of the rows is used: all rows of one weight (n, k) are on one side (rows.fitted_half); judge.py reports the other half. B200's table holds half
of its weights already: `--every` fits on all rows. The search begins
at the constants of data/time. FITS says which rows give which layer: constants that all cards share (`all`, with one number for each card, the
share of its datasheet's FLOP/s), those of an architecture, and those of a card whose rows were measured in another way or at another clock.
A card that is judged as unmeasured is left out of all of that: FOLDER/without-CARD.json (`--only without`) holds the shared constants from the
other cards, with the median of their shares.
Needs numpy, numba and cma; a minute or two for each fit."""

import argparse
import json
from pathlib import Path

import numpy

from eval import ROOT
from eval.operations import gemm_model
from eval.operations import rows as measured
from eval.operations.fit import family as card_family
from eval.tables import error, sizes

DATA = ROOT / "data" / "time"
FILES = ("operations", "architectures", "cards")
AIC, AIC_FP8, VIDUR = "aic_gemm_bf16 (one layer)", "aic_gemm_fp8 (trtllm's layer)", "vidur_ops (linear layers)"
OF_ALL = [(AIC, "a100-80", "bf16"), (VIDUR, "a40", "fp16"), (AIC, "h200", "bf16"), (AIC, "l40s", "bf16")]
PLAIN = [
    (f"neusight ops_train {op}", card, "fp32") for card in ("a100-40-pcie", "p100-16-pcie", "v100-32-pcie") for op in ("bmm", "linear")
]
T4 = [(f"neusight ops_train {op}", "t4", "fp32") for op in ("bmm", "linear")]
TENSOR_PRECISIONS = ("tf32", "fp16", "bf16")
# The layer that a fit writes: a file, a card or capability, precisions; and the classes of rows.
FITS = {
    "all": ("operations", None, (*TENSOR_PRECISIONS, "fp8", "int8"), OF_ALL),
    "8.0": ("architectures", "8.0", TENSOR_PRECISIONS, [(AIC, "a100-80", "bf16")]),
    "8.6": ("architectures", "8.6", TENSOR_PRECISIONS, [(VIDUR, "a40", "fp16")]),
    "8.9": ("architectures", "8.9", TENSOR_PRECISIONS, [(AIC, "l40s", "bf16")]),
    "9.0": ("architectures", "9.0", TENSOR_PRECISIONS, [(AIC, "h200", "bf16")]),
    "10.0": ("architectures", "10.0", TENSOR_PRECISIONS, [(AIC, "b200", "bf16")]),
    "8.9 fp8": ("architectures", "8.9", ("fp8",), [(AIC_FP8, "l40s", "fp8")]),
    "9.0 fp8": ("architectures", "9.0", ("fp8",), [(AIC_FP8, "h200", "fp8")]),
    "10.0 fp8": ("architectures", "10.0", ("fp8",), [(AIC_FP8, "b200", "fp8")]),
    "a100-80-pcie": ("cards", "a100-80-pcie", ("fp16", "bf16"), [(VIDUR, "a100-80-pcie", "fp16")]),
    "t4": ("cards", "t4", ("fp32",), T4),
}
SEARCHED = [
    "k_overhead",
    "later_overhead",
    "edge",
    "feed_bytes_per_cycle",
    "tile_cycles",
    "latency_cycles",
    "resident",
    "split_cycles",
    "floor_cycles",
    "wave_smoothing",
    "overlap",
    "l2_bytes_per_cycle",
    "store_bytes_per_cycle",
    "dram_fraction",
    "warm_inputs",
    "warm_weights",
    "throttle",
    "throttle_ns",
]
LEAST = {
    "overlap": 0.05,
    "later_overhead": 0.02,
    "dram_fraction": 0.6,
    "l2_bytes_per_cycle": 5,
    "store_bytes_per_cycle": 5,
    "latency_cycles": 0.1,
}
MOST = {
    "edge": 0.4,
    "wave_smoothing": 0.98,
    "overlap": 0.9,
    "later_overhead": 1.0,
    "dram_fraction": 1.05,
    "warm_inputs": 2.0,
    "warm_weights": 1.0,
    "l2_bytes_per_cycle": 70,
    "store_bytes_per_cycle": 70,
    "resident": 8,
}
LEAST_SHARE, MOST_SHARE = 0.5, 1.3  # of the datasheet's FLOP/s
THROTTLE_OF = {"tf32": 2.0, "fp8": 0.5, "int8": 0.5}  # a product in tf32 needs the power of two in fp16, and fp16's rate is twice as high
# If the card that shows a limit of 75 W or 350 W is left out, its limit is unknown: then the other one's, or none.
POWER_WITHOUT = {
    "l40s": {"fp16_flop_per_joule": 1e13, "bf16_flop_per_joule": 1e13},
    "t4": {"fp32_flop_per_joule": 7.55e10},
    "p4": {"fp32_flop_per_joule": 7e10},
}
ROWS = 2000  # of a class, drawn at random
SHARED_ROWS = 800  # same, where several classes are fitted together


def built_in():
    return {name: json.loads((DATA / f"{name}.json").read_text())[name] for name in FILES}


def draw(rows, count=ROWS, seed=0):
    index = numpy.random.default_rng(seed).permutation(len(rows["ns"]))[:count]
    return {name: values[index] for name, values in rows.items()}


def half(rows, fitted=True):
    index = measured.fitted_half(rows) == fitted
    return {name: values[index] for name, values in rows.items()}


def layers_of(data, card, with_card=True, with_architecture=True):
    gpu = measured.GPUS[card]
    found = [data["operations"]]
    found += [data["architectures"][gpu["compute_capability"]]] if with_architecture else []
    return found + ([data["cards"][card]] if with_card and card in data["cards"] else [])


def gemm_constants(data, card, precision, **layers):
    out = {}
    for layer in layers_of(data, card, **layers):
        for name in ("all", precision):
            out.update(layer.get("gemm", {}).get(name, {}))
    return out


def rates_of(data, card):
    out = {}
    for layer in layers_of(data, card)[1:]:
        out.update(layer.get("rates", {}))
    return out


def sustained_share(rates, card, precision):
    """Of the datasheet's FLOP/s, as card_rates() computes it."""
    gpu = measured.GPUS[card]
    unit = precision if precision in gpu["peak_flop_per_s"] else "fp32"
    return min(rates[f"{unit}_fraction"], gpu["power_w"] * rates[f"{unit}_flop_per_joule"] / gpu["peak_flop_per_s"][unit])


def predict(key, rows, constants, rates, share):
    """`share`: of the datasheet's FLOP/s."""
    gpu, precision = measured.GPUS[key[1]], key[2]
    peak = gpu["peak_flop_per_s"].get(precision, gpu["peak_flop_per_s"]["fp32"])
    c = {
        **constants,
        "l2_copies": rates["l2_copies"],
        "throttle": gemm_model.throttle(gpu, precision, constants),
        "rate": share * peak,
        "dram": rates["dram_fraction"] * gpu["bandwidth_bytes_per_s"],
    }
    return rows.get("before_ns", 0) + gemm_model.gemm_ns(rows, gpu, c, precision != "fp32", "bmm" in key[0])


def search(classes, start, rates, evaluations, names=SEARCHED, shares=None):
    """(constants, {card: share}) with the least mean error of the logarithms; a wild row counts little. Classes count the same."""
    import cma

    cards = sorted({key[1] for key in classes})
    count = SHARED_ROWS if len(classes) > 1 else ROWS
    drawn = {key: draw(rows, count) for key, rows in classes.items()}
    logs = {key: numpy.log(rows["ns"]) for key, rows in drawn.items()}
    shares = shares or {card: 0.9 for card in cards}

    def unpack(x):
        factors = numpy.exp(x)
        found = dict(start)
        for name, factor in zip(names, factors):
            found[name] = min(max(start[name] * factor, LEAST.get(name, 0)), MOST.get(name, numpy.inf))
        return found, {card: min(max(shares[card] * factor, LEAST_SHARE), MOST_SHARE) for card, factor in zip(cards, factors[len(names) :])}

    def loss(x):
        found, of_card = unpack(x)
        total = 0
        for key, rows in drawn.items():
            off = numpy.abs(numpy.log(predict(key, rows, found, rates[key[1]], of_card[key[1]])) - logs[key])
            total += numpy.mean(numpy.minimum(off, 0.3 + 0.1 * off))
        return total / len(drawn) + 2e-4 * numpy.sum(numpy.square(x))

    best = None
    for seed in (1, 2):
        options = {"maxfevals": evaluations, "verbose": -9, "seed": seed, "popsize": 20}
        result = cma.CMAEvolutionStrategy(numpy.zeros(len(names) + len(cards)), 0.15, options).optimize(loss).result
        if best is None or result.fbest < best.fbest:
            best = result
    return unpack(best.xbest)


def rounded(numbers):
    return {name: float(f"{value:.4g}") for name, value in numbers.items()}


def show(name, classes, found, rates, shares):
    print(name, rounded({key: found[key] for key in SEARCHED}), rounded(shares), flush=True)
    for key, rows in classes.items():
        for label, fitted in (("fitted", True), ("others", False)):
            part = half(rows, fitted)
            middle, mean, p90, _ = sizes(error(predict(key, part, found, rates[key[1]], shares[key[1]]), part["ns"]))
            print("  ", key, label, f"median {100 * middle:.1f} mean {100 * mean:.1f} p90 {100 * p90:.1f}", flush=True)


def groups(found, efficiency, precisions, source):
    numbers = {"efficiency": efficiency, **{name: found[name] for name in SEARCHED}}
    of = {}
    for precision in precisions:
        factor = THROTTLE_OF.get(precision, 1)
        of[precision] = {**rounded({**numbers, "throttle": numbers["throttle"] * factor}), "source": source}
    return of


def fit(name, found_rows, evaluations, write, every):
    file, of, precisions, keys = FITS[name]
    data = built_in()
    classes = {key: found_rows[key] for key in keys if key in found_rows}
    card, precision = keys[-1][1], keys[-1][2]
    start = gemm_constants(data, card, precision, with_card=file == "cards", with_architecture=file != "operations")
    rates = {key[1]: rates_of(data, key[1]) for key in classes}
    sustained = {c: sustained_share(rates[c], c, precision) for c in rates}
    shares = {c: start["efficiency"] * share for c, share in sustained.items()}
    fitted = classes if every else {key: half(rows) for key, rows in classes.items()}
    # NeuSight's times are the host's, and its launches hide the floor.
    names = [n for n in SEARCHED if n != "floor_cycles" or precision != "fp32"]
    found, shares = search(fitted, start, rates, evaluations, names, shares)
    show(name, classes, found, rates, shares)
    if not write:
        return
    source = f"eval/operations/fit_gemm.py on {'all' if every else 'half of the'} rows of {', '.join(sorted(shares))}: {keys[0][0]}"
    layer = data[file]["gemm"] if file == "operations" else data[file].setdefault(of, {}).setdefault("gemm", {})
    efficiency = float(numpy.median([shares[c] / sustained[c] for c in shares]))
    for p, numbers in groups(found, efficiency, precisions, source).items():
        layer[p] = {**layer.get(p, {}), **numbers}
    for name_of_file in FILES:
        path = DATA / f"{name_of_file}.json"
        whole = json.loads(path.read_text())
        whole[name_of_file] = data[name_of_file]
        path.write_text(json.dumps(whole, indent=1) + "\n")


def fit_without(found_rows, out, evaluations):
    """A constants file for each card, from the other families' rows."""
    data = built_in()
    for keys, precisions in ((OF_ALL, (*TENSOR_PRECISIONS, "fp8", "int8")), (PLAIN, ("fp32",))):
        classes = {key: found_rows[key] for key in keys}
        judged = sorted({key[1] for key in found_rows if (key[2] == "fp32") == (precisions == ("fp32",)) and "deepbench" not in key[0]})
        for left_out in judged:
            here = {key: half(rows) for key, rows in classes.items() if card_family(key[1]) != card_family(left_out)}
            rates = {key[1]: rates_of(data, key[1]) for key in here}
            start = gemm_constants(data, next(iter(here))[1], precisions[-1], with_card=False, with_architecture=False)
            names = [n for n in SEARCHED if n != "floor_cycles" or precisions != ("fp32",)]
            found, shares = search(here, start, rates, evaluations, names)
            print("without", left_out, rounded({name: found[name] for name in SEARCHED}), rounded(shares), flush=True)
            source = f"eval/operations/fit_gemm.py on {', '.join(sorted(shares))}"
            middle = float(numpy.median(list(shares.values())))
            capability = measured.GPUS[left_out]["compute_capability"]
            path = out / f"without-{left_out}.json"
            file = json.loads(path.read_text()) if path.exists() else {"schema_version": 1, "cards": {left_out: None}}
            layer = file.setdefault("architectures", {}).setdefault(capability, {})
            layer.setdefault("gemm", {}).update(groups(found, 1.0, precisions, source))
            fractions = {f"{p}_fraction": middle for p in precisions if p not in ("fp8", "int8")}
            fractions["dram_fraction"] = float(numpy.median([rates[card]["dram_fraction"] for card in rates]))
            layer.setdefault("rates", {}).update({**rounded(fractions), **POWER_WITHOUT.get(left_out, {}), "source": source})
            if precisions == ("fp32",) and left_out.startswith("p100"):  # its own rows give the extra time of Pascal's linear layers
                layer["gemm"]["fp32"]["transposed"] = 1.0
            path.write_text(json.dumps(file, indent=1) + "\n")


def parse_args(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", default="build/eval/time")
    parser.add_argument("--only", nargs="*", help="fits by name, or `without`")
    parser.add_argument("--evaluations", type=int, default=5000)
    parser.add_argument("--every", action="store_true", help="on all rows, instead of half of the weights")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


def main():
    options = parse_args(__doc__)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    found = measured.gemms(options.data)
    for name in FITS:
        if not options.only or name in options.only:
            fit(name, found, options.evaluations, options.write, options.every)
    if not options.only or "without" in options.only:
        fit_without(found, out, options.evaluations)


if __name__ == "__main__":
    main()
