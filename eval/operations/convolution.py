"""Convolutions compared with `gpucast time --operations`: DeepBench (three passes), NeuSight (forward).

    python -m eval.operations.convolution --data DIR

DIR has the layout of its data sets; missing ones are left out. The rows of each fit, and rows of cards left out of the fit:
fit_convolution.py --leave-out.
"""

import numpy as np

from eval.data_sets import card_of, read_csv
from eval.operations.measured import Row, tables

PASSES = {"forward": "fwd_ms", "data_gradient": "bwd_data_ms", "weight_gradient": "bwd_filter_ms"}
# DeepBench's names: type of the arithmetic, bytes of an element, channels last.
PRECISIONS = {"fp32": ("fp32", 4, False), "fp16_mixed": ("fp16", 2, True), "fp16_in_fp32_math": ("fp32", 2, False)}
# The part of NeuSight's smallest convolutions (library search and memory from the driver included) before a larger one's kernels.
NEUSIGHT_SHARE = 1.0


def volume(size):
    return int(np.prod(size))


def convolution(precision, size, pass_, batch, c, k, in_, out, window, stride, channels_last=False, groups=1):
    """in_, out, window, stride: (height, width)."""
    x, y, w = batch * c * volume(in_) * size, batch * k * volume(out) * size, c // groups * k * volume(window) * size
    read = {"forward": x + w, "data_gradient": y + w, "weight_gradient": x + y}[pass_]
    return {
        "kind": "convolution",
        "precision": precision,
        "element_bytes": size,
        "bytes_read": read,
        "bytes_written": x + y + w - read,
        "flops": 2.0 * batch * k * volume(out) * c // groups * volume(window),
        "pass": pass_,
        "convolution": {
            "pass": pass_,
            "batch": batch,
            "in_channels": c,
            "out_channels": k,
            "groups": groups,
            "in": list(in_),
            "out": list(out),
            "window": list(window),
            "stride": list(stride),
            "channels_last": channels_last,
        },
    }


def deepbench(data):
    for r in read_csv(data / "kernel_times/deepbench_conv.csv"):
        n, c, k, h, w, high, wide = (int(r[x]) for x in ("n", "c", "k", "h", "w", "out_h", "out_w"))
        window, stride = (int(r["filter_h"]), int(r["filter_w"])), (int(r["stride_h"]), int(r["stride_w"]))
        precision, size, last = PRECISIONS[r["precision"]]
        for pass_, column in PASSES.items():
            if not r[column]:
                continue
            operation = convolution(precision, size, pass_, n, c, k, (h, w), (high, wide), window, stride, last)
            note = f"n {n} c {c} k {k} {h}x{w} window {window[0]}x{window[1]} stride {stride[0]} {r['fwd_algo']}"
            yield Row(
                "DeepBench convolutions", f"{r['precision']} {pass_}", card_of(r["card"]), float(r[column]) * 1e3, operation, note=note
            )


def neusight(data):
    for folder in ("ops_train", "ops_test"):
        for path in sorted((data / "neusight" / folder).glob("conv__*.csv.gz")):
            card = card_of(path.name.removesuffix(".csv.gz").split("__")[1])
            read = read_csv(path)
            floor = float(np.median(np.sort([float(r["Latency"]) for r in read])[:20])) * 1e3
            for r in read:
                b, c, k, f, h, s, p = (
                    int(float(r[x])) for x in ("B", "Input_Channel", "Output_Channel", "Kernel_Szie", "Input_Size", "Stride", "Padding")
                )
                out, us = (h + 2 * p - f) // s + 1, float(r["Latency"]) * 1e3
                if out < 1 or us < 10 * floor:
                    continue
                operation = convolution("fp32", 4, "forward", b, c, k, (h, h), (out, out), (f, f), (s, s))
                yield Row(
                    "NeuSight convolutions", "fp32 forward, 3x3", card, us, operation, floor, NEUSIGHT_SHARE, f"n {b} c {c} k {k} {h}x{h}"
                )


def rows(data):
    for read in (deepbench, neusight):
        yield from read(data)


def cause(row, ratio):
    shape = row.operation["convolution"]
    if "in_fp32" in row.label:
        return "fp16 tensors on P100 in cuDNN 6: fallback kernels in both gradients, and products in fp16 although the sheet says fp32; nothing is fitted on these"
    if shape["in_channels"] <= 4:
        return "a first layer's few channels: special kernels"
    if shape["pass"] == "data_gradient" and max(shape["stride"]) > 1:
        return "a strided data gradient: the library's choice among several ways differs by release (cuDNN 6 and 7.6 here)"
    if shape["window"][:2] == [3, 3] and "fp32" in row.label:
        return "Winograd or not: the library's choice, and its kernels, differ by release and size"
    if shape["window"][:2] == [5, 5] and ratio < 1:
        return "FFT or Winograd for 5x5, which the model does not have"
    if row.measured_us < 80:
        return "shorter than 80 us: start, and splitting of few tiles over multiprocessors, weigh more than products"
    if shape["pass"] == "weight_gradient":
        return "how the sum over positions is cut into parts"
    return "another tile or algorithm than the model's"


if __name__ == "__main__":
    tables(rows, cause, __doc__)
