#!/usr/bin/env python3
"""Measure on a real card the figures that gpucast predicts: one JSON line per measurement, for eval/truth. Needs only PyTorch.

    python measure_on_gpu.py -o rtx4090.jsonl              # under 8 minutes; use an idle card
    python measure_on_gpu.py -o rtx4090.jsonl --only jobs  # context, jobs, convolutions or allocator

Each job runs in its own process, as `measure_on_gpu.py --job '{...}'`; eval/truth/compare_truth.py starts the same on the virtual GPU.
"""

import argparse
import contextlib
import ctypes
import datetime
import json
import os
import platform
import random
import shlex
import subprocess
import sys
import tempfile
import threading
import time

VERSION = 1  # of the rows
PARTS = ("context", "jobs", "convolutions", "allocator")

# The jobs: model, batch, precision (fp32, tf32, bf16: autocast), optimizer, and switches.
JOBS = [
    {"model": "mlp", "batch": 64, "precision": "fp32", "optimizer": "Adam"},
    {"model": "gpt", "batch": 8, "precision": "fp32", "optimizer": "AdamW"},
    {"model": "gpt", "batch": 8, "precision": "bf16", "optimizer": "AdamW"},
    {"model": "gpt", "batch": 16, "precision": "fp32", "optimizer": "SGD", "zero_grad": "before_backward"},
    {"model": "resnet50", "batch": 32, "precision": "fp32", "optimizer": "SGD"},
    {"model": "resnet50", "batch": 64, "precision": "tf32", "optimizer": "AdamW"},
    {"model": "resnet50", "batch": 64, "precision": "bf16", "optimizer": "SGD", "channels_last": True},
    {"model": "vgg16", "batch": 32, "precision": "fp32", "optimizer": "SGD"},
    {"model": "vgg16", "batch": 64, "precision": "tf32", "optimizer": "SGD"},
    {"model": "mobilenet", "batch": 32, "precision": "fp32", "optimizer": "Adam"},
    {"model": "mobilenet", "batch": 128, "precision": "tf32", "optimizer": "Adam"},
    {"model": "convnext", "batch": 32, "precision": "fp32", "optimizer": "AdamW"},
    {"model": "convnext", "batch": 32, "precision": "bf16", "optimizer": "AdamW", "channels_last": True},
    {"model": "resnext50", "batch": 32, "precision": "tf32", "optimizer": "SGD"},
    {"model": "unet3d", "batch": 2, "precision": "fp32", "optimizer": "Adam"},
    {"model": "lstm", "batch": 32, "precision": "fp32", "optimizer": "Adam"},
    {"model": "resnet50", "batch": 32, "precision": "tf32", "optimizer": "SGD", "benchmark": True},
    {"model": "resnet50", "batch": 32, "precision": "tf32", "optimizer": "SGD", "deterministic": True},
]
STEPS = 12


# ---- models, all in this file so the rows stay comparable ------------------------------------------------------------------------


