"""The methods' figures of a step and of a card: from `gpucast time` and `gpucast analyze` of a capture, and from `gpucast gpus`."""

import dataclasses
import json
import os
import subprocess

# Kinds of work that PreNeT has a layer for: dense, convolution, attention, normalization, embedding, recurrent.
LAYERS = ("gemm", "convolution", "attention", "normalization", "indexing", "recurrent")


@dataclasses.dataclass(frozen=True)
class Step:
    samples: int
    forward_flops: float  # of products, convolutions and attention: each layer's closed form, summed
    all_flops: float  # of the same, in the whole step
    trains: bool
    parameter_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    precision: str  # of most of the arithmetic
    layers: dict  # of LAYERS: {kind: (FLOPs, bytes, launches)} of the step


@dataclasses.dataclass(frozen=True)
class Card:
    id: str
    multiprocessors: int
    clock_khz: int
    bandwidth_bytes_per_s: float
    memory_bytes: int
    l2_bytes: int
    power_w: float
    peak_flop_per_s: dict  # by precision

    def peak(self, precision):
        """FLOP/s; for a precision without its own units, the rate of its substitute."""
        for name in (precision, {"bf16": "fp16"}.get(precision), "fp32"):
            if self.peak_flop_per_s.get(name):
                return self.peak_flop_per_s[name]
        raise ValueError(f"{self.id} has no rate in {precision}")


def cards(gpus):
    """{id: Card} of the entries of `gpucast gpus --format json`."""
    return {
        gpu["id"]: Card(
            gpu["id"],
            gpu["multiprocessors"],
            gpu["clock_khz"],
            gpu["bandwidth_bytes_per_s"],
            gpu["total_memory_bytes"],
            gpu["l2_bytes"],
            gpu.get("power_w") or 0,
            gpu["peak_flop_per_s"],
        )
        for gpu in gpus
    }


def ask(gpucast, *words):
    """The JSON of a command. RuntimeError: with its error message."""
    done = subprocess.run([str(gpucast), *map(str, words), "--format", "json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(" ".join(done.stderr.split()) or f"exit code {done.returncode}")
    return json.loads(done.stdout)


def step(times, report):
    """From the JSON of `gpucast time` and `gpucast analyze`. ValueError: no FLOPs or no samples, so the methods have no input."""
    categories = {category["name"]: category["bytes"] for category in report["categories"]}
    trains = any(phase["name"] == "backward" for phase in times["by_phase"])
    if not times["model_flops"] > 0 or not times["samples"] > 0:
        raise ValueError("no products or convolutions on a batch of known size were seen in the observed step")
    kinds = {kind["name"]: (kind["flops"], kind["bytes"], kind["launches"]) for kind in times["by_kind"]}
    return Step(
        samples=times["samples"],
        forward_flops=times["model_flops"] / (3 if trains else 1),
        all_flops=times["hardware_flops"],
        trains=trains,
        parameter_bytes=categories.get("parameters", 0),
        optimizer_bytes=categories.get("optimizer_state", 0),
        activation_bytes=categories.get("activations", 0) or categories.get("temporaries", 0),
        precision=times["peak_precision"],
        layers={name: kinds.get(name, (0, 0, 0)) for name in LAYERS},
    )


def read(gpucast, capture, card_ids, options=()):
    """(Step, {card: gpucast's JSON of it}) of a capture."""
    if not os.path.isfile(capture):
        raise ValueError(f"{capture} is no file; `gpucast run -o {capture} -- COMMAND` makes it")
    times = ask(gpucast, "time", capture, "--gpu", ",".join(card_ids), *options)
    return step(times, ask(gpucast, "analyze", capture)), {card["gpu"]: card for card in times["cards"]}


def roofline_ms(times):
    """The time of FLOPs and bytes at the datasheet's rates, operation by operation."""
    return sum(kind["ideal_ns"] for kind in times["by_kind"]) / 1e6
