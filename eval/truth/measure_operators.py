#!/usr/bin/env python3
"""Measure the GPU time of each kernel of PyTorch's eager operators and of whole training steps: one JSON line per case, for eval/truth.

    python eval/truth/measure_operators.py -o h100_operators.jsonl.gz                    # 80 seconds; use an idle card
    python eval/truth/measure_operators.py -o h100_operators.jsonl.gz --only operators   # or models

Kernels and their launches are read from PyTorch's profiler. The models need torchvision, timm and transformers.
"""

import argparse
import bisect
import collections
import contextlib
import gzip
import json
import math
import os
import random
import re
import statistics
import sys
import tempfile
import time
import traceback
import typing
import zlib

import measure_on_gpu
import torch
import torch.nn.functional as F

VERSION = 1  # of the rows
SEED = 11
PARTS = ("operators", "models")
DEVICE = "cuda"
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WARM_REPETITIONS, REPETITIONS, GROUP = 3, 5, 25
WARM_STEPS, TIMED_STEPS, PROFILED_STEPS = 4, 5, 2
L2_FLUSH_BYTES = 256 << 20
# The share of the time at whose end each kind of task is left out.
SHARES = {"time": 0.45, "profile": 0.65, "group": 1.0}
MOST_RESTARTS = 5


class Case(typing.NamedTuple):
    operator: str
    arguments: dict
    precision: str
    build: typing.Callable  # -> {"forward" or "backward": (prepare or None, run)}; run gets what prepare returns


# ---- inputs ------------------------------------------------------------------------------------------------------------------------


def normal(*shape, precision="fp32", grad=False):
    return torch.randn(*shape, device=DEVICE, dtype=DTYPES[precision]).requires_grad_(grad)


def integers(high, *shape):
    return torch.randint(high, shape, device=DEVICE)


def alone(function):
    return {"forward": (None, function)}


def both(function, *inputs, parameters=()):
    """A forward pass, and a backward pass for each input that needs a gradient."""
    wanted = [x for x in (*inputs, *parameters) if torch.is_tensor(x) and x.requires_grad]

    def prepare():
        result = function(*inputs)
        return result, torch.randn_like(result)

    def backward(result, gradient):
        torch.autograd.grad(result, wanted, gradient)

    return {"forward": (None, lambda: function(*inputs)), "backward": (prepare, backward)}


def bits(rng, low, high):
    """An integer between two powers of two, by its logarithm."""
    return int(2 ** rng.uniform(low, high))


