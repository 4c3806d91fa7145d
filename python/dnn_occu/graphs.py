"""A recorded graph (python/gpucast/graph.py) and a card as numbers: Table I of DNN-occu."""

import dataclasses
import json
import math

import numpy

# One-hot, with a place for all others. Their order belongs to the weights.
OPERATORS = (
    *("convolution", "cudnn_convolution", "cudnn_batch_norm", "native_batch_norm", "_native_batch_norm_legit_no_training"),
    *("native_layer_norm", "native_group_norm", "addmm", "mm", "bmm", "baddbmm", "_native_multi_head_attention"),
    *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention"),
    *("_scaled_dot_product_cudnn_attention", "_cudnn_rnn", "relu", "relu_", "gelu", "silu", "hardtanh", "tanh", "sigmoid"),
    *("clamp_min", "_softmax", "_log_softmax", "add", "add_", "sub", "mul", "mul_", "div", "pow", "sqrt", "rsqrt", "exp"),
    *("neg", "mean", "sum", "linalg_vector_norm", "argmax", "max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d"),
    *("upsample_bilinear2d", "cat", "clone", "copy_", "_to_copy", "roll", "constant_pad_nd", "embedding", "index", "gather"),
    *("masked_fill", "masked_fill_", "where", "eq", "ne", "lt", "any", "all", "full", "fill_", "zeros", "ones", "arange"),
)
_PLACE = {name: place for place, name in enumerate(OPERATORS)}

HYPERPARAMETERS = 12  # numbers among an operator's arguments: strides, paddings, dimensions
DIMENSIONS = 4  # of a tensor, the last ones
CARD = ("fp32_flop_per_s", "total_memory_bytes", "multiprocessors", "bandwidth_bytes_per_s")
NODE_FEATURES = len(OPERATORS) + 1 + HYPERPARAMETERS + 4 * DIMENSIONS + 4 + 3
EDGE_FEATURES = 3


@dataclasses.dataclass
class Graph:
    nodes: numpy.ndarray  # [nodes, NODE_FEATURES] float32
    edges: numpy.ndarray  # [edges, EDGE_FEATURES] float32
    ends: numpy.ndarray  # [edges, 2] int64: from, to


def card(gpu):
    """Table I's figures of a card, from an entry of `gpucast gpus --format json`."""
    return {
        "fp32_flop_per_s": gpu["peak_flop_per_s"]["fp32"],
        **{name: gpu[name] for name in CARD[1:]},
    }


def read(path):
    """The run's recorded graph. ValueError: it is no such file."""
    with open(path, encoding="utf-8") as file:
        recorded = json.load(file)
    if recorded.get("schema_version") != 1 or not recorded.get("nodes"):
        raise ValueError(f"{path} has no graph of a forward")
    return recorded


def _log(value):
    """Sizes and rates span 15 decades; negative numbers (dimensions counted from the end) keep their sign."""
    return math.copysign(math.log2(1 + abs(value)), value) / 16


def _shape(shapes, place):
    shape = shapes[place][-DIMENSIONS:] if len(shapes) > place else []
    return [0.0] * (DIMENSIONS - len(shape)) + [_log(size) for size in shape]


def graph(recorded, card):
    """`card`: a result of card()."""
    nodes = numpy.zeros((len(recorded["nodes"]), NODE_FEATURES), dtype=numpy.float32)
    for row, node in zip(nodes, recorded["nodes"]):
        name = node["operator"].rpartition("::")[2]
        row[_PLACE.get(name, len(OPERATORS))] = 1
        numbers = [_log(number) for number in node["hyperparameters"][:HYPERPARAMETERS]]
        rest = numbers + [0.0] * (HYPERPARAMETERS - len(numbers))
        for place in range(3):  # data, weight, and others
            rest += _shape(node["inputs"], place)
        rest += _shape(node["outputs"], 0)
        rest += [_log(node[name]) for name in ("temporary_bytes", "input_bytes", "output_bytes", "flops")]
        rest += [_log(card[name]) for name in CARD[:3]]
        row[len(OPERATORS) + 1 :] = rest
    edges = numpy.zeros((len(recorded["edges"]), EDGE_FEATURES), dtype=numpy.float32)
    bandwidth = _log(card["bandwidth_bytes_per_s"])
    for row, (_, _, size) in zip(edges, recorded["edges"]):
        row[:] = 1, _log(size), bandwidth  # 1: forward, the only kind in inference
    ends = numpy.array([edge[:2] for edge in recorded["edges"]], dtype=numpy.int64).reshape(-1, 2)
    return Graph(nodes, edges, ends)
