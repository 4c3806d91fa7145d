"""A CPU profile in fp32 predicts the same script's memory in bf16 or fp16, with autocast and without; the virtual GPU measures it."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.once

SCRIPT = """
import contextlib, sys
import torch
from torch import nn
from torch.nn import functional as F

network, mode = sys.argv[1:]
dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[mode.split("-")[-1]]
amp = mode.startswith("amp")

class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        y = self.norm(x)
        heads = [layer(y).unflatten(2, (8, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        return x + self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))

class Feed(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        return x + super().forward(x)

def conv(channels, out, stride):
    return [nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]

def build():
    if network == "mlp":
        return nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 10)), torch.randn(512, 784)
    if network == "cnn":
        layers = conv(3, 64, 1) + conv(64, 128, 2) + conv(128, 256, 2) + conv(256, 256, 1)
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)), torch.randn(32, 3, 64, 64)
    blocks = [layer for _ in range(2) for layer in (Attention(512), Feed(512))]
    return nn.Sequential(*blocks, nn.LayerNorm(512), nn.Linear(512, 10)), torch.randn(4, 128, 512)

model, inputs = build()
if not amp:
    model, inputs = model.to(dtype), inputs.to(dtype)
model = model.to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cuda", enabled=mode == "amp-fp16")
for _ in range(3):
    x = inputs.to("cuda")
    target = torch.zeros(x.shape[0], dtype=torch.long).to("cuda")
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=dtype) if amp else contextlib.nullcontext():
        y = model(x)
        loss = F.cross_entropy(y if y.dim() == 2 else y.mean(1), target)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""

NETWORKS = ["mlp", "cnn", "transformer"]
MODES = ["bf16", "fp16", "amp-bf16", "amp-fp16"]
QUICK = (("bf16", "transformer"), ("amp-fp16", "cnn"))  # with autocast and without; the others are slow
CASES = [pytest.param(mode, network, marks=() if (mode, network) in QUICK else pytest.mark.slow) for mode in MODES for network in NETWORKS]
MOST_ALLOCATED = 0.03
MOST_RESERVED = 0.03
SEGMENT_BYTES = 20 << 20  # of these small models one more or less is worth some percent


class Cases:
    """Truths, traces and predictions, each made once."""

    def __init__(self, gpucast_bin, open_batch, folder):
        self.bin, self.batch, self.folder, self.done = gpucast_bin, open_batch, folder, {}
        self.script = folder / "train.py"
        self.script.write_text(SCRIPT, encoding="utf-8")

    def call(self, *words):
        done = subprocess.run([self.bin, *map(str, words)], cwd=self.folder, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode in (0, 1), done.stderr[-3000:]
        return done.stdout

    def truth(self, network, mode):
        if (network, mode) not in self.done:
            done = self.batch.gpucast(self.folder, [sys.executable, self.script, network, mode], "--gpu", "rtx3060")
            assert done.code in (0, 1), done.err[-3000:]
            self.done[network, mode] = done.report
        return self.done[network, mode]

    def trace(self, network, mode="fp32"):
        path = self.folder / f"{network}.{mode}.json.gz"
        if not path.exists():
            self.call("profile", "-o", path, "--", sys.executable, self.script, network, mode)
        return path

    def predict(self, trace, *options):
        return json.loads(self.call("analyze", trace, "--gpu", "rtx3060", "--format", "json", *options))


@pytest.fixture(scope="module")
def cases(gpucast_bin, open_batch, tmp_path_factory):
    return Cases(gpucast_bin, open_batch, tmp_path_factory.mktemp("mixed_precision"))


def options_of(mode):
    return ["--dtype", mode.split("-")[-1]] + (["--amp"] if mode.startswith("amp") else [])


def assert_close(predicted, truth):
    allocated, reserved = ([report["peak"][key] for report in (predicted, truth)] for key in ("allocated_bytes", "reserved_bytes"))
    assert abs(allocated[0] - allocated[1]) <= MOST_ALLOCATED * allocated[1], (allocated, reserved)
    assert abs(reserved[0] - reserved[1]) <= max(MOST_RESERVED * reserved[1], SEGMENT_BYTES), (allocated, reserved)


@pytest.mark.parametrize(("mode", "network"), CASES)
def test_fp32_profile_predicts_lower_precision(cases, network, mode):
    assert_close(cases.predict(cases.trace(network), *options_of(mode)), cases.truth(network, mode))


@pytest.mark.parametrize("network", ["transformer", pytest.param("cnn", marks=pytest.mark.slow)])
def test_precisions_differ(cases, network):
    """If the assertions above could not see the difference, they would not test the rule."""
    peaks = {mode: cases.truth(network, mode)["peak"]["allocated_bytes"] for mode in ("fp32", "bf16")}
    assert peaks["bf16"] < 0.8 * peaks["fp32"]
    without = cases.predict(cases.trace(network), "--dtype", "bf16", "--without", "mixed_precision")
    assert without["peak"]["allocated_bytes"] > 1.2 * peaks["bf16"]


def test_profile_of_autocast_needs_no_option(cases):
    """`gpucast profile` says where autocast was on."""
    assert_close(cases.predict(cases.trace("transformer", "amp-bf16")), cases.truth("transformer", "amp-bf16"))


def test_flash_attention_on_ampere_only(cases):
    """The T4 (compute capability 7.5) has no flash attention; it still is an answer."""
    predicted = json.loads(cases.call("analyze", cases.trace("transformer"), "--gpu", "t4", "--format", "json", "--dtype", "fp16", "--amp"))
    assert predicted["peak"]["allocated_bytes"] > 0


def test_amp_needs_dtype(cases, gpucast_bin):
    done = subprocess.run([gpucast_bin, "analyze", str(cases.trace("transformer")), "--amp"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--dtype" in done.stderr
