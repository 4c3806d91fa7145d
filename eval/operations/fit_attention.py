#!/usr/bin/env python3
"""Fits the constants of fused attention (data/time) to measured prefills, after fit_gemm.py.

    python -m eval.operations.fit_attention --data DIR [--only NAME ...] [--write] [--every] [--out FOLDER]

Only half of the rows is used, by layout of heads (rows.fitted_half); judge.py reports the other half. `all`: the constants of a card whose architecture
was not measured, from A100, H200 and L40S; then those of each architecture. First the prefills without a window, then, for each width of heads,
what a window changes. A width without enough rows is the next narrower one, with the efficiency that `all` has relative to it. `without`:
FOLDER/without-CARD.json (of fit_gemm.py) gets constants from the other cards. A card's sustained rate is the one in data/time. PyTorch's kernels
(`flash_rate`, ...) and backward passes are not in the data: their constants are given, relative to the others (docs/reference/time-constants.md).
Needs numpy, numba and cma; a minute or two for each fit."""

import json
import math
from pathlib import Path

import numpy

from eval.operations import rows as measured
from eval.operations.fit_gemm import DATA, FILES, built_in, draw, parse_args, rates_of, rounded
from eval.operations.gemm_model import njit
from eval.tables import error, sizes

# Of all widths; of each width of heads, the middle one without a prefix; what a window changes in a prefill, of each width.
SHARED = (
    "softmax_cycles",
    "block_cycles",
    "wave_smoothing",
    "overlap",
    "l2_bytes_per_cycle",
    "dram_fraction",
    "l2_full",
    "l2_none",
    "prefill_token_cycles",
    "packed_single",
)
OF_WIDTH = ("efficiency", "alone", "prefill_cycles", "prefill_passes", "prefill_cache_passes", "packed")
OF_WINDOW = ("window_efficiency", "window_cycles", "window_passes", "window_outside")
WIDTHS = ("narrow_", "", "wide_", "wider_", "widest_")
WIDEST = numpy.array([64, 128, 192, 256], float)
LEAST = {"softmax_cycles": 1, "overlap": 0.05, "dram_fraction": 0.3, "wave_smoothing": 0.01, "l2_full": 0.1, "l2_none": 0.12}
LEAST |= {"efficiency": 0.02, "alone": 0.05, "prefill_passes": 0.01, "prefill_cache_passes": 0.01, "prefill_token_cycles": 0.01}
LEAST |= {"packed": 0.01, "packed_single": 0.01}
LEAST |= {"window_efficiency": 0.05, "window_cycles": 0.3, "window_passes": 0.01, "window_outside": 1e-4}
MOST = {"efficiency": 1.3, "wave_smoothing": 0.98, "overlap": 0.95, "dram_fraction": 1.2, "alone": 2.0, "prefill_cache_passes": 20}
MOST |= {"packed": 1, "packed_single": 1}
MOST |= {"l2_full": 1.5, "l2_none": 2.5, "window_efficiency": 1.5, "window_cycles": 1.5, "window_passes": 3, "window_outside": 1}
FEW = 15  # fewer fitted rows of a width say nothing
FEWEST_OF_WINDOW = 4
CARDS = {"8.0": "a100-80", "8.9": "l40s", "9.0": "h200", "10.0": "b200"}
OF_ALL = ("8.0", "8.9", "9.0")
PADDED = numpy.array([32, 64, 96, 128, 192, 256, 512, 1024], float)


