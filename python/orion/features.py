"""The numbers that the trees see. Sizes are logarithms where they span decades: trees do not care, and files stay readable."""

import math

from . import flops
from .steps import LAYERS

BITS = {"fp64": 64, "fp32": 32, "tf32": 19, "fp16": 16, "bf16": 16, "fp8": 8}

CARD = (
    "multiprocessors",
    "clock_khz",
    "bandwidth_bytes_per_s",
    "memory_bytes",
    "l2_bytes",
    "power_w",
    "peak_flop_per_s",
    "fp32_flop_per_s",
)

ORION = (
    *("iteration_flops", "memory_surrogate_bytes", "intensity", "samples", "bits", *CARD),
    # Section 5.6: activation bytes, roofline interactions, memory pressure.
    *("parameter_bytes", "activation_bytes", "compute_ms", "memory_ms", "memory_pressure", "samples_per_multiprocessor"),
)

PRENET = (
    *("samples", "bits", *CARD),
    *(f"{layer}_{what}" for layer in LAYERS for what in ("flops", "bytes", "count")),
    *("layer_flops", "layer_bytes", "layer_compute_ms"),
)


def _log(value):
    return math.log2(1 + max(0.0, value))


def _card(card, precision):
    """In the order of CARD."""
    return [
        card.multiprocessors,
        card.clock_khz,
        card.bandwidth_bytes_per_s,
        card.memory_bytes,
        card.l2_bytes,
        card.power_w,
        card.peak(precision),
        card.peak("fp32"),
    ]


def iteration_flops(step, kappa=flops.KAPPA):
    """A step without a backward pass is its forward pass."""
    return flops.iteration(step.forward_flops, kappa) if step.trains else step.forward_flops


def orion(step, card, kappa=flops.KAPPA):
    """s_gpu of section 3.2, and the additional features of section 5.6."""
    work = iteration_flops(step, kappa)
    surrogate = flops.memory_surrogate(step.parameter_bytes, step.optimizer_bytes, step.activation_bytes)
    return [
        _log(work),
        _log(surrogate),
        flops.intensity(work, surrogate),
        step.samples,
        BITS.get(step.precision, 32),
        *_card(card, step.precision),
        _log(step.parameter_bytes),
        _log(step.activation_bytes),
        _log(1e6 * work / card.peak(step.precision)),
        _log(1e6 * surrogate / card.bandwidth_bytes_per_s),
        surrogate / card.memory_bytes,
        step.samples / card.multiprocessors,
    ]


def prenet(step, card):
    """FLOPs, bytes and number of each kind of layer, with the card: no surrogate, no intensity, no figures of the host."""
    layers = [step.layers[name] for name in LAYERS]
    all_flops = sum(layer[0] for layer in layers)
    return [
        step.samples,
        BITS.get(step.precision, 32),
        *_card(card, step.precision),
        *(value for work, size, count in layers for value in (_log(work), _log(size), count)),
        _log(all_flops),
        _log(sum(layer[1] for layer in layers)),
        _log(1e6 * all_flops / card.peak(step.precision)),
    ]


METHODS = {"orion": (ORION, orion), "prenet": (PRENET, prenet)}