def make_model(name):
    """(model, a function that makes one batch on the host, the loss)"""
    import torch
    from torch import nn

    def conv_norm(inputs, outputs, size, stride=1, groups=1, act=True):
        layers = [nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
        return nn.Sequential(*layers, *([nn.ReLU(inplace=True)] if act else []))

    class Residual(nn.Module):
        def __init__(self, body, shortcut=None, act=None):
            super().__init__()
            self.body, self.shortcut, self.act = body, shortcut or nn.Identity(), act or nn.Identity()

        def forward(self, x):
            return self.act(self.body(x) + self.shortcut(x))

    def bottleneck(inputs, width, outputs, stride, groups):
        body = nn.Sequential(
            conv_norm(inputs, width, 1), conv_norm(width, width, 3, stride, groups), conv_norm(width, outputs, 1, act=False)
        )
        shortcut = conv_norm(inputs, outputs, 1, stride, act=False) if stride != 1 or inputs != outputs else None
        return Residual(body, shortcut, nn.ReLU(inplace=True))

    def resnet(groups, width):
        layers, inputs = [conv_norm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
        for stage, depth in enumerate((3, 4, 6, 3)):
            for index in range(depth):
                outputs = 256 << stage
                layers.append(bottleneck(inputs, width << stage, outputs, 2 if stage and not index else 1, groups))
                inputs = outputs
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))

    def vgg16():
        layers, inputs = [], 3
        for outputs in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
            if outputs:
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = outputs
            else:
                layers.append(nn.MaxPool2d(2))
        head = [nn.Linear(512 * 49, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(), *head, nn.Linear(4096, 1000))

    def mobilenet():
        """Inverted residuals like MobileNetV2's."""
        layers, inputs = [conv_norm(3, 32, 3, 2)], 32
        for expand, outputs, depth, stride in (
            *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
            *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
        ):
            for index in range(depth):
                step, hidden = stride if index == 0 else 1, inputs * expand
                parts = [] if expand == 1 else [conv_norm(inputs, hidden, 1)]
                body = nn.Sequential(*parts, conv_norm(hidden, hidden, 3, step, hidden), conv_norm(hidden, outputs, 1, act=False))
                layers.append(Residual(body) if step == 1 and inputs == outputs else body)
                inputs = outputs
        return nn.Sequential(*layers, conv_norm(inputs, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))

    def convnext():
        """Depthwise 7x7 and two pointwise convolutions a block, with the widths of ConvNeXt-T."""
        layers, inputs = [nn.Conv2d(3, 96, 4, 4)], 96
        for outputs, depth in ((96, 3), (192, 3), (384, 9), (768, 3)):
            if outputs != inputs:
                layers += [nn.GroupNorm(1, inputs), nn.Conv2d(inputs, outputs, 2, 2)]
                inputs = outputs
            for _ in range(depth):
                body = [nn.Conv2d(inputs, inputs, 7, padding=3, groups=inputs), nn.GroupNorm(1, inputs)]
                layers.append(Residual(nn.Sequential(*body, nn.Conv2d(inputs, 4 * inputs, 1), nn.GELU(), nn.Conv2d(4 * inputs, inputs, 1))))
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(768, 1000))

    class Unet3d(nn.Module):
        def __init__(self):
            super().__init__()

            def block(inputs, outputs):
                parts = []
                for channels in (inputs, outputs):
                    parts += [nn.Conv3d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm3d(outputs), nn.ReLU(inplace=True)]
                return nn.Sequential(*parts)

            self.a, self.b, self.c = block(1, 32), block(32, 64), block(64, 128)
            self.up_b, self.up_a = nn.ConvTranspose3d(128, 64, 2, 2), nn.ConvTranspose3d(64, 32, 2, 2)
            self.after_b, self.after_a, self.head = block(128, 64), block(64, 32), nn.Conv3d(32, 2, 1)

        def forward(self, x):
            a = self.a(x)
            b = self.b(nn.functional.max_pool3d(a, 2))
            c = self.c(nn.functional.max_pool3d(b, 2))
            b = self.after_b(torch.cat([self.up_b(c), b], 1))
            return self.head(self.after_a(torch.cat([self.up_a(b), a], 1)))

    class Gpt(nn.Module):
        def __init__(self, width=512, depth=8, heads=8, words=32000, length=256):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)
            self.head = nn.Linear(width, words, bias=False)
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

        def forward(self, x):
            places = torch.arange(x.shape[1], device=x.device)
            hidden = self.layers(self.words(x) + self.places(places), mask=self.mask.to(self.words.weight.dtype), is_causal=True)
            return self.head(hidden).flatten(0, 1)

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.lstm, self.head = nn.Embedding(10000, 512), nn.LSTM(512, 512, 2, batch_first=True), nn.Linear(512, 10000)

        def forward(self, x):
            return self.head(self.lstm(self.words(x))[0]).flatten(0, 1)

    images = lambda batch: (torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,)))  # noqa: E731
    words = lambda most, length: lambda batch: (torch.randint(most, (batch, length)), torch.randint(most, (batch * length,)))  # noqa: E731
    table = {
        "mlp": (
            lambda: nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1000)),
            lambda batch: (torch.randn(batch, 1024), torch.randint(1000, (batch,))),
        ),
        "gpt": (Gpt, words(32000, 256)),
        "lstm": (Lstm, words(10000, 64)),
        "resnet50": (lambda: resnet(1, 64), images),
        "resnext50": (lambda: resnet(32, 128), images),
        "vgg16": (vgg16, images),
        "mobilenet": (mobilenet, images),
        "convnext": (convnext, images),
        "unet3d": (Unet3d, lambda batch: (torch.randn(batch, 1, 64, 64, 64), torch.randint(2, (batch, 64, 64, 64)))),
    }
    make, batch = table[name]
    return make(), batch, nn.functional.cross_entropy