@njit
def times(shapes, pads, widest, shared, of_width, of_window, rate, dram, sms, clock, l2, hopper, wide_blocks, little_memory):
    """src/time/attention.cc once more, a prefill's forward."""
    softmax, block_cycles, smoothing, overlap, l2_bytes, dram_part, l2_full, l2_none, token, single = shared
    least = 32.0 if little_memory else 64.0
    cycle, power = 1e9 / clock, math.log(2) / math.log1p(overlap)
    out = numpy.empty(len(shapes))
    for i in range(len(shapes)):
        batch, seq, heads, kv, d, window, causal = shapes[i]
        padded, width = 0.0, 0
        for pad in pads:
            if padded == 0 and d <= pad and (wide_blocks or pad != 192):
                padded = pad
        for most_width in widest:
            width += d > most_width
        share, alone, cycles, passes, cache_passes, part = of_width[width]
        block = 128.0 if wide_blocks or (d <= 128 and not little_memory) else 64.0
        blocks, queries = heads * math.ceil(seq / block), block
        packed = kv * math.ceil(seq * (heads / kv) / block)
        if packed < blocks:
            if seq == 1:
                part = max(part, single)
            blocks, queries = part * packed + (1 - part) * blocks, block * (part * kv / heads + 1 - part)
        keys = min(seq, seq / 2 + queries / 2) if causal > 0 else seq
        most = seq
        if window > 0:
            factor, cycles_factor, passes_factor, outside = of_window[width]
            share, cycles, passes, cache_passes = (
                share * factor,
                cycles * cycles_factor,
                passes * passes_factor,
                cache_passes * passes_factor,
            )
            if window + queries < seq:
                before = (window / queries + 1) * window / 2 / math.ceil(seq / queries) if causal > 0 else 0.0
                seen = min(keys, window + queries - before)
                keys, most = seen + outside * (keys - seen), window + queries + outside * (most - window - queries)
        keys, most = max(math.ceil(keys / 32) * 32.0, least), max(math.ceil(most / 32) * 32.0, least)
        waves = batch * blocks / sms
        taken = (1 - smoothing) * math.ceil(waves) + smoothing * max(waves, 1.0)
        key_ns = 1e9 * 4 * block * padded / (rate / sms * share) + softmax * block / 128 * cycle
        block_ns = block_cycles * cycle
        compute = max(taken * (keys * key_ns + block_ns), alone * most * key_ns + block_ns)
        of_queries, of_keys = 4 * batch * seq * heads * d, 4 * batch * seq * kv * d
        page = 64.0 if hopper else 1.0
        moved = of_queries + 4 * batch * math.ceil(seq / page) * page * kv * d
        warm = min(max((l2_none - moved / l2) / (l2_none - l2_full), 0.0), 1.0)
        ns_a_byte = warm * cycle / (l2_bytes * sms) + (1 - warm) * 1e9 / (dram * dram_part)
        memory = moved * ns_a_byte
        longer, shorter = max(compute, memory), min(compute, memory)
        prefill = (passes * of_queries + cache_passes * of_keys) * ns_a_byte + batch * seq * token * cycle
        out[i] = cycles * cycle + longer * (1 + (shorter / longer) ** power) ** (1 / power) + prefill
    return out


def sustained(card, data):
    """FLOP/s and bytes/s of a card."""
    gpu, rates = measured.GPUS[card], rates_of(data, card)
    flop_per_s = min(gpu["peak_flop_per_s"]["bf16"] * rates["bf16_fraction"], gpu["power_w"] * rates["bf16_flop_per_joule"])
    return flop_per_s, gpu["bandwidth_bytes_per_s"] * rates["dram_fraction"]


def shapes_of(rows):
    names = ("batch", "seq", "heads", "kv_heads", "head_dim", "window_size", "causal")
    return numpy.stack([rows[name].astype(float) for name in names], 1)


def predict(shapes, card, c, rates):
    gpu = measured.GPUS[card]
    capability = float(gpu["compute_capability"])
    shared = numpy.array([c[name] for name in SHARED])
    of_width = numpy.array([[c[width + name] for name in OF_WIDTH] for width in WIDTHS])
    for i, width in enumerate(WIDTHS):
        of_width[i, 0] = c["efficiency"] * (c[width + "efficiency"] if width else 1)
    of_width[2, 0] *= c["prefill_wide_efficiency"]
    of_window = numpy.array([[c[width + name] for name in OF_WINDOW] for width in WIDTHS])
    on_card = (*rates, float(gpu["multiprocessors"]), gpu["clock_khz"] * 1e3, float(gpu["l2_bytes"]))
    return times(
        shapes,
        PADDED,
        WIDEST,
        shared,
        of_width,
        of_window,
        *on_card,
        9 <= capability < 10,
        9 <= capability < 12,
        capability in (8.6, 8.9) or capability >= 12,
    )


def bounded(name, value):
    for width in WIDTHS:
        if width and name.startswith(width):
            name = name.removeprefix(width)
            if name == "efficiency":
                return min(max(value, 0.02), 1.05)
    return min(max(value, LEAST.get(name, 0)), MOST.get(name, numpy.inf))


def search(drawn, start, rates, names, evaluations, spread=0.3):
    """`start` with the values of `names` that have the least mean error of the logarithms; a wild row counts little."""
    import cma

    shapes = {card: shapes_of(rows) for card, rows in drawn.items()}
    logs = {card: numpy.log(rows["ns"]) for card, rows in drawn.items()}

    def unpack(x):
        c = {**start, **{name: bounded(name, start[name] * float(numpy.exp(value))) for name, value in zip(names, x)}}
        c["l2_none"] = max(c["l2_none"], 1.02 * c["l2_full"])
        return c

    def loss(x):
        c, total = unpack(x), 0
        for card in drawn:
            off = numpy.abs(numpy.log(predict(shapes[card], card, c, rates[card])) - logs[card])
            total += numpy.mean(numpy.minimum(off, 0.4 + 0.1 * off))
        return total / len(drawn) + 2e-4 * numpy.sum(numpy.square(x))

    best = None
    for seed in (1, 2):
        options = {"maxfevals": evaluations, "verbose": -9, "seed": seed, "popsize": 18}
        result = cma.CMAEvolutionStrategy(numpy.zeros(len(names)), spread, options).optimize(loss).result
        if best is None or result.fbest < best.fbest:
            best = result
    return unpack(best.xbest)


