#!/usr/bin/env python3
"""Fits the constants of fused attention (data/time) to measured prefills, after fit_gemm.py.

    python -m eval.operations.fit_attention --data DIR [--only NAME ...] [--write] [--every] [--out FOLDER]

Only half of the rows is used, by layout of heads (rows.fitted_half); judge.py reports the other half. `all`: the constants of a card whose architecture
was not measured, from A100, H200 and L40S; then those of each architecture. `without`: FOLDER/without-CARD.json (of fit_gemm.py) gets constants from the other
cards. A card's sustained rate is the one in data/time. PyTorch's kernels (`flash_rate`, ...) and backward passes are not in the data: their constants
are given, relative to the others (docs/reference/time-constants.md).
Needs numpy, numba and cma; a minute or two for each fit."""

import json
import math
from pathlib import Path

import numpy

from eval.operations import rows as measured
from eval.operations.fit_gemm import DATA, FILES, built_in, draw, parse_args, rates_of, rounded
from eval.operations.gemm_model import njit
from eval.tables import error, sizes

NAMES = (
    "efficiency",
    "narrow_efficiency",
    "wide_efficiency",
    "wider_efficiency",
    "widest_efficiency",
    "softmax_cycles",
    "block_cycles",
    "alone",
    "wave_smoothing",
    "overlap",
    "l2_bytes_per_cycle",
    "dram_fraction",
    "prefill_cycles",
    "prefill_passes",
    "prefill_cache_passes",
    "prefill_token_cycles",
)
LEAST = {"efficiency": 0.2, "softmax_cycles": 4, "overlap": 0.05, "dram_fraction": 0.5, "alone": 0.05, "wave_smoothing": 0.01}
MOST = {"efficiency": 1.3, "wave_smoothing": 0.98, "overlap": 0.9, "dram_fraction": 1.1, "alone": 1.0, "prefill_cache_passes": 5}
CARDS = {"8.0": "a100-80", "8.9": "l40s", "9.0": "h200", "10.0": "b200"}
OF_ALL = ("8.0", "8.9", "9.0")
CAUSAL = "aic_attention prefill, causal"
PADDED = numpy.array([32, 64, 96, 128, 192, 256, 512, 1024], float)
PAGE_KEYS = 64.0


@njit
def times(shapes, pads, c, rate, dram, sms, clock, l2, hopper):
    """src/time/attention.cc once more, a prefill's forward."""
    cycle, power = 1e9 / clock, math.log(2) / math.log1p(c[9])
    out = numpy.empty(len(shapes))
    for i in range(len(shapes)):
        batch, seq, heads, kv, d, window, causal = shapes[i]
        padded = 0.0
        for pad in pads:
            if padded == 0 and d <= pad and (hopper or pad != 192):
                padded = pad
        block = 128.0 if d <= 128 or hopper else 64.0
        share = c[1] if d <= 64 else 1.0 if d <= 128 else c[2] if d <= 192 else c[3] if d <= 256 else c[4]
        keys, most = seq, seq
        if causal > 0:
            keys = min(seq, seq / 2 + block / 2)
        if window > 0:
            keys, most = min(keys, window + block / 2), min(most, window + block)
        keys, most = math.ceil(keys / 32) * 32.0, math.ceil(most / 32) * 32.0
        waves = batch * heads * math.ceil(seq / block) / sms
        taken = (1 - c[8]) * math.ceil(waves) + c[8] * max(waves, 1.0)
        key_ns = 1e9 * 4 * block * padded / (rate / sms * c[0] * share) + c[5] * block / 128 * cycle
        block_ns = c[6] * padded / 128 * cycle
        compute = max(taken * (keys * key_ns + block_ns), c[7] * most * key_ns + block_ns)
        of_queries, of_keys = 4 * batch * seq * heads * d, 4 * batch * seq * kv * d
        moved = of_queries + 4 * batch * math.ceil(seq / PAGE_KEYS) * PAGE_KEYS * kv * d
        warm = min(max(2 - 2 * moved / l2, 0.0), 1.0)
        ns_a_byte = warm * cycle / (c[10] * sms) + (1 - warm) * 1e9 / (dram * c[11])
        memory = moved * ns_a_byte
        longer, shorter = max(compute, memory), min(compute, memory)
        prefill = (c[13] * of_queries + c[14] * of_keys) * ns_a_byte + batch * seq * c[15] * cycle
        out[i] = c[12] * cycle + longer * (1 + (shorter / longer) ** power) ** (1 / power) + prefill
    return out


def sustained(card, data):
    """FLOP/s and bytes/s of a card."""
    gpu, rates = measured.GPUS[card], rates_of(data, card)
    flop_per_s = min(gpu["peak_flop_per_s"]["bf16"] * rates["bf16_fraction"], gpu["power_w"] * rates["bf16_flop_per_joule"])
    return flop_per_s, gpu["bandwidth_bytes_per_s"] * rates["dram_fraction"]