def run_job(job):
    """Trains STEPS steps. Times are of the GPU; peaks are also of the first three steps, which gpucast observes."""
    import torch

    sampler = Nvml()
    before = sampler.used_bytes()
    torch.manual_seed(0)
    tf32 = job["precision"] == "tf32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = job.get("benchmark", False), job.get("deterministic", False)
    model, make_batch, loss_of = make_model(job["model"])
    layout = torch.contiguous_format
    if job.get("channels_last"):
        layout = torch.channels_last
    model = model.cuda().to(memory_format=layout).train()
    optimizer = getattr(torch.optim, job["optimizer"])(model.parameters(), lr=1e-3)
    sampler.start()
    times = []
    for step in range(STEPS):
        x, y = (tensor.cuda() for tensor in make_batch(job["batch"]))
        if x.dim() == 4:
            x = x.to(memory_format=layout)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        if job.get("zero_grad") != "before_backward":
            optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=job["precision"] == "bf16"):
            loss = loss_of(model(x), y)
        if job.get("zero_grad") == "before_backward":
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
        if step == 2:
            peak_of_three = torch.cuda.max_memory_reserved()
    sampler.stop()
    stats = torch.cuda.memory_stats()
    return {
        "max_memory_reserved_bytes": torch.cuda.max_memory_reserved(),
        "max_memory_reserved_3_steps_bytes": peak_of_three,
        "max_memory_allocated_bytes": torch.cuda.max_memory_allocated(),
        "allocations": stats["allocation.all.allocated"],
        "segments": stats["segment.all.allocated"],
        "device_used_before_bytes": before,
        "device_used_peak_bytes": sampler.peak_bytes,
        "step_ms": [round(t, 3) for t in times],
        **sampler.clocks(),
    }


# ---- the card ----------------------------------------------------------------------------------------------------------------------


