#!/usr/bin/env python3
"""Measures this machine's card for about a minute, and writes its constants for gpucast.

    python calibrate.py                      # writes ~/.config/gpucast/constants.json
    gpucast time train.gpucast --constants ~/.config/gpucast/constants.json

Needs PyTorch 2.0 or newer with CUDA, and the gpucast command. If that is not on the card's machine:

    python calibrate.py --measure card.json  # there: measures, writes the times
    python calibrate.py --fit card.json      # elsewhere: needs gpucast, no PyTorch and no card

And for the links between cards, from the output of nccl-tests:

    python calibrate.py --nccl-tests all_reduce.log --out my_node.json   # for gpucast time --machine my_node.json

How: it times operations (matrix products, copies, convolutions, attention), gets gpucast's expected times for the same ones, and changes
the card's constants until both agree. docs/howto/calibrate.md has more."""

import argparse
import datetime
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

SCHEMA = 1
TOO_FAST = 1.3  # measured over datasheet: nothing is that fast, so something else is wrong
MOST_APART = 0.12  # half of a rate's products may differ by this from the rate's prediction; the P4's are 0.17 (its clock falls)
# A constant outside of these means that something else used the card, or that the formula does not fit it: it is left out.
PLAUSIBLE = {
    "fraction": (0.1, 1.6),
    "efficiency": (0.05, 4.0),
    "l2_bytes_per_clock": (2.0, 100.0),
    "launch_ns": (200.0, 100e3),
    "link_bytes_per_s": (2e8, 2e12),
}
ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}


class Refused(Exception):
    """Nothing can be written; the text says why and what to do."""


def say(text):
    print(f"calibrate: {text}", file=sys.stderr, flush=True)


# ---- the measured operations, in the format of `gpucast time --operations` ---------------------------------------------------------


def gemm(precision, m, n, k, b_transposed):
    element = ELEMENT_BYTES[precision]
    shape = {"m": m, "n": n, "k": k, "b_transposed": b_transposed}
    moved = {"bytes_read": (m * k + k * n) * element, "bytes_written": m * n * element, "flops": 2.0 * m * n * k}
    return {"kind": "gemm", "precision": precision, "element_bytes": element, "gemm": shape, **moved}


def convolution(precision, direction, batch, channels, outputs, size, window, stride, channels_last):
    element = ELEMENT_BYTES[precision]
    made = (size - 1) // stride + 1  # padded by half a window
    shape = {"pass": direction, "batch": batch, "in_channels": channels, "out_channels": outputs, "groups": 1}
    shape.update({"in": [size, size], "out": [made, made], "window": [window, window], "stride": [stride, stride]})
    shape["channels_last"] = channels_last
    flops = 2.0 * batch * outputs * made * made * channels * window * window
    return {"kind": "convolution", "precision": precision, "element_bytes": element, "flops": flops, "convolution": shape}


def attention(precision, direction, batch, heads, length, head_dim):
    shape = {"pass": direction, "batch": batch, "heads": heads, "kv_heads": heads, "queries": length, "keys": length}
    shape.update({"head_dim": head_dim, "value_dim": head_dim, "causal": True})
    return {"kind": "attention", "precision": precision, "element_bytes": ELEMENT_BYTES[precision], "attention": shape}


def moved(kind, read, written, **more):
    return {"kind": kind, "bytes_read": read, "bytes_written": written, **more}