def predict(rows, card, c, rates):
    gpu = measured.GPUS[card]
    names = ("batch", "seq", "heads", "kv_heads", "head_dim", "window_size", "causal")
    shapes = numpy.stack([rows[name].astype(float) for name in names], 1)
    sms, clock = float(gpu["multiprocessors"]), gpu["clock_khz"] * 1e3
    hopper = float(gpu["compute_capability"]) >= 9
    return times(shapes, PADDED, numpy.array([c[name] for name in NAMES]), *rates, sms, clock, float(gpu["l2_bytes"]), hopper)


def search(drawn, start, rates, evaluations):
    """The constants with the least mean error of the logarithms; a wild row counts little."""
    import cma

    logs = {card: numpy.log(rows["ns"]) for card, rows in drawn.items()}

    def unpack(x):
        return {
            name: min(max(start[name] * float(numpy.exp(value)), LEAST.get(name, 0)), MOST.get(name, numpy.inf))
            for name, value in zip(NAMES, x)
        }

    def loss(x):
        c, total = unpack(x), 0
        for card, rows in drawn.items():
            off = numpy.abs(numpy.log(predict(rows, card, c, rates[card])) - logs[card])
            total += numpy.mean(numpy.minimum(off, 0.4 + 0.1 * off))
        return total / len(drawn) + 2e-4 * numpy.sum(numpy.square(x))

    best = None
    for seed in (1, 2):
        options = {"maxfevals": evaluations, "verbose": -9, "seed": seed, "popsize": 16}
        result = cma.CMAEvolutionStrategy(numpy.zeros(len(NAMES)), 0.4, options).optimize(loss).result
        if best is None or result.fbest < best.fbest:
            best = result
    return unpack(best.xbest)


def half(rows, fitted=True):
    index = measured.fitted_half(rows, measured.LAYOUT) == fitted
    return {name: values[index] for name, values in rows.items()}


def constants(data, capability=None):
    found = dict(data["operations"]["attention"]["all"])
    if capability:
        found.update(data["architectures"][capability].get("attention", {}).get("all", {}))
    return found


def show(name, c, classes, rates):
    print(name, rounded({key: c[key] for key in NAMES}), flush=True)
    for (kind, card, _), rows in classes.items():
        for label, fitted in (("fitted", True), ("others", False)):
            part = half(rows, fitted)
            middle, mean, p90, _ = sizes(error(predict(part, card, c, rates[card]), part["ns"]))
            print(f"   {kind}, {card}, {label}: median {100 * middle:.1f} mean {100 * mean:.1f} p90 {100 * p90:.1f}", flush=True)


def numbers(c, source):
    # Backward computes the scores again: five products instead of two, in blocks that hold more at once. By FlashAttention-2's own figures it
    # reaches about 0.8 of the forward's rate.
    return {
        **rounded({name: c[name] for name in NAMES}),
        "backward_efficiency": round(0.8 * min(1.0, c["efficiency"]), 3),
        "source": source,
    }


def main():
    options = parse_args(__doc__)
    classes = {key: rows for key, rows in measured.attentions(options.data).items() if "prefill" in key[0]}
    data = built_in()
    rates = {card: sustained(card, data) for card in CARDS.values()}

    def drawn(capabilities):
        found = {CARDS[capability]: classes[CAUSAL, CARDS[capability], "bf16"] for capability in capabilities}
        return {card: draw(rows if options.every else half(rows), 2500 if len(found) == 1 else 1000) for card, rows in found.items()}

    for name in ("all", *CARDS):
        if options.only and name not in options.only:
            continue
        capabilities = OF_ALL if name == "all" else [name]
        c = search(drawn(capabilities), constants(data, None if name == "all" else name), rates, options.evaluations)
        cards = [CARDS[capability] for capability in capabilities]
        show(name, c, {key: rows for key, rows in classes.items() if key[1] in cards}, rates)
        source = f"eval/operations/fit_attention.py on {'all' if options.every else 'half of the'} prefills of {', '.join(cards)}; backward derived"
        into = data["operations"]["attention"] if name == "all" else data["architectures"][name].setdefault("attention", {})
        into["all"] = {**into.get("all", {}), **numbers(c, source)}
    if options.write:
        for name in FILES:
            path = DATA / f"{name}.json"
            whole = json.loads(path.read_text())
            whole[name] = data[name]
            path.write_text(json.dumps(whole, indent=1) + "\n")
    if not options.only or "without" in options.only:
        for capability, card in CARDS.items():
            others = [other for other in OF_ALL if other != capability]
            path = Path(options.out) / f"without-{card}.json"
            file = json.loads(path.read_text()) if path.exists() else {"schema_version": 1, "cards": {card: None}}
            c = search(drawn(others), constants(data), rates, options.evaluations)
            print("without", card, rounded({key: c[key] for key in NAMES}), flush=True)
            layer = file.setdefault("architectures", {}).setdefault(capability, {})
            layer["attention"] = {"all": numbers(c, f"eval/operations/fit_attention.py without {card}")}
            path.write_text(json.dumps(file, indent=1) + "\n")


if __name__ == "__main__":
    main()