class Nvml:
    """Device memory in use, by the driver: the whole card's, so the card should be idle."""

    class _Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

    def __init__(self):
        self.peak_bytes, self._samples, self._stop, self._thread = 0, [], threading.Event(), None
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
            self._library.nvmlInit_v2()
            self._device = ctypes.c_void_p()
            index = int((os.environ.get("CUDA_VISIBLE_DEVICES") or "0").split(",")[0]) if _plain_devices() else 0
            if self._library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self._device)) != 0:
                self._library = None
        except OSError:
            self._library = None

    def used_bytes(self):
        if self._library is None:
            return None
        memory = self._Memory()
        return memory.used if self._library.nvmlDeviceGetMemoryInfo(self._device, ctypes.byref(memory)) == 0 else None

    def _number(self, name, *before):
        value = ctypes.c_uint()
        function = getattr(self._library, name, None) if self._library is not None else None
        return value.value if function is not None and function(self._device, *before, ctypes.byref(value)) == 0 else None

    def start(self):
        def sample():
            while not self._stop.wait(0.005):
                self.peak_bytes = max(self.peak_bytes, self.used_bytes() or 0)
                clocks = self._number("nvmlDeviceGetClockInfo", 1), self._number("nvmlDeviceGetClockInfo", 2)  # SM, memory
                self._samples.append((*clocks, self._number("nvmlDeviceGetPowerUsage"), self._number("nvmlDeviceGetTemperature", 0)))

        self._thread = threading.Thread(target=sample, daemon=True)
        self._thread.start()

    def stop(self):
        self._stop.set()
        self._thread.join()
        self.peak_bytes = max(self.peak_bytes, self.used_bytes() or 0)

    def clocks(self):
        names = ("sm_clock_mhz", "memory_clock_mhz", "power_mw", "temperature_c")
        columns = [sorted(value for value in column if value is not None) for column in zip(*self._samples)]
        return {name: column[len(column) // 2] if column else None for name, column in zip(names, columns)}

    def driver(self):
        if self._library is None:
            return ""
        text = ctypes.create_string_buffer(96)
        return text.value.decode() if self._library.nvmlSystemGetDriverVersion(text, 96) == 0 else ""


def _plain_devices():
    return (os.environ.get("CUDA_VISIBLE_DEVICES") or "0").split(",")[0].isdigit()


def provenance():
    import torch

    properties = torch.cuda.get_device_properties(0)
    kept = {}
    for name in dir(properties):
        value = getattr(properties, name)
        if not name.startswith("_") and isinstance(value, (int, float, str)):
            kept[name] = value
    return {
        "version": VERSION,
        "card": properties.name,
        "driver": Nvml().driver(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "properties": kept,
        "cudnn_device_json": cudnn_device_json(),
    }


def cudnn_device_json():
    """cuDNN's own description of the card (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, since 9.8), to check gpucast's description."""
    import torch

    torch.nn.functional.conv2d(torch.zeros(1, 3, 8, 8, device="cuda"), torch.zeros(4, 3, 3, 3, device="cuda"))
    try:
        with open("/proc/self/maps") as maps:
            path = next(line.split()[-1] for line in maps if "libcudnn.so" in line)
        cudnn = ctypes.CDLL(path)
        descriptor, device, count = ctypes.c_void_p(), ctypes.c_int32(torch.cuda.current_device()), ctypes.c_int64()
        if cudnn.cudnnBackendCreateDescriptor(38, ctypes.byref(descriptor)) != 0:
            return None
        if cudnn.cudnnBackendSetAttribute(descriptor, 2700, 23, ctypes.c_int64(1), ctypes.byref(device)) != 0:
            return None
        if cudnn.cudnnBackendFinalize(descriptor) != 0:
            return None
        cudnn.cudnnBackendGetAttribute(descriptor, 2702, 24, ctypes.c_int64(0), ctypes.byref(count), None)
        text = ctypes.create_string_buffer(max(count.value, 1))
        if cudnn.cudnnBackendGetAttribute(descriptor, 2702, 24, count, ctypes.byref(count), text) != 0:
            return None
        return json.loads(text.value.decode())
    except (OSError, StopIteration, AttributeError, ValueError):
        return None


# ---- the parts ---------------------------------------------------------------------------------------------------------------------


def measure_context():
    """Device memory by the driver, after each action that makes a process use more of it."""
    import torch

    nvml = Nvml()
    rows, before = [], nvml.used_bytes()

    def note(what):
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        rows.append(
            {
                "after": what,
                "device_used_bytes": nvml.used_bytes(),
                "mem_get_info_used_bytes": total - free,
                "reserved_bytes": torch.cuda.memory_reserved(),
            }
        )

    def step(what, function):
        try:
            function()
            note(what)
        except Exception as error:  # a failure of one on this card says nothing about the others
            rows.append({"after": what, "error": f"{type(error).__name__}: {error}"[:300]})

    x = None

    def allocate():
        nonlocal x
        x = torch.empty(1024, 1024, device="cuda")

    image = lambda dtype=torch.float32: torch.zeros(8, 32, 32, 32, device="cuda", dtype=dtype, requires_grad=True)  # noqa: E731
    filters = lambda dtype=torch.float32: torch.zeros(32, 32, 3, 3, device="cuda", dtype=dtype, requires_grad=True)  # noqa: E731
    heads = lambda: torch.zeros(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)  # noqa: E731
    step("context", lambda: torch.cuda.init() or torch.cuda.synchronize())
    step("first allocation", allocate)
    step("fill", lambda: x.fill_(1))
    step("elementwise", lambda: (x * 2 + 1).relu())
    step("reduction", lambda: x.sum(0))
    step("softmax and layer norm", lambda: torch.nn.functional.layer_norm(x.softmax(1), (1024,)))
    step("random", lambda: torch.randn(1024, device="cuda"))
    step("cublas fp32", lambda: x @ x)
    step("cublas bf16", lambda: x.bfloat16() @ x.bfloat16())
    step("cublasLt with bias", lambda: torch.nn.functional.linear(x, x, x[0]))
    step("cudnn forward", lambda: torch.nn.functional.conv2d(image(), filters()))
    step("cudnn backward", lambda: torch.nn.functional.conv2d(image(), filters()).sum().backward())
    step("cudnn bf16", lambda: torch.nn.functional.conv2d(image(torch.bfloat16), filters(torch.bfloat16)).sum().backward())
    step("attention", lambda: torch.nn.functional.scaled_dot_product_attention(heads(), heads(), heads()).sum().backward())
    step("foreach optimizer", lambda: torch._foreach_add_([torch.zeros(64, device="cuda") for _ in range(64)], 1.0))
    step("sort and index", lambda: x[0].sort()[1].unique())
    step("fft", lambda: torch.fft.fft(x[0]))
    step("linear algebra", lambda: torch.linalg.cholesky(torch.eye(64, device="cuda")))
    return [{"part": "context", "device_used_before_bytes": before, "steps": rows}]


def convolution_problems(count=300, seed=1):
    """Shapes of real networks, then random ones: batch, in, out, size, window, stride, groups, dilation, precision, channels last."""
    problems = []
    for batch in (8, 32, 128):
        for inputs, outputs, size, window, stride, groups in (
            *((3, 64, 224, 7, 2, 1), (64, 64, 56, 1, 1, 1), (64, 64, 56, 3, 1, 1), (256, 64, 56, 1, 1, 1), (128, 128, 56, 3, 2, 1)),
            *((512, 512, 14, 3, 1, 1), (3, 64, 224, 3, 1, 1), (64, 64, 224, 3, 1, 1), (512, 512, 28, 3, 1, 1), (3, 96, 224, 4, 4, 1)),
            *(
                (96, 96, 56, 7, 1, 96),
                (768, 768, 7, 7, 1, 768),
                (32, 32, 112, 3, 1, 32),
                (144, 144, 56, 3, 2, 144),
                (128, 128, 56, 3, 1, 32),
            ),
        ):
            for precision, last in (("fp32", False), ("tf32", False), ("bf16", True)):
                problems.append((batch, inputs, outputs, size, window, stride, groups, 1, precision, last))
    rng = random.Random(seed)
    while len(problems) < count:
        groups = rng.choice((1, 1, 1, 4, 32))
        inputs, outputs = groups * rng.choice((1, 2, 4, 8, 16)), groups * rng.choice((1, 2, 4, 8, 16))
        size, window = rng.choice((7, 13, 14, 28, 33, 56, 96)), rng.choice((1, 2, 3, 5, 7))
        precision, last = rng.choice((("fp32", False), ("tf32", False), ("fp32", True), ("bf16", True)))
        problems.append(
            (
                rng.choice((1, 4, 16, 50)),
                inputs,
                outputs,
                size,
                window,
                rng.choice((1, 1, 2)),
                groups,
                rng.choice((1, 1, 2)),
                precision,
                last,
            )
        )
    return [problem for problem in problems if problem[3] > problem[7] * (problem[4] - 1)][:count]


def measure_convolutions(deadline):
    """For each problem the workspace of forward, of the gradient of the input and of the filter: the peak beyond the memory that remains."""
    import torch

    names = ("batch", "in_channels", "out_channels", "size", "window", "stride", "groups", "dilation", "precision", "channels_last")
    rows = []
    for problem in convolution_problems():
        if time.monotonic() > deadline:
            break
        case = dict(zip(names, problem))
        torch.backends.cudnn.allow_tf32 = case["precision"] == "tf32"
        dtype = torch.bfloat16 if case["precision"] == "bf16" else torch.float32
        layout = torch.channels_last if case["channels_last"] else torch.contiguous_format
        size, padding = case["size"], case["window"] // 2
        try:
            x = torch.empty(case["batch"], case["in_channels"], size, size, device="cuda", dtype=dtype, memory_format=layout)
            shape = (case["out_channels"], case["in_channels"] // case["groups"], case["window"], case["window"])
            w = torch.empty(shape, device="cuda", dtype=dtype, memory_format=layout)
            options = ([case["stride"]] * 2, [padding] * 2, [case["dilation"]] * 2, False, [0, 0], case["groups"])
            y = torch.ops.aten.convolution(x, w, None, *options)
            passes = {
                "forward": lambda x=x, w=w, options=options: torch.ops.aten.convolution(x, w, None, *options),
                "backward_data": lambda y=y, x=x, w=w, options=options: torch.ops.aten.convolution_backward(
                    y, x, w, None, *options, [True, False, False]
                ),
                "backward_filter": lambda y=y, x=x, w=w, options=options: torch.ops.aten.convolution_backward(
                    y, x, w, None, *options, [False, True, False]
                ),
            }
            for name, function in passes.items():
                function()
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                kept = function()
                peak, left = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
                case[f"{name}_workspace_bytes"] = peak - left
                del kept
            del x, w, y, passes, function
        except RuntimeError as error:
            case["error"] = str(error)[:300]
        rows.append(case)
    return [{"part": "convolutions", "problems": rows}]


def measure_allocator(seed=7, count=3000):
    """A random sequence of tensors: the reserved memory after each. The virtual GPU must give the same numbers."""
    import torch

    rng, tensors, reserved = random.Random(seed), [], []
    for _ in range(count):
        if tensors and rng.random() < 0.45:
            tensors.pop(rng.randrange(len(tensors)))
        else:
            size = rng.choice((rng.randrange(1, 2**12), rng.randrange(1, 2**20), rng.randrange(2**20, 2**24)))
            tensors.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        if rng.random() < 0.005:
            torch.cuda.empty_cache()
        reserved.append(torch.cuda.memory_reserved())
    changes = [[i, value] for i, value in enumerate(reserved) if i == 0 or value != reserved[i - 1]]
    return [{"part": "allocator", "seed": seed, "count": count, "reserved_changes": changes}]


def measure(part, deadline):
    if part == "provenance":
        return [provenance()]
    if part == "context":
        return measure_context()
    if part == "convolutions":
        return measure_convolutions(deadline)
    return measure_allocator()


# ---- all of it ---------------------------------------------------------------------------------------------------------------------


def child(words, timeout_s, launcher):
    """The rows from a separate process; or one with the reason for its failure."""
    with tempfile.TemporaryDirectory(prefix="measure_on_gpu_") as folder:
        result = os.path.join(folder, "result.json")
        command = [*launcher, sys.executable, os.path.abspath(__file__), *words, "--result", result]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=max(timeout_s, 1))
            with open(result, encoding="utf-8") as file:
                return json.load(file)
        except subprocess.TimeoutExpired:
            return [{"error": f"not done within {timeout_s:.0f} s"}]
        except (OSError, ValueError):
            return [{"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:500]}]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", help="a file for the rows; existing rows are kept")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--minutes", type=float, default=8, help="parts not begun by then are left out (default %(default)s)")
    parser.add_argument(
        "--launcher", default="", help="words before each process's command, e.g. 'gpucast run --gpu rtx4090 --steps 999 --'"
    )
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    parser.add_argument("--part", choices=["provenance", *(part for part in PARTS if part != "jobs")], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job or args.part:
        rows = [run_job(json.loads(args.job))] if args.job else measure(args.part, time.monotonic() + 60 * args.minutes)
        with open(args.result, "w", encoding="utf-8") if args.result else contextlib.nullcontext(sys.stdout) as file:
            json.dump(rows, file)
        return 0
    if not args.output:
        parser.error("name a file for the rows: -o CARD.jsonl")
    deadline = time.monotonic() + 60 * args.minutes
    left = lambda: deadline - time.monotonic()  # noqa: E731
    launcher = shlex.split(args.launcher)
    (source,) = child(["--part", "provenance"], 120, launcher)
    if "error" in source:
        sys.exit(f"measure_on_gpu.py: PyTorch cannot use the card: {source['error']}")
    written = 0
    with open(args.output, "a", encoding="utf-8") as out:

        def write(rows):
            nonlocal written
            for row in rows:
                out.write(json.dumps({**row, "source": source}) + "\n")
                out.flush()
                written += 1
                print(json.dumps({key: value for key, value in row.items() if not isinstance(value, list)})[:300], file=sys.stderr)

        for part in PARTS:
            if args.only not in (None, part):
                continue
            if part != "jobs":
                minutes = min(2.0, left() / 60)
                write(child(["--part", part, "--minutes", str(minutes)], left() + 30, launcher) if minutes > 0 else [])
                continue
            for job in JOBS:
                if left() <= 0:
                    break
                (result,) = child(["--job", json.dumps(job)], left() + 30, launcher)
                write([{"part": "job", "job": job, **result}])
    print(f"{written} rows in {args.output}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