def plan(precisions, l2_bytes, free_bytes, quick=False):
    """[(operation, the constant it determines, or None if it is only checked)], the most important first."""
    rows = []
    stream = 1 << 16 if quick else min(512 << 20, free_bytes // 8 // 4096 * 4096)  # a tensor, many times L2
    rows += [
        (moved("elementwise", 2 * stream, stream), "rates.dram_fraction"),
        (moved("elementwise", stream, stream), "rates.dram_fraction"),
    ]
    shapes = [(8192, 8192, 8192, True), (4096, 4096, 4096, True), (8192, 4096, 1024, True), (4096, 4096, 4096, False)]
    if quick:
        shapes = [(128, 128, 128, True), (128, 128, 128, False)]
    for precision in precisions:
        for m, n, k, b_transposed in shapes:
            # Both operands, the result, and the memory for making random numbers.
            if precision == "fp8" and not b_transposed or (m * k + n * k + m * n) * 8 > free_bytes:
                continue
            rows.append((gemm(precision, m, n, k, b_transposed), f"rates.{precision}_fraction"))
    link = 1 << 16 if quick else 256 << 20
    rows += [(moved("copy", link, link, from_host=True), "link"), (moved("copy", link, link, to_host=True), "link")]
    rows += [(moved("elementwise", 4, 4), "launch")]
    if l2_bytes:
        # Their difference gives L2's rate, whatever a kernel's start takes. Both lie in the nearer half of L2, if it has two.
        small, large = (int(l2_bytes * share / 2) // 4096 * 4096 for share in (0.08, 0.25))
        rows += [(moved("elementwise", small, small), "l2"), (moved("elementwise", large, large), "l2")]
    rows += [(moved("copy", stream, stream), None)]
    lengths = [(1, 2, 64, 64)] if quick else [(8, 16, 2048, 64), (2, 32, 4096, 128)]
    for precision in [p for p in precisions if p in ("fp16", "bf16")]:
        for batch, heads, length, head_dim in lengths:
            for direction, name in (("forward", "efficiency"), ("backward", "backward_efficiency")):
                rows.append((attention(precision, direction, batch, heads, length, head_dim), f"attention.{precision}.{name}"))
    # The usual layout: tensor cores want channels last. Windows of 3x3 may use another algorithm in fp32 (Winograd): not for the fit.
    for precision in [p for p in precisions if p != "fp8"]:
        tensor = precision != "fp32"
        sizes = [(64, 256, 256, 28, 3, 1), (64, 128, 128, 56, 3, 1)] if tensor else [(32, 512, 512, 28, 1, 1), (32, 128, 128, 28, 5, 1)]
        layouts = [(size, tensor, True) for size in sizes]
        layouts.append(((64, 256, 512, 28, 3, 2), tensor, False))
        layouts.append(((64, 256, 256, 28, 3, 1), False, False))
        if quick:
            layouts = [((1, 8, 8, 8, 3, 1), tensor, True), ((1, 8, 8, 8, 3, 1), False, False)]
        for size, channels_last, fits in layouts:
            for direction in ("forward", "data_gradient", "weight_gradient"):
                told = f"convolution.{precision}.{direction}_efficiency" if fits else None
                rows.append((convolution(precision, direction, *size, channels_last), told))
    return rows


# ---- measuring: the only part that needs PyTorch ----------------------------------------------------------------------------------


def dtype_of(torch, precision):
    names = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}
    return getattr(torch, names[precision])


def prepare(torch, operation):
    """A function that starts this operation once."""
    precision = operation.get("precision", "fp32")
    dtype = dtype_of(torch, precision)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"

    def random(*sizes):
        return torch.randn(*sizes, device="cuda", dtype=torch.float16 if precision == "fp8" else dtype).to(dtype)

    kind = operation["kind"]
    if kind == "gemm":
        shape = operation["gemm"]
        a = random(shape["m"], shape["k"])
        b = random(shape["n"], shape["k"]).t() if shape["b_transposed"] else random(shape["k"], shape["n"])
        if precision == "fp8":
            one = torch.ones((), device="cuda")
            return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        out = torch.empty(shape["m"], shape["n"], device="cuda", dtype=dtype)
        return lambda: torch.mm(a, b, out=out)
    if kind == "convolution":
        s = operation["convolution"]
        layout = torch.channels_last if s["channels_last"] else torch.contiguous_format
        stride, pad, (size, made, window) = s["stride"], [s["window"][0] // 2] * 2, (s["in"][0], s["out"][0], s["window"][0])
        x = random(s["batch"], s["in_channels"], size, size).contiguous(memory_format=layout)
        w = random(s["out_channels"], s["in_channels"], window, window).contiguous(memory_format=layout)
        if s["pass"] == "forward":
            return lambda: torch.convolution(x, w, None, stride, pad, [1, 1], False, [0, 0], 1)
        y = random(s["batch"], s["out_channels"], made, made).contiguous(memory_format=layout)
        mask = [s["pass"] == "data_gradient", s["pass"] == "weight_gradient", False]
        return lambda: torch.ops.aten.convolution_backward(y, x, w, None, stride, pad, [1, 1], False, [0, 0], 1, mask)
    if kind == "attention":
        s = operation["attention"]
        q, k, v = (random(s["batch"], s["heads"], s["queries"], s["head_dim"]).requires_grad_() for _ in range(3))
        attend = torch.nn.functional.scaled_dot_product_attention
        if s["pass"] == "forward":
            with torch.no_grad():
                q, k, v = q.detach(), k.detach(), v.detach()
            return lambda: attend(q, k, v, is_causal=True)
        out = attend(q, k, v, is_causal=True)
        gradient = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)
    count = operation["bytes_written"] // 4
    if operation.get("to_host") or operation.get("from_host"):
        host, card = torch.empty(count, pin_memory=True), torch.empty(count, device="cuda")
        into, of = (host, card) if operation.get("to_host") else (card, host)
        return lambda: into.copy_(of, non_blocking=True)
    a, out = random(count), torch.empty(count, device="cuda")
    if kind == "copy":
        return lambda: out.copy_(a)
    if operation["bytes_read"] == 2 * operation["bytes_written"]:
        b = random(count)
        return lambda: torch.add(a, b, out=out)
    return lambda: torch.neg(a, out=out)


class EventTimer:
    """Times on the card's own clock. The card waits while short kernels are queued, so the host's time does not count."""

    def __init__(self, torch):
        self.torch = torch
        self.wait = getattr(torch.cuda, "_sleep", None)

    def sample(self, function, calls, wait_s):
        torch = self.torch
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if self.wait and wait_s:
            self.wait(int(wait_s * 2e9))  # cycles
        begin.record()
        for _ in range(calls):
            function()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e6 / calls

    def median_ns(self, function, budget_s, repeats):
        """The median of at least `repeats` samples, more as the budget allows."""
        start = time.monotonic()
        function()  # loads the kernel, searches algorithms
        self.torch.cuda.synchronize()
        once_ns = max(self.sample(function, 3, 0), 1)
        calls = int(min(max(1, 1e6 // once_ns), 200))
        wait_s = min(calls * 40e-6, 0.01) if once_ns < 500e3 else 0
        while time.monotonic() - start < budget_s / 4:  # warm: clocks and temperature as in a long run
            self.sample(function, calls, 0)
        samples = []
        while len(samples) < repeats or (len(samples) < 50 and time.monotonic() - start < budget_s):
            samples.append(self.sample(function, calls, wait_s))
        return statistics.median(samples)


def usable_precisions(capability):
    least = {"fp32": (0, 0), "tf32": (8, 0), "fp16": (7, 0), "bf16": (8, 0), "fp8": (8, 9)}
    return [precision for precision, from_ in least.items() if capability >= from_]


def nvidia_smi(uuid):
    """The driver's figures of the card; {} without nvidia-smi."""
    fields = ["driver_version", "power.limit", "clocks.max.sm", "clocks.sm", "temperature.gpu", "power.draw"]
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    if uuid:
        command += ["-i", f"GPU-{uuid}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or len(lines) != 1:  # several cards, and no way to know which
        return {}
    return dict(zip(fields, (value.strip() for value in lines[0].split(","))))


def measure(seconds, quick):
    try:
        import torch
    except ImportError as error:
        raise Refused(f"PyTorch cannot be imported ({error}): use the Python that has it") from None
    if not torch.cuda.is_available() or torch.version.hip:
        raise Refused(f"PyTorch {torch.__version__} finds no NVIDIA card here; run it where the card is (see --fit for the other half)")
    timer = EventTimer(torch)
    warnings.simplefilter("ignore")  # settings of older releases have other names in newer ones
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True  # the fastest algorithm, which is what gpucast expects
    device = torch.cuda.get_device_properties(0)
    capability = (device.major, device.minor)
    l2_bytes = getattr(device, "L2_cache_size", 0)
    if not l2_bytes:
        say("left out: the rate of L2 (this PyTorch does not say how large L2 is; newer ones do)")
    before = nvidia_smi(getattr(device, "uuid", None))
    precisions = usable_precisions(capability)
    if "fp8" in precisions and not (hasattr(torch, "_scaled_mm") and hasattr(torch, "float8_e4m3fn")):
        say("left out: fp8 (this PyTorch has no product of fp8 matrices)")
        precisions.remove("fp8")
    planned = plan(precisions, l2_bytes, torch.cuda.mem_get_info()[0], quick)
    end = time.monotonic() + seconds
    if not quick:  # a card that was idle has other clocks than a busy one
        product = prepare(torch, gemm("fp32", 4096, 4096, 4096, True))
        while time.monotonic() < end - 0.95 * seconds:
            product()
            torch.cuda.synchronize()
        del product
    rows, failed = [], []
    for i, (operation, told) in enumerate(planned):
        left_s = end - time.monotonic()
        name = f"{operation['kind']} {operation.get('precision', '')}".strip()
        if left_s <= 0:
            failed.append(f"{name}: no time left (--seconds)")
            continue
        function = None
        try:
            function = prepare(torch, operation)
            ns = timer.median_ns(function, 0 if quick else min(left_s / (len(planned) - i), 2.0), 2 if quick else 3)
            if not (math.isfinite(ns) and ns > 0):
                raise RuntimeError(f"its time is {ns} ns")
            rows.append({"operation": operation, "tells": told, "ns": ns})
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            failed.append(f"{name}: {(str(error).strip() or type(error).__name__).splitlines()[0]}")
        del function
        torch.cuda.empty_cache()
    for what in dict.fromkeys(failed):
        say(f"left out: {what}")
    if not rows:
        raise Refused("nothing could be measured")
    return {
        "schema_version": SCHEMA,
        "device": {
            "name": device.name,
            "compute_capability": f"{device.major}.{device.minor}",
            "multiprocessors": device.multi_processor_count,
            "total_memory_bytes": device.total_memory,
        },
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "date": datetime.date.today().isoformat(),
        "nvidia_smi_before": before,
        "nvidia_smi_after": nvidia_smi(getattr(device, "uuid", None)),
        "rows": rows,
    }


# ---- from times to constants ------------------------------------------------------------------------------------------------------


class Gpucast:
    """The command: its table of cards, and its expected times of operations."""

    def __init__(self, command):
        self.command = shutil.which(command)
        if not self.command:
            raise Refused(
                f"the command '{command}' is not found: name it with --gpucast, or measure here (--measure FILE) and fit elsewhere"
            )

    def run(self, *words, text=None):
        done = subprocess.run([self.command, *words], input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused(f"`{' '.join([self.command, *words])}` failed:\n{done.stderr.strip()}")
        return done.stdout

    def cards(self):
        return json.loads(self.run("gpus", "--format", "json"))["gpus"]

    def expected_ns(self, card, operations, constants=None, machine=None):
        lines = "".join(json.dumps(operation) + "\n" for operation in operations)
        words = ["time", "--operations", "-", "--gpu", card]
        with tempfile.TemporaryDirectory() as folder:
            for option, file in (("constants", constants), ("machine", machine)):
                if file:
                    path = Path(folder) / f"{option}.json"
                    path.write_text(json.dumps(file))
                    words += [f"--{option}", str(path)]
            return [json.loads(line)["expected_ns"] for line in self.run(*words, text=lines).splitlines()]


def find_card(cards, device, asked=None):
    """The card of the table that was measured."""
    ids = ", ".join(card["id"] for card in cards)
    if asked:
        found = [card for card in cards if card["id"] == asked]
        if not found:
            raise Refused(f"gpucast knows no card '{asked}'; it knows {ids}")
    else:
        found = [card for card in cards if card["name"] == device["name"]]
        if not found:
            raise Refused(f"gpucast's table has no card named '{device['name']}': choose its entry with --gpu, from {ids}")
    card = min(found, key=lambda c: abs(c["total_memory_bytes"] - device["total_memory_bytes"]))
    if card["multiprocessors"] != device["multiprocessors"]:
        raise Refused(
            f"'{device['name']}' has {device['multiprocessors']} multiprocessors, gpucast's '{card['id']}' has {card['multiprocessors']}: "
            "it is another card (or a part of one), and its datasheet does not apply"
        )
    return card


def too_fast(rows, card):
    """Measurements that are faster than any card can be."""
    found = []
    for row in rows:
        operation, told = row["operation"], row["tells"]
        if told == "rates.dram_fraction":
            rate, peak, unit = operation["bytes_read"] + operation["bytes_written"], card["bandwidth_bytes_per_s"], "bytes/s"
        elif operation["kind"] == "gemm":
            rate, peak, unit = operation["flops"], card["peak_flop_per_s"][operation["precision"]], "FLOP/s"
        else:
            continue
        rate *= 1e9 / row["ns"]
        if rate > TOO_FAST * peak:
            found.append(f"{operation['kind']} {operation.get('precision', 'of memory')} at {rate:.3g} {unit}, datasheet {peak:.3g}")
    return found


def plausible(name, value):
    return next((low <= value <= high for end, (low, high) in PLAUSIBLE.items() if name.endswith(end)), True)


def layer_of(values, source):
    """{"rates.x": 1, "attention.fp16.y": 2} as a card's layer."""
    layer = {}
    for name, value in values.items():
        *groups, constant = name.split(".")
        group = layer
        for key in groups:
            group = group.setdefault(key, {})
        group[constant] = value
        group["source"] = source
    return layer


def direct(rows, card):
    """Constants that need no formula."""
    values = {}
    links = [row for row in rows if row["tells"] == "link"]
    if links:
        values["rates.link_bytes_per_s"] = 1e9 * sum(r["operation"]["bytes_read"] for r in links) / sum(r["ns"] for r in links)
    launches = [row["ns"] for row in rows if row["tells"] == "launch"]
    if launches:
        values["rates.launch_ns"] = statistics.median(launches)
    l2 = sorted((row["operation"]["bytes_read"] + row["operation"]["bytes_written"], row["ns"]) for row in rows if row["tells"] == "l2")
    if len(l2) == 2:
        (small, small_ns), (large, large_ns) = l2
        more_s = (large_ns - small_ns) * 1e-9
        values["rates.l2_bytes_per_clock"] = (
            (large - small) / more_s / (card["multiprocessors"] * card["clock_khz"] * 1e3) if more_s > 0 else 0
        )
    return values


def solve(rows, card, given, names, gpucast, rounds=40):
    """Values of `names` with which gpucast's expected times agree with the measured ones, in the median of each name's rows; the remaining ratio
    of each (expected / measured); the scatter of its rows (median of |log|); the names that the rows determine at all; and the limits that do
    not bind.

    A constant that is too high makes its operations too short by about the same factor: so each is multiplied by expected / measured, again
    and again. Products, memory and attention depend on each other, but never in a circle."""
    values = dict.fromkeys(names, 0.8)
    # The card was measured at its own power: no further limit of watts. Twice the datasheet's rate never binds.
    free = {}
    if card.get("power_w"):
        for name in names:
            if name.startswith("rates.") and name != "rates.dram_fraction":
                precision = name[len("rates.") : -len("_fraction")]
                free[f"rates.{precision}_flop_per_joule"] = 2 * card["peak_flop_per_s"][precision] / card["power_w"]
    operations = [row["operation"] for row in rows]

    def by_name(trial):
        """By name: expected over measured, of each of its rows."""
        file = {"schema_version": SCHEMA, "cards": {card["id"]: layer_of({**given, **free, **trial}, "calibrate.py")}}
        out = {name: [] for name in names}
        for row, ns in zip(rows, gpucast.expected_ns(card["id"], operations, file)):
            if row["tells"] in out:
                out[row["tells"]].append(ns / row["ns"])
        return out

    def medians(found):
        return {name: statistics.median(of_name) for name, of_name in found.items()}

    found, ratios = {}, {}
    for _ in range(rounds):
        found = by_name(values)
        ratios = medians(found)
        if all(abs(ratio - 1) < 1e-3 for ratio in ratios.values()):
            break
        values = {name: min(max(value * ratios[name], 0.01), 10.0) for name, value in values.items()}
    # If a lower value changes little, the operations wait for something else, and any value would fit: none is determined.
    # Memory apart from products, and these apart from the constants that depend on them, so none determines another.
    told = set()
    memory, rates = {"rates.dram_fraction"}, {name for name in names if name.startswith("rates.")}
    for group in (memory & rates, rates - memory, set(names) - rates):
        slower = medians(by_name({name: value * (0.9 if name in group else 1) for name, value in values.items()}))
        told |= {name for name in group if slower[name] / ratios[name] > 1.05}
    apart = {name: statistics.median(abs(math.log(ratio)) for ratio in of_name) for name, of_name in found.items()}
    return values, ratios, apart, told, free


def fit(measured, gpucast, asked=None):
    """(the card's id, its layer, lines on the quality of the fit)."""
    card = find_card(gpucast.cards(), measured["device"], asked)
    rows, without_unit = [], set()
    for row in measured["rows"]:
        precision = row["operation"].get("precision", "fp32")
        if not (math.isfinite(row["ns"]) and row["ns"] > 0):
            raise Refused(f"a measured time is {row['ns']} ns: {row['operation']}")
        if precision in card["peak_flop_per_s"]:
            rows.append(row)
        else:
            without_unit.add(precision)
    for precision in sorted(without_unit):
        say(f"left out: {precision} ('{card['id']}' has no datasheet rate for it)")
    fast = too_fast(rows, card)
    if fast:
        raise Refused(
            f"more than {TOO_FAST:.1f} times the datasheet of '{card['id']}', so these times cannot be right "
            f"(a wrong --gpu? not a real card?): {'; '.join(fast[:3])}. Nothing was written"
        )
    given = direct(rows, card)
    for name in [name for name, value in given.items() if not plausible(name, value)]:
        say(f"left out: {name} ({given.pop(name):.3g} is not plausible)")
    names = sorted({row["tells"] for row in rows if row["tells"] and "." in row["tells"]})
    while True:
        values, ratios, apart, told, free = solve(rows, card, given, names, gpucast)
        bad = {
            name: "the measurements do not determine it, or no plausible value explains it"
            for name in names
            if name not in told or not plausible(name, values[name]) or abs(ratios[name] - 1) > 0.05
        }
        for name in names:
            if name.startswith("rates.") and name not in bad and apart[name] > MOST_APART:
                bad[name] = "no one rate explains its operations: a clock that falls while they run, or something else that uses the card"
        if not bad:
            break
        # The card's rates first: convolutions and attention depend on them.
        bad = {name: why for name, why in bad.items() if name.startswith("rates.")} or bad
        for name, why in bad.items():
            say(f"left out: {name} ({why})")
        names = [name for name in names if name not in bad]
        if not any(name.startswith("rates.") for name in names):
            raise Refused("none of the card's rates can be determined; is something else using the card? Nothing was written")
    values = {name: float(f"{value:.4g}") for name, value in {**given, **values, **free}.items()}
    smi = measured.get("nvidia_smi_after") or {}
    parts = [f"torch {measured['torch']}", f"CUDA {measured['cuda']}"]
    parts += [f"{label} {smi[key]}" for key, label in (("driver_version", "driver"), ("power.limit", "power limit")) if key in smi]
    layer = layer_of(values, f"tools/calibrate.py on a {measured['device']['name']}, {measured['date']}: {', '.join(parts)}")
    return card["id"], layer, quality(rows, card, layer, gpucast)


def quality(rows, card, layer, gpucast):
    """A line for each kind and precision: the difference of expected from measured times, without the file and with it."""
    operations = [row["operation"] for row in rows]
    file = {"schema_version": SCHEMA, "cards": {card["id"]: layer}}
    before, after = gpucast.expected_ns(card["id"], operations), gpucast.expected_ns(card["id"], operations, file)
    groups = {}
    for row, old, new in zip(rows, before, after):
        name = f"{row['operation']['kind']} {row['operation'].get('precision', '')}".strip()
        name += "" if row["tells"] else ", only checked"
        groups.setdefault(name, []).append((abs(old / row["ns"] - 1), abs(new / row["ns"] - 1)))
    lines = [f"{'expected against measured, median error':44} {'before':>8} {'after':>8}"]
    for name, errors in groups.items():
        old, new = (statistics.median(error[i] for error in errors) for i in (0, 1))
        lines.append(f"  {name + f' ({len(errors)})':42} {100 * old:6.1f} % {100 * new:6.1f} %")
    return lines


# ---- links: the output of nccl-tests ------------------------------------------------------------------------------------------------

COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
PRECISIONS = {"float": "fp32", "half": "fp16", "bfloat16": "bf16", "int8": "int8", "uint8": "int8", "double": "fp64"}
LARGE_BYTES = 64 << 20  # from here on a time may show the links' rate, ...
FULL_RATE = 0.85  # ... if it has this part of the log's highest; ...
SMALL_BYTES = 16 << 10  # ... up to here it shows the time of a hop
LAUNCHER = re.compile(r"^\[[\d,]+\]<\w+>:\s?")  # mpirun --tag-output
PROGRAM = re.compile(r"\b(\w+)_perf\b")
RANK = re.compile(r"#\s+Rank\s+\d+\s.*\bon\s+(\S+)\s+device\s+\d+\s+\[[^]]*\]\s+(.*\S)")


def read_nccl_tests(path):
    """The log's tables: [{"collective", "hosts": {host: ranks}, "cards": {names}, "rows": [(bytes, type, ns)]}]."""
    try:
        text = Path(path).read_text(errors="replace")
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error}") from None
    tables, program = [], None
    for number, line in enumerate(text.splitlines(), 1):
        line = LAUNCHER.sub("", line)
        named = PROGRAM.search(line)
        program = named.group(1) if named else program
        if "# nThread" in line or not tables:
            tables.append({"collective": None, "hosts": {}, "cards": set(), "rows": []})
        table = tables[-1]
        table["collective"] = program
        rank = RANK.search(line)
        if rank:
            table["hosts"][rank.group(1)] = table["hosts"].get(rank.group(1), 0) + 1
            table["cards"].add(rank.group(2))
        cells = line.split()
        if len(cells) >= 9 and cells[0].isdigit() and cells[1].isdigit():
            table["rows"].append(nccl_row(cells, f"{path}, line {number}"))
    tables = [table for table in tables if table["rows"]]
    if not tables:
        raise Refused(f"{path} is no output of nccl-tests: it has no row of sizes and times")
    for table in tables:
        check_nccl_table(table, path)
    return tables


def nccl_row(cells, where):
    """size, count, type, redop, root, then time (us), algbw, busbw, #wrong of the out-of-place run."""
    try:
        us = float(cells[5])
    except ValueError:
        us = math.nan
    if not (math.isfinite(us) and us > 0):
        raise Refused(f"{where}: the time is '{cells[5]}', not a number of microseconds above 0")
    if cells[8] not in ("0", "N/A") and not ("e" in cells[8] and float(cells[8]) < 1e-2):  # before 2.13: the largest error
        raise Refused(f"{where}: nccl-tests counts '{cells[8]}' wrong results, so the times mean nothing")
    return int(cells[0]), cells[2], us * 1e3


def check_nccl_table(table, path):
    if not table["hosts"]:
        raise Refused(f"{path} does not name the ranks' cards: keep the lines that begin with '#  Rank'")
    if table["collective"] not in COLLECTIVES:
        names = ", ".join(f"{name}_perf" for name in COLLECTIVES)
        raise Refused(f"{path} does not name its program, or another than these: {names}. Keep the line of the command in the log")
    if len(set(table["hosts"].values())) > 1:
        raise Refused(f"{path}: the nodes have different numbers of ranks: {table['hosts']}")


def collective_operations(tables):
    """[(operation, ns, nodes)] of all tables."""
    out = []
    for table in tables:
        nodes, ranks = len(table["hosts"]), sum(table["hosts"].values())
        for size, type_, ns in table["rows"]:
            if size > 0 and type_ in PRECISIONS:
                shape = {"kind": COLLECTIVES[table["collective"]], "ranks": ranks, "nodes": nodes, "bytes": size}
                out.append(({"kind": "collective", "precision": PRECISIONS[type_], "collective": shape}, ns, nodes))
    return out


class Links:
    """A machine's file while its figures change: fields of `like`'s entry, and gpucast's times with them."""

    def __init__(self, gpucast, card, like):
        self.gpucast, self.card = gpucast, card
        self.entry = json.loads(gpucast.run("machines", "--show", like, "--format", "json"))
        self.file = {"like": str(Path(like).resolve()) if "/" in like or like.endswith(".json") else like}

    def value(self, field):
        return self.file.get(field) or self.entry.get(field)

    def ratios(self, rows):
        """Expected over measured, of each row."""
        expected = self.gpucast.expected_ns(self.card, [operation for operation, _, _ in rows], machine=self.file)
        return [ns / measured for ns, (_, measured, _) in zip(expected, rows)]

    def fit_rate(self, field, rows):
        """Changes a rate until the rows' times agree in the median. A time that is too long needs a rate that is as much higher."""
        self.file.pop(field, None)
        base, best = self.value(field), math.inf
        for _ in range(30):
            value, ratio = self.value(field), statistics.median(self.ratios(rows))
            if abs(math.log(ratio)) < best:
                best, best_value = abs(math.log(ratio)), value
            if best < 1e-3:
                break
            self.file[field] = float(f"{min(max(value * ratio, base / 20), base * 20):.4g}")
        if best_value == base:
            self.file.pop(field, None)
        else:
            self.file[field] = best_value
        if best > 0.02:  # where NCCL changes its algorithm, times jump, and no value may fit exactly
            raise Refused(
                f"no value of {field} from {base / 20:.3g} to {base * 20:.3g} explains the log: at {best_value:.3g} its times are {best:.0%} off"
            )

    def fit_hop(self, rows):
        """The time of a hop, in proportion to which expected times grow. False: the rows do not show it."""
        times = []
        for hop_ns in (1e3, 1e5):
            self.file["network_hop_ns"] = hop_ns
            times.append([ratio * measured for ratio, (_, measured, _) in zip(self.ratios(rows), rows)])
        wanted = [1e3 + (measured - short) * 99e3 / (long - short) for short, long, (_, measured, _) in zip(*times, rows) if long > short]
        hop_ns = statistics.median(wanted) if wanted else 0
        if not 100 <= hop_ns <= 1e7:
            del self.file["network_hop_ns"]
            say(f"left out: network_hop_ns ({hop_ns:.3g} is not plausible)")
            return False
        self.file["network_hop_ns"] = float(f"{hop_ns:.4g}")
        return True


def rows_at_full_rate(rows):
    """Large rows whose bytes a second are near the most of their collective."""
    most = {}
    for operation, ns, nodes in rows:
        shape = operation["collective"]
        key = shape["kind"], shape["ranks"], nodes
        most[key] = max(most.get(key, 0), shape["bytes"] / ns)
    full = []
    for row in rows:
        shape = row[0]["collective"]
        rate = shape["bytes"] / row[1]
        if shape["bytes"] >= LARGE_BYTES and rate >= FULL_RATE * most[shape["kind"], shape["ranks"], row[2]]:
            full.append(row)
    return full


def fit_links(rows, links):
    """Fills in links.file: the rate inside a node from rows of one node, the network's from rows of several."""
    inside = [row for row in rows if row[2] == 1]
    across = [row for row in rows if row[2] > 1]
    for name, field, group in (("one node", "card_bytes_per_s", inside), ("several nodes", "network_card_bytes_per_s", across)):
        large = rows_at_full_rate(group)
        if group and not large:
            raise Refused(
                f"the rows of {name} end below {LARGE_BYTES >> 20} MiB, where times show latencies: run nccl-tests with -e 1G or more"
            )
        if not group:
            continue
        if not links.value(field):
            raise Refused(
                f"the machine '{links.file['like']}' has no network cards, and the log is of several nodes: name another with --machine"
            )
        small = [row for row in group if row[2] > 1 and row[0]["collective"]["bytes"] <= SMALL_BYTES]
        for _ in range(3):  # a slower hop leaves less of a large time to the rate
            links.fit_rate(field, large)
            if not small or not links.fit_hop(small):
                break


def links_quality(rows, links, before):
    lines = [f"{'expected against measured, median error':44} {'before':>8} {'after':>8}"]
    groups = {}
    for row, old, new in zip(rows, before, links.ratios(rows)):
        operation, _, nodes = row
        size = operation["collective"]["bytes"]
        part = "large" if size >= LARGE_BYTES else "small" if size <= SMALL_BYTES else "medium"
        name = f"{operation['collective']['kind']}, {nodes} node{'s' if nodes > 1 else ''}, {part}"
        groups.setdefault(name, []).append((abs(old - 1), abs(new - 1)))
    for name, errors in groups.items():
        old, new = (statistics.median(error[i] for error in errors) for i in (0, 1))
        lines.append(f"  {name + f' ({len(errors)})':42} {100 * old:6.1f} % {100 * new:6.1f} %")
        if name.endswith("large") and new > 0.15:
            say(f"one rate does not explain the whole log: {name} stays {new:.0%} off")
    return lines


def calibrate_links(options, gpucast):
    """The machine's file and lines on the quality of the fit."""
    tables = [table for path in options.nccl_tests for table in read_nccl_tests(path)]
    names = {name for table in tables for name in table["cards"]}
    if len(names) != 1:
        raise Refused(f"the logs are of several kinds of cards: {', '.join(sorted(names))}")
    name = names.pop()
    cards = gpucast.cards()
    found = [card["id"] for card in cards if (card["id"] == options.gpu if options.gpu else card["name"] == name)]
    if not found:
        raise Refused(f"gpucast's table has no card '{options.gpu or name}': choose its entry, or one that stands for it, with --gpu")
    like = options.machine
    if not like:
        machines = json.loads(gpucast.run("machines", "--format", "json"))["machines"]
        like = next(machine["id"] for machine in machines if found[0] in machine["usual_for"])
    links = Links(gpucast, found[0], like)
    rows = collective_operations(tables)
    before = links.ratios(rows)
    fit_links(rows, links)
    files = ", ".join(os.path.basename(path) for path in options.nccl_tests)
    changed = [field for field in ("card_bytes_per_s", "network_card_bytes_per_s", "network_hop_ns") if field in links.file]
    source = f"{', '.join(changed) or 'no figure needs a change'}: tools/calibrate.py --nccl-tests {files} ({name})"
    machine = {"like": links.file["like"], **{field: links.file[field] for field in changed}, "sources": [source]}
    return machine, [*links_quality(rows, links, before), f"Use it: gpucast time FILE --gpu {found[0]} --machine {options.out}"]


# ---- files ------------------------------------------------------------------------------------------------------------------------


def default_path():
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(folder) / "gpucast" / "constants.json"


def read_json(path):
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise Refused(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict) or found.get("schema_version") != SCHEMA:
        raise Refused(f"{path} is no file of this version (schema_version {SCHEMA})")
    return found


def read_measured(path):
    found = read_json(path)
    try:
        for row in found["rows"]:
            float(row["ns"]), row["operation"]["kind"], row["tells"]
        found["device"]["name"], found["device"]["multiprocessors"], found["torch"], found["cuda"], found["date"]
    except (KeyError, TypeError, ValueError):
        raise Refused(f"{path} holds no times that --measure wrote") from None
    return found


def write(path, text):
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".new")
        beside.write_text(text)
        beside.replace(path)  # all or nothing
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error}") from None


def with_card(path, card, layer, force):
    """The constants file with this card; other cards of a file that is there stay."""
    file = {"schema_version": SCHEMA}
    if Path(path).exists():
        file = read_json(path)
        if card in (file.get("cards") or {}) and not force:
            raise Refused(f"{path} already has constants of '{card}': --force replaces them, --out names another file")
    file["cards"] = {**(file.get("cards") or {}), card: layer}
    return json.dumps(file, indent=1) + "\n"


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="FILE", help="constants; default: gpucast/constants.json in the user's configuration folder")
    parser.add_argument("--force", action="store_true", help="replace this card's constants in --out, or the file of --measure")
    parser.add_argument("--gpu", metavar="ID", help="the card as `gpucast gpus` lists it; without it, by its name")
    parser.add_argument("--gpucast", default="gpucast", metavar="COMMAND", help="the gpucast command")
    parser.add_argument("--measure", metavar="FILE", help="measure only, and write the times")
    parser.add_argument("--fit", metavar="FILE", help="use times that --measure wrote, instead of measuring")
    parser.add_argument(
        "--nccl-tests", metavar="LOG", nargs="+", help="instead: fit the links to outputs of nccl-tests, and write a machine to --out"
    )
    parser.add_argument(
        "--machine", metavar="NAME", help="with --nccl-tests: the machine as `gpucast machines` lists it; default: the card's usual one"
    )
    parser.add_argument("--seconds", type=float, default=60, help="about how long to measure (default 60)")
    parser.add_argument("--quick", action="store_true", help="tiny operations, to try the script; they say nothing about the card")
    options = parser.parse_args(words)
    if options.measure and options.fit:
        parser.error("--measure and --fit are two halves: name one")
    if options.nccl_tests and (options.measure or options.fit or not options.out):
        parser.error("--nccl-tests measures no card: name the file to write with --out, and leave out --measure and --fit")
    if options.machine and not options.nccl_tests:
        parser.error("--machine is for --nccl-tests")
    if not (math.isfinite(options.seconds) and options.seconds > 0):
        parser.error("--seconds is a number above 0")
    try:
        if options.measure:
            if Path(options.measure).exists() and not options.force:
                raise Refused(f"{options.measure} exists: --force replaces it")
            measured = measure(options.seconds, options.quick)
            write(options.measure, json.dumps(measured, indent=1) + "\n")
            print(f"{options.measure}: {len(measured['rows'])} times. Next, where gpucast is: python calibrate.py --fit {options.measure}")
            return 0
        # Early errors come before the minute of measurements.
        gpucast = Gpucast(options.gpucast)
        if options.nccl_tests:
            if Path(options.out).exists() and not options.force:
                raise Refused(f"{options.out} exists: --force replaces it")
            machine, lines = calibrate_links(options, gpucast)
            write(options.out, json.dumps(machine, indent=1) + "\n")
            print("\n".join(lines))
            return 0
        out = Path(options.out) if options.out else default_path()
        if out.exists():
            read_json(out)
        measured = read_measured(options.fit) if options.fit else measure(options.seconds, options.quick)
        card, layer, lines = fit(measured, gpucast, options.gpu)
        write(out, with_card(out, card, layer, options.force))
    except Refused as error:
        say(str(error))
        return 2
    print("\n".join(lines))
    print(f"{out}: constants of {card}. Use them: gpucast time FILE --gpu {card} --constants {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