def matrix(rng, low, high, columns=(1, 3, 17, 64, 100, 768, 1000, 1024, 4096, 5120, 8192)):
    width = rng.choice(columns)
    return max(1, bits(rng, low, high) // width), width


# ---- the families of cases -----------------------------------------------------------------------------------------------------


def elementwise(rng, index):
    table = {
        "add": lambda x, y: x + y,
        "gelu": lambda x, y: F.gelu(x),
        "mul": lambda x, y: x * y,
        "silu": lambda x, y: F.silu(x),
        "dropout": lambda x, y: F.dropout(x, 0.1),
        "where": lambda x, y: torch.where(y > 0, x, y),
        "add_scalar": lambda x, y: x + 1.5,
        "relu": lambda x, y: F.relu(x),
        "add_row": lambda x, y: x + y[:1],
        "mul_column": lambda x, y: x * y[:, :1],
        "gelu_tanh": lambda x, y: F.gelu(x, approximate="tanh"),
        "masked_fill": lambda x, y: x.masked_fill(y > 0, -1e4),
        "div": lambda x, y: x / y,
        "exp": lambda x, y: x.exp(),
        "pow": lambda x, y: x.pow(3),
        "sigmoid": lambda x, y: x.sigmoid(),
        "clamp": lambda x, y: x.clamp(-1, 1),
        "glu": lambda x, y: F.glu(x),
        "addcmul": lambda x, y: torch.addcmul(x, x, y),
        "compare": lambda x, y: x > y,
        "add_transposed": lambda x, y: x + y.t().contiguous().t(),
        "mixed_add": lambda x, y: x + y.float(),
    }
    name = list(table)[index % len(table)]
    precision = rng.choice(("fp32", "bf16", "bf16", "fp16"))
    shape = matrix(rng, 12, 27, columns=(64, 100, 768, 1000, 1024, 4096, 5120)) if name == "glu" else matrix(rng, 12, 27)
    grad = name in ("gelu", "silu", "dropout", "where", "relu", "add_row", "mul_column", "gelu_tanh", "masked_fill", "glu", "sigmoid")

    def build():
        x, y = normal(*shape, precision=precision, grad=grad), normal(*shape, precision=precision)
        if name in ("add_row", "mul_column"):
            y = y.requires_grad_(True)
        return both(table[name], x, y) if grad else alone(lambda: table[name](x, y))

    return Case(name, {"shape": shape}, precision, build)


def in_place(rng, index):
    table = {
        "add_": lambda x, y: x.add_(y, alpha=0.1),
        "zero_": lambda x, y: x.zero_(),
        "fill_": lambda x, y: x.fill_(1.5),
        "mul_scalar_": lambda x, y: x.mul_(0.999),
        "copy_": lambda x, y: x.copy_(y),
        "relu_": lambda x, y: x.relu_(),
    }
    name, precision, shape = list(table)[index % len(table)], rng.choice(("fp32", "bf16")), matrix(rng, 14, 27)

    def build():
        x, y = normal(*shape, precision=precision), normal(*shape, precision=precision)
        return alone(lambda: table[name](x, y))

    return Case(name, {"shape": shape}, precision, build)


def copies(rng, index):
    n, c, s = rng.choice((8, 32)), rng.choice((3, 64, 100, 256)), rng.choice((14, 28, 56))
    rows, width = matrix(rng, 16, 26, columns=(64, 100, 768, 1000, 4096))
    heads = (rng.choice((4, 8)), rng.choice((197, 512, 1024)), 12, 64)
    table = {
        "to_bf16": ((rows, width), "fp32", lambda x: x.bfloat16()),
        "to_fp32": ((rows, width), "bf16", lambda x: x.float()),
        "transposed": ((rows, width), "fp32", lambda x: x.t().contiguous()),
        "transposed_bf16": ((rows, width), "bf16", lambda x: x.t().contiguous()),
        "heads": (heads, "bf16", lambda x: x.transpose(1, 2).contiguous()),
        "heads_fp32": (heads, "fp32", lambda x: x.transpose(1, 2).contiguous()),
        "channels_last": ((n, c, s, s), "fp32", lambda x: x.contiguous(memory_format=torch.channels_last)),
        "channels_last_bf16": ((n, c, s, s), "bf16", lambda x: x.contiguous(memory_format=torch.channels_last)),
        "every_second": ((rows, width), "fp32", lambda x: x[:, ::2].contiguous()),
        "first_columns": ((rows, width), "bf16", lambda x: x[:, : width // 3].contiguous()),
        "expanded": ((rows, 1), "bf16", lambda x: x.expand(rows, width).contiguous()),
        "to_fp16_transposed": ((rows, width), "fp32", lambda x: x.t().to(torch.float16, memory_format=torch.contiguous_format)),
        "to_host": ((rows, 16), "fp32", lambda x: x.cpu()),
        "roll": ((n, s, s, c), "bf16", lambda x: x.roll((3, 3), (1, 2))),
        "flip": ((n, c, s, s), "fp32", lambda x: x.flip(3)),
        "repeat_interleave": ((rows, 64), "bf16", lambda x: x.repeat_interleave(4, 0)),
        "tril": ((rng.choice((512, 1000)), 4096), "fp32", lambda x: x.tril()),
    }
    name = list(table)[index % len(table)]
    shape, precision, function = table[name]

    def build():
        x = normal(*shape, precision=precision)
        return alone(lambda: function(x))

    return Case(name, {"shape": shape, "columns": width}, precision, build)


def joins(rng, index):
    name, precision = (
        ("cat_rows", "cat_columns", "cat_channels", "stack", "cat_uneven", "split_backward")[index % 6],
        rng.choice(("fp32", "bf16")),
    )
    rows, width = matrix(rng, 16, 24, columns=(64, 96, 768, 1000))
    count = rng.choice((2, 3, 8))
    size = rng.choice((14, 28, 56))

    def build():
        if name == "cat_channels":
            parts = [normal(16, 32 * (i + 1), size, size, precision=precision) for i in range(count)]
            return alone(lambda: torch.cat(parts, 1))
        if name == "cat_uneven":
            parts = [normal(rows, 1 + 13 * i, precision=precision) for i in range(count)]
            return alone(lambda: torch.cat(parts, 1))
        if name == "split_backward":
            x = normal(rows, 3 * width, precision=precision, grad=True)
            return both(lambda x: sum(x.chunk(3, 1)), x)
        parts = [normal(rows, width, precision=precision) for _ in range(count)]
        return alone(lambda: torch.stack(parts) if name == "stack" else torch.cat(parts, int(name == "cat_columns")))

    return Case(name, {"rows": rows, "columns": width, "count": count, "size": size}, precision, build)


def indexing(rng, index):
    names = ("index_select", "gather", "index", "scatter", "scatter_add", "index_put", "index_put_add", "index_add", "index_columns")
    names = (*names, "masked_select", "nonzero", "take_along_repeated", "scatter_add_repeated", "index_put_add_repeated")
    name, precision = names[index % len(names)], rng.choice(("fp32", "fp32", "bf16"))
    rows, width = bits(rng, 10, 17), rng.choice((16, 64, 100, 512))
    picks = bits(rng, 10, 17)

    def build():
        grad = name in ("index_select", "gather", "index", "index_columns", "take_along_repeated")
        x = normal(rows, width, precision=precision, grad=grad)
        source = normal(picks, width, precision=precision)
        few = max(1, rows // 100)
        row = integers(few if name.endswith("repeated") else rows, picks)
        if name == "index_select":
            return both(lambda x: x.index_select(0, row), x)
        if name == "index":
            return both(lambda x: x[row], x)
        if name == "index_columns":
            column = integers(width, max(1, width // 2))
            return both(lambda x: x[:, column], x)
        if name in ("gather", "take_along_repeated"):
            wide = row[:, None].expand(picks, width).contiguous()
            return both(lambda x: x.gather(0, wide), x)
        if name == "scatter":
            column = integers(width, rows, 4)
            values = normal(rows, 4, precision=precision)
            return alone(lambda: x.scatter(1, column, values))
        if name.startswith("scatter_add"):
            wide = row[:, None].expand(picks, width).contiguous()
            return alone(lambda: x.scatter_add_(0, wide, source))
        if name == "index_put":
            return alone(lambda: x.index_put_((row,), source))
        if name.startswith("index_put_add"):
            return alone(lambda: x.index_put_((row,), source, accumulate=True))
        if name == "index_add":
            return alone(lambda: x.index_add_(0, row, source))
        mask = x > 0
        return alone((lambda: x.masked_select(mask)) if name == "masked_select" else (lambda: mask.nonzero()))

    return Case(name, {"rows": rows, "columns": width, "picks": picks}, precision, build)


def embeddings(rng, index):
    words, width = rng.choice((1000, 30522, 50257, 128256)), rng.choice((64, 300, 768, 2048))
    shape, precision = (rng.choice((4, 32)), rng.choice((128, 512, 1024))), rng.choice(("fp32", "bf16"))
    spread = ("uniform", "repeated", "one")[index % 3]

    def build():
        high = {"uniform": words, "repeated": min(words, 50), "one": 1}[spread]
        place, table = integers(high, *shape), normal(words, width, precision=precision, grad=True)
        return both(lambda table: F.embedding(place, table), table)

    return Case("embedding", {"words": words, "width": width, "shape": shape, "indices": spread}, precision, build)


def reductions(rng, index):
    table = {
        "sum": lambda x, d: x.sum(d),
        "mean": lambda x, d: x.mean(d),
        "amax": lambda x, d: x.amax(d),
        "var": lambda x, d: x.var(d),
        "norm": lambda x, d: torch.linalg.vector_norm(x, dim=d),
        "logsumexp": lambda x, d: x.logsumexp(d),
        "max": lambda x, d: x.max(d[0])[0],
        "argmax": lambda x, d: x.argmax(d[0]),
        "any": lambda x, d: (x > 4).any(d[0]),
        "prod": lambda x, d: x.prod(d[0]),
    }
    name, precision = list(table)[index % len(table)], rng.choice(("fp32", "fp32", "bf16"))
    shape, dims = rng.choice(
        (
            (matrix(rng, 14, 26), (1,)),
            (matrix(rng, 14, 26), (0,)),
            (matrix(rng, 14, 26), (0, 1)),
            ((rng.choice((8, 32)), rng.choice((64, 100, 512)), *[rng.choice((7, 28, 56))] * 2), (0, 2, 3)),
            ((rng.choice((8, 32)), rng.choice((64, 100, 512)), *[rng.choice((7, 28, 56))] * 2), (2, 3)),
            ((rng.choice((8, 32)), rng.choice((64, 197, 512)), rng.choice((64, 768))), (1,)),
        )
    )

    def build():
        grad = name in ("mean", "amax", "var", "norm", "max")
        x = normal(*shape, precision=precision, grad=grad)
        return both(lambda x: table[name](x, dims), x) if grad else alone(lambda: table[name](x, dims))

    return Case(name, {"shape": shape, "dim": dims}, precision, build)


def softmaxes(rng, index):
    name, precision = ("softmax", "log_softmax")[index % 2], rng.choice(("fp32", "bf16", "fp16"))
    columns = (8, 64, 100, 197, 512, 1024, 1025, 2048, 4096, 10000, 50257, 131072)
    shape, dim = matrix(rng, 18, 27, columns=columns), 1
    if index % 5 == 4:
        shape = (rng.choice((4, 16)), rng.choice((21, 150)), *[rng.choice((32, 64))] * 2)

    def build():
        x = normal(*shape, precision=precision, grad=True)
        return both(lambda x: getattr(F, name)(x, dim), x)

    return Case(name, {"shape": shape, "dim": dim}, precision, build)


def losses(rng, index):
    names = (
        "cross_entropy",
        "nll_loss",
        "cross_entropy",
        "mse_loss",
        "binary_cross_entropy_with_logits",
        "cross_entropy",
        "smooth_l1_loss",
    )
    names = (*names, "cross_entropy_smoothed", "kl_div", "cross_entropy")
    name, precision = names[index % len(names)], rng.choice(("fp32", "bf16"))
    words = (1000, 32000, 50257, 131072)[index // 2 % 4]
    rows = bits(rng, 6, min(13, 27.5 - math.log2(words)))

    def build():
        x, place = normal(rows, words, precision=precision, grad=True), integers(words, rows)
        other = torch.rand(rows, words, device=DEVICE).to(x.dtype)
        if name.startswith("cross_entropy"):
            return both(lambda x: F.cross_entropy(x, place, label_smoothing=0.1 * name.endswith("smoothed")), x)
        if name == "nll_loss":
            return both(lambda x: F.nll_loss(x, place), x)
        if name == "kl_div":
            return both(lambda x: F.kl_div(x, other, reduction="batchmean"), x)
        return both(lambda x: getattr(F, name)(x, other), x)

    return Case(name, {"rows": rows, "columns": words}, precision, build)


def layer_norms(rng, index):
    name, precision = ("layer_norm", "layer_norm", "rms_norm")[index % 3], rng.choice(("fp32", "bf16", "fp16"))
    shape = matrix(rng, 16, 26, columns=(32, 96, 100, 384, 768, 1000, 1024, 2048, 4096, 8192))

    def build():
        x, weight = normal(*shape, precision=precision, grad=True), normal(shape[1], precision=precision, grad=True)
        bias = normal(shape[1], precision=precision, grad=True)
        if name == "rms_norm":
            return both(lambda x, weight: F.rms_norm(x, shape[1:], weight, 1e-6), x, weight)
        return both(lambda x, weight, bias: F.layer_norm(x, shape[1:], weight, bias), x, weight, bias)

    return Case(name, {"shape": shape}, precision, build)


def channel_norms(rng, index):
    name = ("batch_norm", "group_norm", "batch_norm_last", "batch_norm", "group_norm", "batch_norm_eval", "instance_norm")[index % 7]
    precision, channels = rng.choice(("fp32", "bf16")), rng.choice((32, 64, 96, 256, 512, 2048))
    size = rng.choice((7, 14, 28, 56) if channels > 64 else (28, 56, 112))
    shape = (rng.choice((4, 16, 32)), channels, size, size)

    def build():
        layout = torch.channels_last if name.endswith("last") else torch.contiguous_format
        x = normal(*shape, precision=precision).contiguous(memory_format=layout).requires_grad_(True)
        kept = precision if name == "group_norm" else "fp32"
        weight, bias = normal(channels, precision=kept, grad=True), normal(channels, precision=kept, grad=True)
        mean, variance = torch.zeros(channels, device=DEVICE), torch.ones(channels, device=DEVICE)
        if name == "group_norm":
            return both(lambda x, weight, bias: F.group_norm(x, 32, weight, bias), x, weight, bias)
        if name == "instance_norm":
            return both(lambda x, weight, bias: F.instance_norm(x, None, None, weight, bias), x, weight, bias)
        train = not name.endswith("eval")
        return both(lambda x, weight, bias: F.batch_norm(x, mean, variance, weight, bias, train), x, weight, bias)

    return Case(name, {"shape": shape}, precision, build)


def scans(rng, index):
    name, shape = ("cumsum_inner", "cumsum_outer", "cumprod", "cumsum_integers", "cumsum_flat")[index % 5], matrix(rng, 16, 24)

    def build():
        x = integers(100, *shape) if name == "cumsum_integers" else normal(*shape)
        if name == "cumsum_flat":
            return alone(lambda: x.flatten().cumsum(0))
        return alone(lambda: x.cumprod(1) if name == "cumprod" else x.cumsum(int(name != "cumsum_outer")))

    return Case(name, {"shape": shape}, "fp32", build)


def orders(rng, index):
    names = (
        "sort_flat",
        "sort_rows",
        "topk",
        "argsort_integers",
        "unique",
        "bincount",
        "searchsorted",
        "topk_wide",
        "median",
        "multinomial",
    )
    name = names[index % len(names)]
    shape = matrix(rng, 16, 23, columns=(64, 100, 1000, 1024, 4096, 50257))

    def build():
        x, whole = normal(*shape), integers(1000, shape[0] * shape[1])
        ordered = torch.linspace(-3, 3, 10000, device=DEVICE)
        table = {
            "sort_flat": lambda: x.flatten().sort(),
            "sort_rows": lambda: x.sort(1),
            "topk": lambda: x.topk(8, 1),
            "topk_wide": lambda: x.topk(shape[1] // 2, 1),
            "argsort_integers": lambda: whole.argsort(stable=True),
            "unique": lambda: whole.unique(),
            "bincount": lambda: whole.bincount(minlength=1000),
            "searchsorted": lambda: torch.searchsorted(ordered, x),
            "median": lambda: x.median(1),
            "multinomial": lambda: torch.multinomial(x[:1024].abs() + 0.01, 1),
        }
        return alone(table[name])

    return Case(name, {"shape": shape}, "fp32", build)


def generators(rng, index):
    name, count = ("randn", "rand_bf16", "randperm", "bernoulli_", "randint", "arange")[index % 6], bits(rng, 14, 25)

    def build():
        x = torch.empty(count, device=DEVICE)
        table = {
            "randn": lambda: torch.randn(count, device=DEVICE),
            "rand_bf16": lambda: torch.rand(count, device=DEVICE, dtype=torch.bfloat16),
            "randperm": lambda: torch.randperm(count, device=DEVICE),
            "bernoulli_": lambda: x.bernoulli_(0.1),
            "randint": lambda: torch.randint(50000, (count,), device=DEVICE),
            "arange": lambda: torch.arange(count, device=DEVICE),
        }
        return alone(table[name])

    return Case(name, {"count": count}, "fp32", build)


def optimizers(rng, index):
    names = ("Adam_foreach", "AdamW_fused", "SGD_foreach", "clip_grad_norm", "AdamW_foreach", "SGD_fused", "Adam_fused", "unscale")
    name = (*names, "AdamW_loop", "zero_grads", "RMSprop_foreach", "ema")[index % 12]
    precision = rng.choice(("fp32", "fp32", "bf16"))
    if rng.random() < 0.5:  # like a convolutional network
        sizes = [bits(rng, 6, 19) for _ in range(rng.choice((60, 160)))]
    else:
        sizes = [n for _ in range(rng.choice((4, 12))) for n in (1024, 3072 * 1024, 3072, 1024 * 1024, 4096 * 1024)]
    sizes = sizes[:20] if name.endswith("loop") else sizes

    def build():
        parameters = [torch.nn.Parameter(normal(n, precision=precision)) for n in sizes]
        for p in parameters:
            p.grad = normal(*p.shape, precision=precision)
        gradients = [p.grad for p in parameters]
        if name == "clip_grad_norm":
            return alone(lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0))
        if name == "unscale":
            found, inverse = torch.zeros(1, device=DEVICE), torch.ones(1, device=DEVICE)
            return alone(lambda: torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse))
        if name == "zero_grads":
            return alone(lambda: torch._foreach_zero_(gradients))
        if name == "ema":
            return alone(lambda: torch._foreach_lerp_(gradients, [p.detach() for p in parameters], 0.01))
        kind, way = name.split("_")
        options = {"loop": {"foreach": False}}.get(way, {way: True})
        if kind != "RMSprop":
            options["weight_decay"] = 0.01
        if kind == "SGD":
            options["momentum"] = 0.9
        return alone(getattr(torch.optim, kind)(parameters, lr=1e-4, **options).step)

    return Case(name, {"sizes": sizes}, precision, build)


def images(rng, index):
    table = {
        "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1),
        "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
        "interpolate_nearest": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
        "interpolate_bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        "max_pool2d_last": lambda x: F.max_pool2d(x, 2),
        "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 7),
        "interpolate_bicubic": lambda x: F.interpolate(x, size=(40, 40), mode="bicubic"),
        "global_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 1),
        "pad_constant": lambda x: F.pad(x, (1, 1, 1, 1)),
        "pad_reflect": lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"),
        "avg_pool2d_last": lambda x: F.avg_pool2d(x, 3, 2, 1),
        "unfold": lambda x: F.unfold(x, 3, padding=1),
        "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
        "grid_sample": None,
    }
    name, precision = list(table)[index % len(table)], rng.choice(("fp32", "bf16"))
    precision = "fp32" if name in ("unfold", "grid_sample") else precision
    channels = rng.choice((16, 32)) if name == "unfold" else rng.choice((16, 64, 192, 256))
    size = rng.choice((28, 35, 56)) if channels > 64 else rng.choice((56, 112))
    shape = (rng.choice((4, 16, 32)), channels, size, size)

    def build():
        layout = torch.channels_last if name.endswith("last") else torch.contiguous_format
        x = normal(*shape, precision=precision).contiguous(memory_format=layout).requires_grad_(True)
        if name == "grid_sample":
            grid = torch.rand(shape[0], 28, 28, 2, device=DEVICE) * 2 - 1
            return both(lambda x: F.grid_sample(x, grid, align_corners=False), x)
        return both(table[name], x)

    return Case(name, {"shape": shape}, precision, build)


FLOP_LIMITS = {"fp32": 6e10, "tf32": 2e11, "bf16": 6e11, "fp16": 6e11}


def convolutions(rng, index):
    kind = ("plain", "point", "depthwise", "first", "grouped", "odd", "strided", "dilated")[index % 8]
    precision, last = (("fp32", False), ("tf32", False), ("bf16", True), ("tf32", True), ("fp16", False), ("bf16", True))[index % 6]
    inputs, outputs = (rng.choice((32, 64, 96, 128, 256, 512)) for _ in range(2))
    window, stride, groups, dilation, size = 3, 1, 1, 1, rng.choice((7, 14, 28, 33, 56))
    if kind == "point":
        window = 1
    elif kind == "depthwise":
        outputs, groups, window, stride = inputs, inputs, rng.choice((3, 5, 7)), rng.choice((1, 1, 2))
    elif kind == "first":
        inputs, outputs, (window, stride), size = 3, rng.choice((32, 64, 96)), rng.choice(((7, 2), (3, 2), (4, 4), (16, 16))), 224
    elif kind == "grouped":
        groups = rng.choice((4, 32))
    elif kind == "odd":
        inputs, outputs, window = rng.choice((17, 33, 75)), rng.choice((18, 21, 101)), rng.choice((1, 2, 3, 5))
    elif kind == "strided":
        stride, window = 2, rng.choice((1, 3))
    elif kind == "dilated":
        dilation = 2
    batch, padding = rng.choice((8, 32, 64)), 0 if window == stride else dilation * (window // 2)
    places = (size // stride) ** 2 * window**2
    while batch > 1 and 2 * batch * places * inputs * outputs / groups > FLOP_LIMITS[precision]:
        batch //= 2
    bias = rng.random() < 0.3

    def build():
        layout = torch.channels_last if last else torch.contiguous_format
        x = normal(batch, inputs, size, size, precision=precision).contiguous(memory_format=layout).requires_grad_(True)
        w = normal(outputs, inputs // groups, window, window, precision=precision)
        w = w.contiguous(memory_format=layout).requires_grad_(True)
        b = normal(outputs, precision=precision, grad=True) if bias else None
        return both(lambda x, w, b: F.conv2d(x, w, b, stride, padding, dilation, groups), x, w, b)

    arguments = {"batch": batch, "in_channels": inputs, "out_channels": outputs, "size": size, "window": window, "stride": stride}
    arguments.update(padding=padding, dilation=dilation, groups=groups, bias=bias, channels_last=last)
    return Case(f"conv2d_{kind}", arguments, precision, build)


def other_convolutions(rng, index):
    name, precision = ("conv1d", "conv3d", "conv_transpose2d")[index % 3], ("bf16", "fp32", "tf32")[(index + index // 3) % 3]
    batch, inputs, outputs = rng.choice((2, 8)), rng.choice((16, 32, 64)), rng.choice((16, 32, 64))
    size = {"conv1d": rng.choice((1000, 4096)), "conv3d": rng.choice((16, 24)), "conv_transpose2d": rng.choice((14, 28))}[name]
    window = 2 if name == "conv_transpose2d" else 3

    def build():
        rank = {"conv1d": 1, "conv3d": 3, "conv_transpose2d": 2}[name]
        x = normal(batch, inputs, *[size] * rank, precision=precision, grad=True)
        first, second = (inputs, outputs) if rank == 2 else (outputs, inputs)
        w = normal(first, second, *[window] * rank, precision=precision, grad=True)
        if rank == 2:
            return both(lambda x, w: F.conv_transpose2d(x, w, stride=2), x, w)
        return both(lambda x, w: getattr(F, name)(x, w, padding=1), x, w)

    arguments = {"batch": batch, "in_channels": inputs, "out_channels": outputs, "size": size, "window": window}
    return Case(name, arguments, precision, build)


def linears(rng, index):
    precision = ("bf16", "tf32", "bf16", "fp32", "fp16")[index % 5]
    while True:
        rows = rng.choice((1, 8, 33, 64, 128, 200, 1000, 2048, 4096, 8192, 16384))
        inputs = rng.choice((13, 64, 100, 512, 768, 1000, 1024, 2048, 3072, 4096, 11008))
        outputs = rng.choice((1, 10, 64, 100, 768, 1000, 1024, 2304, 3072, 4096, 5000, 32000, 50257))
        if 1e7 < 2 * rows * inputs * outputs < FLOP_LIMITS[precision]:
            break
    bias = rng.random() < 0.6

    def build():
        x, w = normal(rows, inputs, precision=precision, grad=True), normal(outputs, inputs, precision=precision, grad=True)
        b = normal(outputs, precision=precision, grad=True) if bias else None
        return both(F.linear, x, w, b)

    return Case("linear", {"rows": rows, "in_features": inputs, "out_features": outputs, "bias": bias}, precision, build)


def batched_products(rng, index):
    precision, layout = ("bf16", "fp32", "tf32")[index % 3], ("plain", "transposed")[index % 2]
    batch, m, n, k = rng.choice((8, 96, 192)), *(rng.choice((33, 64, 128, 197, 512, 1024)) for _ in range(3))
    while batch > 1 and 2 * batch * m * n * k > FLOP_LIMITS[precision]:
        batch //= 2

    def build():
        x = normal(batch, m, k, precision=precision, grad=True)
        if layout == "transposed":
            return both(lambda x, y: x @ y.transpose(1, 2), x, normal(batch, n, k, precision=precision, grad=True))
        return both(torch.bmm, x, normal(batch, k, n, precision=precision, grad=True))

    return Case("bmm", {"batch": batch, "m": m, "n": n, "k": k, "layout": layout}, precision, build)


def attentions(rng, index):
    kinds = (
        "flash",
        "efficient",
        "flash_causal",
        "math",
        "flash_grouped",
        "efficient_causal",
        "efficient_window",
        "cudnn_causal",
        "math_causal",
    )
    kind = kinds[index % len(kinds)]
    backend = kind.split("_")[0]
    precision = rng.choice(("bf16", "fp16")) if backend in ("flash", "cudnn") else rng.choice(("bf16", "fp32", "tf32"))
    batch, heads, width = rng.choice((1, 4, 8)), rng.choice((8, 12, 16, 32)), (64, 128, 96)[(index + index // len(kinds)) % 3]
    length = rng.choice((197, 512, 1024)) if backend == "math" else rng.choice((128, 197, 1024, 2048, 4096))
    while batch > 1 and 4 * batch * heads * length**2 * width > FLOP_LIMITS[precision] / 2:
        batch //= 2
    fewer = heads // 4 if kind.endswith("grouped") else heads

    def build():
        from torch.nn.attention import SDPBackend, sdpa_kernel

        named = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "math": "MATH", "cudnn": "CUDNN_ATTENTION"}
        q = normal(batch, heads, length, width, precision=precision, grad=True)
        k, v = (normal(batch, fewer, length, width, precision=precision, grad=True) for _ in range(2))
        mask = None
        if kind.endswith("window"):
            place = torch.arange(length, device=DEVICE)
            mask = (place[:, None] >= place) & (place[:, None] - place < 256)

        def attend(q, k, v):
            with sdpa_kernel(getattr(SDPBackend, named[backend])):
                return F.scaled_dot_product_attention(q, k, v, mask, is_causal="causal" in kind, enable_gqa=fewer != heads)

        return both(attend, q, k, v)

    arguments = {"batch": batch, "heads": heads, "kv_heads": fewer, "length": length, "head_dim": width}
    return Case(f"attention_{kind}", arguments, precision, build)


def recurrences(rng, index):
    name, precision = ("LSTM", "GRU", "LSTM")[index % 3], ("fp32", "tf32", "bf16")[index % 3]
    batch, length, width, layers = rng.choice((32, 64)), rng.choice((32, 64)), rng.choice((256, 512)), 1 + index % 2

    def build():
        layer = getattr(torch.nn, name)(width, width, layers, batch_first=True, device=DEVICE, dtype=DTYPES[precision])
        x = normal(batch, length, width, precision=precision, grad=True)
        return both(lambda x: layer(x)[0], x, parameters=tuple(layer.parameters()))

    return Case(name, {"batch": batch, "length": length, "width": width, "layers": layers}, precision, build)


def transforms(rng, index):
    name, shape = ("rfft", "fft2", "stft", "fft_odd")[index % 4], (rng.choice((8, 64)), rng.choice((256, 512)), rng.choice((256, 512)))

    def build():
        x = normal(*shape, grad=name == "rfft")
        if name == "rfft":
            return both(lambda x: torch.view_as_real(torch.fft.rfft(x)), x)
        window = torch.hann_window(400, device=DEVICE)
        table = {
            "fft2": lambda: torch.fft.fft2(x),
            "stft": lambda: torch.stft(x.flatten(1)[:, :32000], 400, 160, window=window, return_complex=True),
            "fft_odd": lambda: torch.fft.fft(x[:, :, :251]),
        }
        return alone(table[name])

    return Case(name, {"shape": shape}, "fp32", build)


FAMILIES = {  # and the number of their cases
    elementwise: 22,
    in_place: 6,
    copies: 17,
    joins: 6,
    indexing: 14,
    embeddings: 5,
    reductions: 20,
    softmaxes: 8,
    losses: 10,
    layer_norms: 9,
    channel_norms: 7,
    scans: 5,
    orders: 10,
    generators: 6,
    optimizers: 12,
    images: 14,
    convolutions: 24,
    other_convolutions: 6,
    linears: 20,
    batched_products: 6,
    attentions: 12,
    recurrences: 3,
    transforms: 4,
}


def operator_cases():
    """{id: case}, in an order that spreads each family over the run: where time runs out, some of each are measured."""
    cases = {}
    for family, count in FAMILIES.items():
        for index in range(count):
            case = family(random.Random(f"{SEED} {family.__name__} {index}"), index)
            cases[f"{family.__name__}-{index}-{case.operator}"] = case
    names = list(cases)
    random.Random(SEED).shuffle(names)
    return {name: cases[name] for name in names}


def set_precision(precision):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


# ---- the trace ---------------------------------------------------------------------------------------------------------------------

GPU_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")


class Kernel(typing.NamedTuple):
    name: str
    grid: tuple
    block: tuple
    registers: int
    shared_bytes: int
    occupancy_percent: float
    bytes: int  # of a copy or a fill
    operator: str  # the innermost one around the launch
    inputs: tuple  # ((key, JSON), ...) of the operator
    start_us: float
    us: float

    def shape(self):
        """What is the same in each repetition."""
        return self[:8]

    def row(self):
        kept = dict(zip(self._fields[:8], self.shape()))
        return {key: value for key, value in kept.items() if value is not None}


def operators_at(operators, times_us):
    """The innermost operator at each time: operators are one thread's events, times are sorted."""
    operators = sorted(operators, key=lambda event: (event["ts"], -event["dur"]))
    found, stack, following = [], [], 0
    for time_us in times_us:
        while following < len(operators) and operators[following]["ts"] <= time_us:
            begin = operators[following]["ts"]
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= begin:
                stack.pop()
            stack.append(operators[following])
            following += 1
        while stack and stack[-1]["ts"] + stack[-1]["dur"] < time_us:
            stack.pop()
        found.append(stack[-1] if stack else None)
    return found


def kernels_by_label(events, prefix):
    """{label: [the kernels of each repetition, in launch order]} from a chrome trace's events. A label is a record_function's name."""
    events = [event for event in events if event.get("ph") == "X" and "ts" in event]
    labels = sorted(
        (event["ts"], event["ts"] + event["dur"], event["name"])
        for event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith(prefix)
    )
    begins = [label[0] for label in labels]
    launches, operators, by_id = {}, collections.defaultdict(list), {}
    for event in events:
        if event.get("cat") in LAUNCHES and "correlation" in event.get("args", {}):
            launches.setdefault(event["args"]["correlation"], event)
        elif event.get("cat") == "cpu_op":
            operators[event["tid"]].append(event)
            by_id[event.get("args", {}).get("External id")] = event
    by_label = [[] for _ in labels]
    by_thread = collections.defaultdict(list)
    for event in events:
        if event.get("cat") not in GPU_EVENTS:
            continue
        launch = launches.get(event.get("args", {}).get("correlation"))
        launched_us = launch["ts"] if launch else event["ts"]
        place = bisect.bisect_right(begins, launched_us) - 1
        if place >= 0 and launched_us <= labels[place][1]:
            by_thread[launch["tid"] if launch else None].append((launched_us, place, event))
    for thread, launched in by_thread.items():
        launched.sort(key=lambda item: item[0])
        for (launched_us, place, event), operator in zip(launched, operators_at(operators[thread], [item[0] for item in launched])):
            operator = operator or by_id.get(event["args"].get("External id", -1))  # a thread that the launch names differently
            by_label[place].append((launched_us, kernel_of_event(event, operator)))
    result = {}
    for (_, _, name), kernels in zip(labels, by_label):
        kernels.sort(key=lambda item: (item[0], item[1].start_us))
        result.setdefault(name[len(prefix) :], []).append([kernel for _, kernel in kernels])
    return result


def kernel_of_event(event, operator):
    args = event.get("args", {})
    inputs = operator.get("args", {}) if operator else {}
    named = {"Input Dims": "dims", "Input type": "types", "Input Strides": "strides", "Concrete Inputs": "values"}
    return Kernel(
        name=event["name"],
        grid=tuple(args["grid"]) if "grid" in args else None,
        block=tuple(args["block"]) if "block" in args else None,
        registers=args.get("registers per thread"),
        shared_bytes=args.get("shared memory"),
        occupancy_percent=args.get("est. achieved occupancy %"),
        bytes=args.get("bytes"),
        operator=operator["name"] if operator else None,
        inputs=tuple((kept, json.dumps(inputs[key])) for key, kept in named.items() if key in inputs),
        start_us=event["ts"],
        us=event["dur"],
    )


def operators_of(kernels):
    """The distinct operators with their inputs, and the place of each kernel's own."""
    places = {}
    indices = [places.setdefault((kernel.operator, kernel.inputs), len(places)) for kernel in kernels]
    rows = [{"name": name, **{key: json.loads(text) for key, text in inputs}} for name, inputs in places]
    return rows, indices


def case_row(repetitions):
    """The median time of each kernel. Repetitions whose kernels differ from most others' are left out."""
    shapes = [tuple(kernel.shape() for kernel in repetition) for repetition in repetitions]
    usual, count = collections.Counter(shapes).most_common(1)[0]
    kept = [repetition for repetition, shape in zip(repetitions, shapes) if shape == usual]
    operators, indices = operators_of(kept[0])
    kernels = []
    for same, index in zip(zip(*kept), indices):
        times_us = [round(kernel.us, 3) for kernel in same]
        kernels.append({**same[0].row(), "operator_index": index, "us": round(statistics.median(times_us), 3), "us_all": times_us})
    spans_us = [max(k.start_us + k.us for k in kernels) - kernels[0].start_us for kernels in kept if kernels]
    return {
        "kernels": kernels,
        "us": round(sum(kernel["us"] for kernel in kernels), 3),
        "span_us": round(statistics.median(spans_us), 3) if spans_us else None,
        "repetitions": count,
        "other_repetitions": len(repetitions) - count,
        "operators": operators,
    }


def busy_us(kernels):
    """The time in which at least one kernel runs."""
    total_us = end_us = 0.0
    for start_us, us in sorted((kernel.start_us, kernel.us) for kernel in kernels):
        total_us += max(0.0, start_us + us - max(start_us, end_us))
        end_us = max(end_us, start_us + us)
    return total_us


def model_row(steps):
    """The kernels of some steps, those with the same name, launch and operator in one."""
    groups = collections.defaultdict(list)
    for kernel in (kernel for step in steps for kernel in step):
        groups[kernel.shape()].append(kernel)
    kernels = []
    for same in groups.values():
        first = {key: json.loads(text) for key, text in same[0].inputs if key in ("dims", "types")}
        counts = {"count": round(len(same) / len(steps), 3), "us": round(sum(kernel.us for kernel in same) / len(steps), 3)}
        kernels.append({**same[0].row(), **counts, "first_inputs": first})
    spans_us = [max(k.start_us + k.us for k in step) - min(k.start_us for k in step) for step in steps if step]
    return {
        "kernels": sorted(kernels, key=lambda kernel: -kernel["us"]),
        "kernels_per_step": sum(map(len, steps)) / len(steps),
        "busy_ms": round(sum(map(busy_us, steps)) / len(steps) / 1e3, 4),
        "profiled_span_ms": round(statistics.mean(spans_us) / 1e3, 4) if spans_us else None,
    }


@contextlib.contextmanager
def profiled():
    """Gives a list that holds the trace's events at the end."""
    events = []
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with tempfile.TemporaryDirectory(prefix="measure_operators_") as folder:
        with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
            yield events
            torch.cuda.synchronize()
        path = os.path.join(folder, "trace.json")
        profile.export_chrome_trace(path)
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        try:
            events += json.loads(text, strict=False)["traceEvents"]
        except ValueError:  # some releases write inf or nan
            events += json.loads(re.sub(r":\s*-?(inf|nan)\b", ": null", text), strict=False)["traceEvents"]


# ---- the models --------------------------------------------------------------------------------------------------------------------


def vision_step(model, batch, precision, optimizer, last=True, size=224, classes=1000):
    layout = torch.channels_last if last else torch.contiguous_format
    model = model.to(memory_format=layout).train()
    images = torch.randn(batch, 3, size, size, device=DEVICE).contiguous(memory_format=layout)
    labels = integers(classes, batch)
    return training_step(model, optimizer, precision, lambda: F.cross_entropy(model(images), labels))


def text_step(model, batch, length, precision, optimizer, words, more=None):
    ids = integers(words, batch, length)
    inputs = {"input_ids": ids, "labels": ids, **(more or {})}
    model = model.train()
    return training_step(model, optimizer, precision, lambda: model(**inputs).loss)


def training_step(model, optimizer, precision, loss_of):
    """precision: fp32, tf32, bf16 (autocast), fp16 (autocast and a scaler), or bf16_weights."""
    if precision == "bf16_weights":
        model.to(torch.bfloat16)
    optimizer = optimizer(model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
    dtype = DTYPES.get(precision, torch.bfloat16)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype, enabled=precision in ("bf16", "fp16")):
            loss = loss_of()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, weight_decay=1e-4)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4)


def fused_adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def make_resnet50():
    import torchvision

    return torchvision.models.resnet50()


def make_timm(name):
    import timm

    return timm.create_model(name)


def make_transformer(name, config, **options):
    import transformers

    return getattr(transformers, name)(getattr(transformers, config)(**options))


LLAMA = {"vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12, "num_attention_heads": 16}
LLAMA = {**LLAMA, "num_key_value_heads": 4, "max_position_embeddings": 2048, "use_cache": False}
MIXTRAL = {**LLAMA, "num_hidden_layers": 4, "num_local_experts": 8, "num_experts_per_tok": 2}
MODELS = {  # a function that makes a step, and what the row says of it
    "resnet50_bf16": (
        lambda: vision_step(make_resnet50(), 64, "bf16", sgd),
        {"model": "torchvision resnet50", "batch": 64, "precision": "bf16", "channels_last": True, "optimizer": "SGD"},
    ),
    "resnet50_tf32": (
        lambda: vision_step(make_resnet50(), 32, "tf32", sgd, last=False),
        {"model": "torchvision resnet50", "batch": 32, "precision": "tf32", "channels_last": False, "optimizer": "SGD"},
    ),
    "gpt2_bf16": (
        lambda: text_step(make_transformer("GPT2LMHeadModel", "GPT2Config", use_cache=False), 8, 1024, "bf16", fused_adamw, 50257),
        {"model": "transformers GPT2LMHeadModel", "batch": 8, "length": 1024, "precision": "bf16", "optimizer": "AdamW fused"},
    ),
    "vit_base_bf16": (
        lambda: vision_step(make_timm("vit_base_patch16_224"), 64, "bf16", adamw, last=False),
        {"model": "timm vit_base_patch16_224", "batch": 64, "precision": "bf16", "channels_last": False, "optimizer": "AdamW"},
    ),
    "llama_bf16_weights": (
        lambda: text_step(make_transformer("LlamaForCausalLM", "LlamaConfig", **LLAMA), 4, 2048, "bf16_weights", adamw, 32000),
        {
            "model": "transformers LlamaForCausalLM",
            "config": LLAMA,
            "batch": 4,
            "length": 2048,
            "precision": "bf16_weights",
            "optimizer": "AdamW",
        },
    ),
    "convnext_tiny_bf16": (
        lambda: vision_step(make_timm("convnext_tiny"), 64, "bf16", adamw),
        {"model": "timm convnext_tiny", "batch": 64, "precision": "bf16", "channels_last": True, "optimizer": "AdamW"},
    ),
    "bert_base_tf32": (
        lambda: text_step(make_transformer("BertForMaskedLM", "BertConfig"), 32, 128, "tf32", adamw, 30522),
        {"model": "transformers BertForMaskedLM", "batch": 32, "length": 128, "precision": "tf32", "optimizer": "AdamW"},
    ),
    "efficientnet_b0_fp16": (
        lambda: vision_step(make_timm("efficientnet_b0"), 64, "fp16", sgd),
        {"model": "timm efficientnet_b0", "batch": 64, "precision": "fp16", "channels_last": True, "optimizer": "SGD"},
    ),
    "mixtral_bf16_weights": (
        lambda: text_step(make_transformer("MixtralForCausalLM", "MixtralConfig", **MIXTRAL), 2, 1024, "bf16_weights", fused_adamw, 32000),
        {
            **{"model": "transformers MixtralForCausalLM", "config": MIXTRAL, "batch": 2, "length": 1024},
            **{"precision": "bf16_weights", "optimizer": "AdamW fused"},
        },
    ),
    "t5_small_tf32": (
        lambda: text_step(
            make_transformer("T5ForConditionalGeneration", "T5Config", use_cache=False, decoder_start_token_id=0),
            16,
            256,
            "tf32",
            adamw,
            32128,
        ),
        {"model": "transformers T5ForConditionalGeneration", "batch": 16, "length": 256, "precision": "tf32", "optimizer": "AdamW"},
    ),
}


# ---- measuring ---------------------------------------------------------------------------------------------------------------------


class BrokenContext(Exception):
    """The CUDA context takes no more work: only a new process goes on."""


def error_text(error):
    return f"{type(error).__name__}: {error}"[:500]


def note_error(name, error):
    """The row's entry for an error. Raises BrokenContext where the error stays."""
    entry = {"error": error_text(error), "at": traceback.format_exc().strip().splitlines()[-3:][0].strip()[:200]}
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.zeros(16, device=DEVICE).add_(1)
        torch.cuda.synchronize()
    except Exception:
        raise BrokenContext(name, entry) from None
    return entry


def clocks_under_load():
    """The clocks while the GPU fills memory."""
    nvml, buffer = measure_on_gpu.Nvml(), torch.empty(L2_FLUSH_BYTES, dtype=torch.uint8, device=DEVICE)
    for _ in range(600):
        buffer.zero_()
    nvml.start()
    time.sleep(0.03)
    nvml.stop()
    torch.cuda.synchronize()
    return nvml.clocks()


def measure_group(cases, deadline):
    """Rows of some cases, by one session of the profiler."""
    flush = torch.empty(L2_FLUSH_BYTES, dtype=torch.uint8, device=DEVICE)
    errors, done, skipped, seconds = {}, {}, [], {}
    broken = None
    try:
        with profiled() as events:
            for name, case in cases.items():
                if time.monotonic() > deadline:
                    skipped.append(name)
                    continue
                begin = time.monotonic()
                try:
                    measure_case(name, case, flush, done)
                except Exception as error:
                    try:
                        errors[name] = note_error(name, error)
                    except BrokenContext as error:
                        broken = error
                        break
                seconds[name] = round(time.monotonic() - begin, 3)
    except Exception as error:  # the profiler's end fails too
        raise broken or error from None
    if broken:
        raise broken
    repetitions = kernels_by_label(events, "case:")
    rows = []
    for name in seconds:
        case = cases[name]
        said = {"part": "operators", "operator": case.operator, "arguments": case.arguments, "precision": case.precision}
        for which in done.get(name, ()):
            found = repetitions.get(f"{name}/{which}")
            measured = case_row(found) if found else {"error": "no label in the trace"}
            rows.append({"case": f"{name}/{which}", **said, "pass": which, **measured})
        if name in errors:
            rows.append({"case": name, **said, **errors[name]})
        if rows:
            rows[-1]["seconds"] = seconds[name]
    return rows, skipped


def measure_case(name, case, flush, done):
    torch.manual_seed(zlib.crc32(name.encode()))
    set_precision(case.precision)
    for which, (prepare, run) in case.build().items():
        for repetition in range(WARM_REPETITIONS + REPETITIONS):
            prepared = prepare() if prepare else ()
            if repetition < WARM_REPETITIONS:
                run(*prepared)
                continue
            flush.zero_()
            torch.cuda.synchronize()
            with torch.profiler.record_function(f"case:{name}/{which}"):
                run(*prepared)
                torch.cuda.synchronize()
        done.setdefault(name, []).append(which)


class Models:
    """The steps of the models. They stay on the card from their timing to their profile."""

    def __init__(self):
        self.steps = {}

    def step(self, name):
        set_precision(MODELS[name][1]["precision"])
        if name not in self.steps:
            torch.manual_seed(0)
            with torch.device(DEVICE):
                step = MODELS[name][0]()
            for _ in range(WARM_STEPS):
                step()
            torch.cuda.synchronize()
            self.steps[name] = step
        return self.steps[name]

    def time(self, name):
        begin = time.monotonic()
        step = self.step(name)
        built = time.monotonic()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(TIMED_STEPS + 1)]
        torch.cuda.reset_peak_memory_stats()
        marks[0].record()
        for mark in marks[1:]:
            step()
            mark.record()
        torch.cuda.synchronize()
        times_ms = [round(first.elapsed_time(second), 4) for first, second in zip(marks, marks[1:])]
        return {"step_ms": times_ms, "setup_seconds": round(built - begin, 2), "seconds": round(time.monotonic() - begin, 2)}

    def profile(self, name):
        begin = time.monotonic()
        step = self.step(name)
        with profiled() as events:
            step()
            torch.cuda.synchronize()
            for _ in range(PROFILED_STEPS):
                with torch.profiler.record_function("step:"):
                    step()
                    torch.cuda.synchronize()
        steps = kernels_by_label(events, "step:").get("")
        row = model_row(steps) if steps else {"error": "no label in the trace"}
        return {**row, "seconds": round(time.monotonic() - begin, 2)}

    def measure(self, kind, name):
        row = {"case": name, "part": "models" if kind == "time" else "model_kernels", **MODELS[name][1]}
        try:
            row.update(getattr(self, kind)(name))
        except Exception as error:
            text = error_text(error)
            self.steps.pop(name, None)
            if "out of memory" in text:
                self.steps.clear()
            row.update(note_error(name, error))
        if kind == "profile":
            self.steps.pop(name, None)
        return row


def tasks_of(only):
    """(kind, name or names) of each task, in order. Steps are timed before the profiler first runs: it slows later launches."""
    tasks = []
    if only in (None, "models"):
        tasks += [("time", name) for name in MODELS] + [("profile", name) for name in MODELS]
    if only in (None, "operators"):
        names = list(operator_cases())
        tasks += [("group", names[i : i + GROUP]) for i in range(0, len(names), GROUP)]
    return tasks


class Rows:
    """The file of rows: each is on disk when write() returns. An interrupted file is appended to."""

    def __init__(self, path, append):
        mode = "a" if append else "w"
        open_file = gzip.open if path.endswith(".gz") else open
        self._file = open_file(path, mode + "t", encoding="utf-8")

    def write(self, row):
        self._file.write(json.dumps(row, separators=(",", ":")) + "\n")
        self._file.flush()
        short = {key: row.get(key) for key in ("case", "us", "step_ms", "busy_ms", "seconds", "error") if key in row}
        if "case" not in row or "error" in row or row["part"] != "operators":
            print(json.dumps(short if "case" in row else row)[:240], file=sys.stderr, flush=True)

    def close(self):
        self._file.close()


def versions():
    """Of packages that are installed; they are imported only by their own models."""
    from importlib import metadata

    found = {}
    for name in ("torchvision", "timm", "transformers", "triton", "nvidia-cudnn-cu13", "nvidia-cublas"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def run(args, rows, started, begin):
    """Measures the tasks from one on, until the end or BrokenContext."""
    models, left_out, kernels, skipped, cases = Models(), set(args.leave_out), 0, [], operator_cases()
    tasks = tasks_of(args.only)
    if begin == 0:
        source = {"version": VERSION, "part": "provenance", **measure_on_gpu.provenance()}
        rows.write({**source, "packages": versions(), "seed": SEED, "l2_flush_bytes": L2_FLUSH_BYTES, "clocks_before": clocks_under_load()})
    for index, (kind, names) in enumerate(tasks):
        args.task = index
        if index < begin:
            continue
        share = SHARES[kind] if args.only is None else 1.0
        deadline = started + 60 * args.minutes * share
        if time.monotonic() > deadline:
            skipped += [f"{kind} {name}" for name in ([names] if kind != "group" else names)]
            continue
        if kind == "group":
            try:
                found, late = measure_group({name: cases[name] for name in names if name not in left_out}, deadline)
            except BrokenContext:
                raise
            except Exception as error:
                found, late = [{"part": "group", "task": index, "cases": names, "error": error_text(error)}], []
            skipped += late
            for row in found:
                rows.write(row)
            rows.write({"part": "group", "task": index, "clocks": clocks_under_load(), "seconds": round(time.monotonic() - started, 2)})
        elif names not in left_out:
            found = [models.measure(kind, names)]
            rows.write(found[0])
            if kind == "profile" and index + 1 < len(tasks) and tasks[index + 1][0] == "group":
                models.steps.clear()
                torch.cuda.empty_cache()
        else:
            found = []
        kernels += sum(len(row.get("kernels", ())) for row in found)
    end = {"part": "end", "clocks_after": clocks_under_load(), "seconds": round(time.monotonic() - started, 2), "skipped": skipped}
    if not kernels:
        end["error"] = "the profiler reported no GPU kernels"
    rows.write(end)


def restart(args, started, broken):
    """Goes on in a new process without the case that broke this one's context."""
    name = broken.args[0]
    words = ["-o", args.output, "--minutes", str(args.minutes), *(["--only", args.only] if args.only else [])]
    for left_out in [*args.leave_out, name]:
        words += ["--leave-out", left_out]
    words += ["--begin", str(args.task), "--elapsed", str(time.monotonic() - started)]
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, os.path.abspath(__file__), *words])


def main():
    started = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True, help="a file for the rows, .jsonl or .jsonl.gz; it is replaced")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--minutes", type=float, default=1.3, help="cases not begun by then are left out (default %(default)s)")
    parser.add_argument("--begin", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--elapsed", type=float, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--leave-out", action="append", default=[], help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.task = args.begin
    started -= args.elapsed
    rows = Rows(args.output, append=bool(args.leave_out))
    try:
        run(args, rows, started, args.begin)
    except BrokenContext as broken:
        name, entry = broken.args
        rows.write({"part": "broken", "case": name, **entry})
        rows.close()
        if len(args.leave_out) < MOST_RESTARTS:
            restart(args, started, broken)
        return 1
    rows.close()
    print(f"{args.output}: {os.path.getsize(args.output)} bytes in {time.monotonic() - started:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
