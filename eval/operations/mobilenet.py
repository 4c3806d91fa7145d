"""Kernels of a training step compared with `gpucast time --operations`: MobileNetV2 in fp32 on a V100, from the kernel lists of eth-easl/orion.

    python -m eval.operations.mobilenet --data DIR

DIR has eth_easl_orion_kernels/mobilenetv2_BATCH_fb1.gz: a line per kernel, in their order, with durations. A kernel's layer follows
from the order: forward, then backward from the last layer, the data's gradient first. ResNet's lists are not read: their convolutions of
3x3 are shorter than any algorithm can be, so parts of them are missing there.
Batch norm's passes, the bytes per cycle of a channel's block, and depthwise convolutions in fp32 were set by hand to these rows.
"""

import numpy as np

from eval.data_sets import read_csv
from eval.operations.convolution import convolution
from eval.operations.measured import Row, tables

BATCHES = (32, 64, 96)
STAGES = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def layers():
    """(channels, output channels, size, window, stride, groups) of MobileNetV2's convolutions; a batch norm follows each."""
    out, channels, size = [(3, 32, 224, 3, 2, 1)], 32, 112
    for wider, to, count, first in STAGES:
        for i in range(count):
            stride, hidden = first if i == 0 else 1, channels * wider
            if wider > 1:
                out.append((channels, hidden, size, 1, 1, 1))
            out.append((hidden, hidden, size, 3, stride, hidden))
            size = (size - 1) // stride + 1
            out.append((hidden, to, size, 1, 1, 1))
            channels = to
    return [*out, (channels, 1280, size, 1, 1, 1)]


def convolution_row(batch, pass_, layer, us):
    c, k, size, window, stride, groups = layer
    out = (size - 1) // stride + 1
    operation = convolution("fp32", 4, pass_, batch, c, k, (size, size), (out, out), (window, window), (stride, stride), groups=groups)
    label = f"fp32 {'depthwise' if groups > 1 else '1x1'} {pass_}"
    return Row("MobileNetV2 on a V100", label, "v100-16", us, operation, note=f"n {batch} c {c} k {k} {size}x{size} stride {stride}")


def norm_row(batch, pass_, layer, us):
    _, channels, size, _, stride, _ = layer
    columns = batch * ((size - 1) // stride + 1) ** 2
    tensor = 4 * channels * columns
    operation = {
        "kind": "normalization",
        "precision": "fp32",
        "element_bytes": 4,
        "bytes_read": tensor if pass_ == "forward" else 2 * tensor,
        "bytes_written": tensor,
        "rows": channels,
        "columns": columns,
        "per_channel": True,
        "pass": pass_,
    }
    return Row("MobileNetV2 on a V100", f"fp32 batch norm {pass_}", "v100-16", us, operation, note=f"channels {channels} columns {columns}")


def rows(data):
    every = layers()
    dense, depthwise = [layer for layer in every if layer[5] == 1], [layer for layer in every if layer[5] > 1]
    back = [
        (pass_, layer)
        for layer in reversed(dense)
        for pass_ in ("data_gradient", "weight_gradient")
        if (pass_, layer[0]) != ("data_gradient", 3)
    ]
    orders = {
        "Conv": (convolution_row, [("forward", layer) for layer in dense] + back),
        "BatchNorm": (norm_row, [("forward", layer) for layer in every] + [("backward", layer) for layer in reversed(every)]),
        "conv_depthwise2d_forward": (convolution_row, [("forward", layer) for layer in depthwise]),
        "conv_depthwise2d_backward": (convolution_row, [("data_gradient", layer) for layer in reversed(depthwise)]),
        "conv_depthwise2d_grad_weight": (convolution_row, [("weight_gradient", layer) for layer in reversed(depthwise)]),
    }
    for batch in BATCHES:
        kernels = [(r["Name"], float(r["Duration"]) / 1e3) for r in read_csv(data / "eth_easl_orion_kernels" / f"mobilenetv2_{batch}_fb1")]
        for name, (row, order) in orders.items():
            found = [us for kernel, us in kernels if name in kernel]
            if len(found) == len(order):  # otherwise it is another model's list
                yield from (row(batch, pass_, layer, us) for (pass_, layer), us in zip(order, found))


def cause(row, ratio):
    if "1x1 weight" in row.label:
        return "how the sum over positions is cut into parts"
    return "another tile or algorithm than the model's" if "1x1" in row.label else f"not known ({np.sign(ratio - 1):+.0f})"


if __name__ == "__main__":
    tables(rows, cause, __doc__)
