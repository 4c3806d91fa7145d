#!/usr/bin/env python3
"""Fits the constants of fused attention (data/time/operations.json) to measured prefills, after fit_gemm.py.

    python -m eval.operations.fit_attention --data DIR [--write] [--out FOLDER]

All cards share constants, three of them by architecture; a card's sustained rate is from its matrix products. FOLDER/without-CARD.json (of fit_gemm.py) gets
the constants fitted on the other cards. Backward passes are not in the data: their constants are derived (docs/reference/time-constants.md).
Needs numpy and scipy."""

import json
from pathlib import Path

import numpy

from eval.operations import rows as measured
from eval.operations.fit_gemm import DATA, draw, least_log_errors, parse_args, rounded
from eval.tables import error, sizes

START = dict(
    efficiency=0.8,
    wide_efficiency=0.8,
    softmax_cycles=15,
    block_cycles=4000,
    l2_bytes_per_cycle=20,
    wave_smoothing=0.6,
    prefill_passes=2.0,
    prefill_cycles=19000,
)
BY_ARCHITECTURE = ("efficiency", "prefill_passes", "prefill_cycles")
LEAST = {"softmax_cycles": 8}  # a multiprocessor has 16 exponentials a cycle (CUDA's programming guide), a block 128 of a key
MOST = {"wave_smoothing": 0.98, "efficiency": 1.0, "prefill_passes": 3.0}
PADDED = numpy.array([32, 64, 96, 128, 192, 256, 512, 1024])


def attention_ns(rows, gpu, c, flop_per_s, bytes_per_s):
    """src/time/attention.cc once more, forward."""
    cycle, sms = 1e6 / gpu["clock_khz"], gpu["multiprocessors"]
    batch, heads, seq, d = (rows[name].astype(float) for name in ("batch", "heads", "seq", "head_dim"))
    pads = PADDED if float(gpu["compute_capability"]) >= 9 else PADDED[PADDED != 192]
    padded = pads[numpy.searchsorted(pads, d)].astype(float)
    block = numpy.where(d <= 128, 128, 64)
    keys = numpy.where(rows["causal"] == 1, numpy.minimum(seq, seq / 2 + block / 2), seq)
    keys = numpy.where(rows["window_size"] > 0, numpy.minimum(keys, rows["window_size"] + block / 2), keys)
    keys = numpy.ceil(keys / 32) * 32
    waves = batch * heads * numpy.ceil(seq / block) / sms
    s = c["wave_smoothing"]
    taken = (1 - s) * numpy.ceil(waves) + s * numpy.maximum(waves, 1)
    efficiency = c["efficiency"] * numpy.where(d > 256, c["wide_efficiency"] ** 2, numpy.where(d > 128, c["wide_efficiency"], 1))
    key_ns = 1e9 * 4 * block * padded / (flop_per_s / sms * efficiency) + c["softmax_cycles"] * block / 128 * cycle
    compute = taken * (keys * key_ns + c["block_cycles"] * cycle)
    moved = 2 * batch * seq * d * 2 * (heads + rows["kv_heads"])
    warm = numpy.clip(2 - 2 * moved / gpu["l2_bytes"], 0, 1)
    memory = moved * (warm * cycle / (c["l2_bytes_per_cycle"] * sms) + (1 - warm) * 1e9 / bytes_per_s)
    return c["prefill_cycles"] * cycle + numpy.maximum(compute, memory) + c["prefill_passes"] * memory


def sustained(card, file):
    """FLOP/s and bytes/s of a card: of data/time, or of a constants file without the card."""
    gpu = measured.GPUS[card]
    rates = json.loads((DATA / "architectures.json").read_text())["architectures"][gpu["compute_capability"]]["rates"]
    layer = (
        json.loads((DATA / "cards.json").read_text())["cards"].get(card, {}).get("rates", {})
        if file is None
        else file["architectures"][gpu["compute_capability"]]["rates"]
    )
    rates = {**rates, **layer}
    return min(gpu["peak_flop_per_s"]["bf16"] * rates["bf16_fraction"], gpu["power_w"] * rates["bf16_flop_per_joule"]), gpu[
        "bandwidth_bytes_per_s"
    ] * rates["dram_fraction"]


def fit(classes, start=None, free=tuple(START)):
    start = start or START
    drawn = {key: (draw(rows, 1200), *sustained(key[1], None)) for key, rows in classes.items()}

    def unpack(x):
        found = {name: start[name] * float(numpy.exp(value)) for name, value in zip(free, x)}
        return {**start, **{name: min(max(value, LEAST.get(name, 0)), MOST.get(name, numpy.inf)) for name, value in found.items()}}

    def predicted(x):
        c = unpack(x)
        return [(attention_ns(rows, measured.GPUS[key[1]], c, *rates), rows["ns"]) for key, (rows, *rates) in drawn.items()]

    return unpack(least_log_errors(predicted, len(free), 0.1, 40, 3))


def main():
    options = parse_args(__doc__)
    classes = measured.attentions(options.data)
    cards = sorted({key[1] for key in classes})
    for left_out in [None, *cards]:
        here = {key: rows for key, rows in classes.items() if key[1] != left_out}
        c = fit(here)
        of = sorted({key[1] for key in here})
        # Backward computes the scores again: five products instead of two, in blocks that hold more at once. By FlashAttention-2's own figures it
        # reaches about 0.8 of the forward's rate.
        numbers = {
            **rounded(c),
            "backward_efficiency": round(0.8 * c["efficiency"], 3),
            "source": f"eval/operations/fit_attention.py on ai-dynamo's prefills: {', '.join(of)}; backward derived",
        }
        print("without", left_out, {name: round(value, 3) for name, value in c.items()}, flush=True)
        path = Path(options.out) / f"without-{left_out}.json"
        file = json.loads(path.read_text()) if left_out and path.exists() else None
        for key, rows in classes.items():
            if left_out in (None, key[1]):
                rates = sustained(key[1], file)
                middle, mean, p90, _ = sizes(error(attention_ns(rows, measured.GPUS[key[1]], c, *rates), rows["ns"]))
                print("  ", key, f"median {middle:.3f} mean {mean:.3f} p90 {p90:.3f}", flush=True)
        if file is not None:
            # In the architecture's layer, so it replaces the constants from the card itself.
            file["architectures"][measured.GPUS[left_out]["compute_capability"]]["attention"] = {"all": numbers}
            path.write_text(json.dumps(file, indent=1) + "\n")
        if not left_out and options.write:
            operations = json.loads((DATA / "operations.json").read_text())
            operations["operations"]["attention"]["all"].update(numbers)
            (DATA / "operations.json").write_text(json.dumps(operations, indent=1) + "\n")
            architectures = json.loads((DATA / "architectures.json").read_text())
            for card in cards:
                own = fit({key: rows for key, rows in classes.items() if key[1] == card}, c, BY_ARCHITECTURE)
                architectures["architectures"][measured.GPUS[card]["compute_capability"]]["attention"] = {
                    "all": {
                        **rounded({name: own[name] for name in BY_ARCHITECTURE}),
                        "backward_efficiency": round(0.8 * own["efficiency"], 3),
                        "source": f"eval/operations/fit_attention.py on {card}, from the constants of all cards; backward derived",
                    }
                }
            (DATA / "architectures.json").write_text(json.dumps(architectures, indent=1) + "\n")


if __name__ == "__main__":
    main()