def width_of(rows):
    return numpy.searchsorted(WIDEST, rows["head_dim"], side="left")


def part_of(rows, index):
    return {name: values[index] for name, values in rows.items()}


def fit(found, start, rates, evaluations, of_all):
    """Constants from `found`: {card: its prefills}."""
    c = dict(start)
    plain = {card: part_of(rows, rows["window_size"] == 0) for card, rows in found.items()}
    counts = numpy.sum([numpy.bincount(width_of(rows), minlength=len(WIDTHS)) for rows in plain.values()], 0)
    triton_width = 2 if list(found) == ["b200"] else None  # its Triton kernel has the constant of a prefill
    names = list(SHARED)
    for i, width in enumerate(WIDTHS):
        if counts[i] >= FEW:
            own = "prefill_wide_efficiency" if i == triton_width else width + "efficiency"
            names += [own, *(width + name for name in OF_WIDTH[1:])]
    c = search(plain, c, rates, names, evaluations)
    for i, width in enumerate(WIDTHS):
        if counts[i] < FEW and not of_all:
            nearest = min((j for j in range(len(WIDTHS)) if counts[j] >= FEW), key=lambda j: (abs(j - i), j))
            c |= {width + name: c[WIDTHS[nearest] + name] for name in OF_WIDTH[1:]}
            if width:
                of_nearest = c[WIDTHS[nearest] + "efficiency"] if WIDTHS[nearest] else 1
                before = start_share(start, WIDTHS[nearest])
                c[width + "efficiency"] = of_nearest * start_share(start, width) / before
    for i, width in enumerate(WIDTHS):
        rows = {card: part_of(rows, (rows["window_size"] > 0) & (width_of(rows) == i)) for card, rows in found.items()}
        rows = {card: part for card, part in rows.items() if len(part["ns"]) >= FEWEST_OF_WINDOW}
        if rows:
            c = search(rows, c, rates, [width + name for name in OF_WINDOW], max(800, evaluations // 5), 0.5)
    return c


def start_share(c, width):
    return c[width + "efficiency"] if width else 1.0


def half(rows, fitted=True):
    index = measured.fitted_half(rows, measured.LAYOUT) == fitted
    return {name: values[index] for name, values in rows.items()}


def constants(data, capability=None):
    found = dict(data["operations"]["attention"]["all"])
    if capability:
        found.update(data["architectures"][capability].get("attention", {}).get("all", {}))
    return found


def show(name, c, classes, rates):
    print(name, rounded({key: c[key] for key in ALL_NAMES}), flush=True)
    for (kind, card, _), rows in classes.items():
        for label, fitted in (("fitted", True), ("others", False)):
            part = half(rows, fitted)
            middle, mean, p90, _ = sizes(error(predict(shapes_of(part), card, c, rates[card]), part["ns"]))
            print(f"   {kind}, {card}, {label}: median {100 * middle:.1f} mean {100 * mean:.1f} p90 {100 * p90:.1f}", flush=True)


def numbers(c, source):
    # Backward computes the scores again: five products instead of two, in blocks that hold more at once. By FlashAttention-2's own figures it
    # reaches about 0.8 of the forward's rate.
    return {
        **rounded({name: c[name] for name in ALL_NAMES}),
        "backward_efficiency": round(0.8 * min(1.0, c["efficiency"]), 3),
        "source": source,
    }


ALL_NAMES = (*SHARED, *(width + name for width in WIDTHS for name in (*OF_WIDTH, *OF_WINDOW)), "prefill_wide_efficiency")


def main():
    options = parse_args(__doc__)
    classes = {key: rows for key, rows in measured.attentions(options.data).items() if "prefill" in key[0]}
    data = built_in()
    rates = {card: sustained(card, data) for card in CARDS.values()}

    def found(capabilities):
        of = {}
        for (_, card, _), rows in classes.items():
            if card in [CARDS[capability] for capability in capabilities]:
                part = rows if options.every else half(rows)
                of.setdefault(card, []).append(part)
        whole = {card: {name: numpy.concatenate([part[name] for part in parts]) for name in parts[0]} for card, parts in of.items()}
        return {card: draw(rows, 3000 if len(whole) == 1 else 1500) for card, rows in whole.items()}

    for name in ("all", *CARDS):
        if options.only and name not in options.only:
            continue
        capabilities = OF_ALL if name == "all" else [name]
        start = constants(data, None if name == "all" else name)
        c = fit(found(capabilities), start, rates, options.evaluations, name == "all")
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
            c = fit(found(others), constants(data), rates, options.evaluations, True)
            print("without", card, rounded({key: c[key] for key in ALL_NAMES}), flush=True)
            layer = file.setdefault("architectures", {}).setdefault(capability, {})
            layer["attention"] = {"all": numbers(c, f"eval/operations/fit_attention.py without {card}")}
            path.write_text(json.dumps(file, indent=1) + "\n")


if __name__ == "__main__":
    main()
