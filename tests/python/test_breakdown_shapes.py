"""Feature maps, weights and gradients, layer by layer, against what shapes give on paper.

The paper side is arithmetic on shapes: no PyTorch, nothing of gpucast. What is kept for backward of fp32 layers, and why:

convolution        its output, since batch norm's backward needs its input
batch norm         its output, which ReLU in place turns into ReLU's result, and that is what ReLU's backward needs; the mean
                   and the inverse deviation of the batch, a float a channel each. Not kept: the output of a downsample's batch
                   norm, which is only added to another tensor, and addition needs nothing
ReLU in place      nothing new
max pooling        its output (input of the next convolution) and the int64 index of every maximum
average pooling    its output, the input of the last layer (flatten is a view)
linear             nothing where only the loss or an addition follows; else what follows decides
ReLU               its output
GELU               its input, the output of the layer before; its output is the next layer's input
layer norm         its output (the next layer's input), mean and inverse deviation, a float a row each; its input
softmax            its output
batched product    both factors, as copies where heads lie apart in memory
embedding          the indices
addition           nothing
"""

import csv
import io
import subprocess
import sys
from importlib.util import find_spec

import pytest
from conftest import ROOT

pytestmark = pytest.mark.once

MIB = 2**20
FLOAT, INT64 = 4, 8


class Breakdown:
    """`gpucast breakdown` of a capture: bytes by (row, category, moment)."""

    def __init__(self, gpucast, capture):
        self.gpucast, self.capture = gpucast, capture
        self.modules = self.rows("module")
        self.tensors = self.rows("tensor")

    def rows(self, by):
        words = [self.gpucast, "breakdown", str(self.capture), "--by", by, "--format", "csv"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode in (0, 1), done.stderr
        lines = csv.DictReader(io.StringIO(done.stdout))
        # Outermost modules have no name: the model and a loss module differ by their types.
        return {(line["name"] or line["type"], line["category"], line["itself"] == "1"): line for line in lines}

    def bytes(self, by, name, category, moment):
        """(requested, allocated) of a tensor, or of a module without its children."""
        rows = self.modules if by == "module" else self.tensors
        has_children = by == "module" and any(itself and other == name or other.startswith(f"{name}.") for other, _, itself in rows)
        line = rows.get((name, category, has_children))
        return (0, 0) if line is None else (int(line[f"{moment}_requested_bytes"]), int(line[f"{moment}_bytes"]))

    def total(self, category, moment):
        """Requested bytes of the whole model and of everything outside it."""
        outermost = [line for (_, of, _), line in self.modules.items() if of == category and line["depth"] == "0"]
        return sum(int(line[f"{moment}_requested_bytes"]) for line in outermost)


def rounded(sizes):
    return sum(-(-size // 512) * 512 for size in sizes)


def assert_blocks(breakdown, by, name, category, moment, sizes):
    """The row holds blocks of exactly these sizes. In the allocator each is rounded up to 512 bytes; above 1 MiB a
    rest of up to 1 MiB may stay with the block."""
    requested, allocated = breakdown.bytes(by, name, category, moment)
    assert requested == sum(sizes), (name, category)
    slack = MIB * sum(size > MIB for size in sizes)
    assert rounded(sizes) <= allocated <= rounded(sizes) + slack, (name, category)


class ResNet50:
    """What the layers of torchvision's ResNet-50 hold, from the architecture: bytes of parameters and buffers by name, and sizes of
    the blocks that a module keeps for backward."""

    def __init__(self, batch, image=224, classes=1000):
        self.batch = batch
        self.parameters, self.buffers, self.kept = {}, {}, {}
        size = self.convolution("conv1", 3, 64, 7, 2, image)
        self.batch_norm("bn1", 64, size)
        size = (size + 2 - 3) // 2 + 1
        outputs = batch * 64 * size * size
        self.kept["maxpool"] = [FLOAT * outputs, INT64 * outputs]
        channels = 64
        for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=1):
            for block in range(blocks):
                stride = 2 if stage > 1 and block == 0 else 1
                size = self.bottleneck(f"layer{stage}.{block}", channels, width, stride, size, downsample=block == 0)
                channels = 4 * width
        self.kept["avgpool"] = [FLOAT * batch * channels]
        self.parameters["fc.weight"] = FLOAT * classes * channels
        self.parameters["fc.bias"] = FLOAT * classes
        self.kept["fc"] = []  # the loss keeps its own log-probabilities
        self.logits = FLOAT * batch * classes
        self.images = FLOAT * batch * 3 * image * image
        self.labels = INT64 * batch

    def bottleneck(self, name, inputs, width, stride, size, downsample):
        self.convolution(f"{name}.conv1", inputs, width, 1, 1, size)
        self.batch_norm(f"{name}.bn1", width, size)
        smaller = self.convolution(f"{name}.conv2", width, width, 3, stride, size)
        self.batch_norm(f"{name}.bn2", width, smaller)
        self.convolution(f"{name}.conv3", width, 4 * width, 1, 1, smaller)
        self.batch_norm(f"{name}.bn3", 4 * width, smaller)
        if downsample:
            self.convolution(f"{name}.downsample.0", inputs, 4 * width, 1, stride, size)
            self.batch_norm(f"{name}.downsample.1", 4 * width, smaller, keeps_output=False)
        return smaller

    def convolution(self, name, inputs, outputs, kernel, stride, size):
        size = (size + 2 * (kernel // 2) - kernel) // stride + 1
        self.parameters[f"{name}.weight"] = FLOAT * outputs * inputs * kernel * kernel
        self.kept[name] = [FLOAT * self.batch * outputs * size * size]
        return size

    def batch_norm(self, name, channels, size, keeps_output=True):
        for tensor in "weight", "bias":
            self.parameters[f"{name}.{tensor}"] = FLOAT * channels
        for tensor in "running_mean", "running_var":
            self.buffers[f"{name}.{tensor}"] = FLOAT * channels
        self.buffers[f"{name}.num_batches_tracked"] = INT64
        output = [FLOAT * self.batch * channels * size * size] if keeps_output else []
        self.kept[name] = [*output, FLOAT * channels, FLOAT * channels]


@pytest.fixture(scope="module")
def resnet50(gpucast_bin, open_batch, tmp_path_factory):
    if find_spec("torchvision") is None:
        pytest.skip("no torchvision")
    capture = tmp_path_factory.mktemp("resnet50") / "resnet50.gpucast"
    script = ROOT / "examples/train_resnet50.py"
    done = open_batch.gpucast(capture.parent, [sys.executable, script, "--batch", "32"], "--gpu", "rtx3060", capture=capture)
    assert done.code == 0, done.err
    return Breakdown(gpucast_bin, capture)


PAPER = ResNet50(batch=32)


def test_paper_is_resnet50():
    assert len(PAPER.parameters) == 161
    assert sum(PAPER.parameters.values()) == FLOAT * 25_557_032  # as torchvision publishes it
    assert len(PAPER.kept) == 53 + 53 + 3  # convolutions, batch norms, the two poolings and the last layer


@pytest.mark.parametrize(
    "category,moment", [("parameters", "forward_end"), ("parameters", "end"), ("gradients", "end"), ("gradients", "maximum")]
)
def test_resnet50_parameters(resnet50, category, moment):
    for name, size in PAPER.parameters.items():
        assert_blocks(resnet50, "tensor", name, category, moment, [size])
    assert resnet50.total(category, moment) == sum(PAPER.parameters.values())


def test_resnet50_parameters_by_module(resnet50):
    for category in "parameters", "gradients":
        for module in PAPER.kept:
            sizes = [size for name, size in PAPER.parameters.items() if name.rpartition(".")[0] == module]
            assert_blocks(resnet50, "module", module, category, "end", sizes)


def test_resnet50_feature_maps(resnet50):
    for module, sizes in PAPER.kept.items():
        assert_blocks(resnet50, "module", module, "activations", "forward_end", sizes)
    # The loss is a module of its own, and forward ends with it: log-probabilities, the sum of the weights of the classes, the loss, and
    # the loss of the step before, which the script still holds.
    loss = [PAPER.logits, FLOAT, FLOAT, FLOAT]
    assert_blocks(resnet50, "module", "CrossEntropyLoss", "activations", "forward_end", loss)
    # Nothing else is kept, anywhere.
    assert resnet50.total("activations", "forward_end") == sum(map(sum, PAPER.kept.values())) + sum(loss)


def test_resnet50_at_the_end_of_forward(resnet50):
    """Everything but the optimizer's state and the workspaces."""
    at = "forward_end"
    assert resnet50.total("gradients", at) == 0
    assert resnet50.total("buffers", at) == sum(PAPER.buffers.values())
    assert resnet50.total("inputs", at) == PAPER.images + PAPER.labels
    assert resnet50.bytes("module", "fc", "temporaries", at)[0] == PAPER.logits
    assert resnet50.total("optimizer_state", "end") == sum(PAPER.parameters.values())  # one momentum


PERCEPTRON = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(300, 1000), nn.ReLU(), nn.Linear(1000, 700, bias=False), nn.ReLU(inplace=True), nn.Linear(700, 10)).to("cuda")
optimizer = torch.optim.Adam(model.parameters())
def train():  # a function, so that no step leaves anything to the next
    x = torch.randn(96, 300).to("cuda")
    y = torch.randint(0, 10, (96,)).to("cuda")
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()

for step in range(100):
    train()
"""


def test_perceptron(gpucast, gpucast_bin):
    run = gpucast(PERCEPTRON, "--gpu", "rtx3060")
    assert run.code == 0, run.err
    breakdown = Breakdown(gpucast_bin, run.capture_path)
    parameters = {
        "0.weight": 300 * 1000 * FLOAT,
        "0.bias": 1000 * FLOAT,
        "2.weight": 1000 * 700 * FLOAT,
        "4.weight": 700 * 10 * FLOAT,
        "4.bias": 10 * FLOAT,
    }
    for name, size in parameters.items():
        for category in "parameters", "gradients":
            assert_blocks(breakdown, "tensor", name, category, "end", [size])
        requested, _ = breakdown.bytes("tensor", name, "optimizer_state", "end")
        assert requested == 2 * size  # Adam's step counts are on the host
    kept = {
        "0": [],  # ReLU keeps its output, not this
        "1": [96 * 1000 * FLOAT],
        "2": [96 * 700 * FLOAT],  # ReLU in place: the same block
        "3": [],
        "4": [],
    }
    for name, sizes in kept.items():
        assert_blocks(breakdown, "module", name, "activations", "forward_end", sizes)
    assert breakdown.total("activations", "forward_end") == sum(map(sum, kept.values()))


TRANSFORMER = """
import torch
from torch import nn

BATCH, LENGTH, WIDTH, HEADS, LAYERS, WORDS = 6, 40, 96, 4, 2, 500

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.up, self.act, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).view(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5).softmax(-1)
        x = x + self.projection((weights @ v).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))
        return x + self.down(self.act(self.up(self.norm2(x))))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(LENGTH, device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

model = Model().to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
def train():
    ids = torch.randint(WORDS, (BATCH, LENGTH)).to("cuda")
    next_ids = torch.randint(WORDS, (BATCH, LENGTH)).to("cuda")
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(ids).view(-1, WORDS), next_ids.view(-1))
    loss.backward()
    optimizer.step()

for step in range(100):
    train()
"""


def test_transformer(gpucast, gpucast_bin):
    run = gpucast(TRANSFORMER, "--gpu", "rtx3060")
    assert run.code == 0, run.err
    breakdown = Breakdown(gpucast_bin, run.capture_path)
    batch, length, width, heads, layers, words = 6, 40, 96, 4, 2, 500
    rows = batch * length
    hidden = rows * width * FLOAT
    norm = [hidden, rows * FLOAT, rows * FLOAT]
    kept = {
        "Model": [length * INT64, hidden],  # the positions' indices; tokens + positions
        "tokens": [],
        "positions": [],
        "norm": norm,
        "head": [],
    }
    sizes = {"tokens.weight": (words, width), "positions.weight": (length, width), "head.weight": (words, width), "head.bias": (words,)}
    norms = ["norm"]
    for layer in range(layers):
        name = f"blocks.{layer}"
        # q, k, v; the result of softmax; attention's result with its heads side by side; the two sums
        kept[name] = [*3 * [hidden], batch * heads * length * length * FLOAT, hidden, hidden, hidden]
        kept[f"{name}.norm1"] = kept[f"{name}.norm2"] = norm
        kept[f"{name}.qkv"] = kept[f"{name}.projection"] = kept[f"{name}.down"] = []
        kept[f"{name}.up"] = kept[f"{name}.act"] = [4 * hidden]
        norms += [f"{name}.norm1", f"{name}.norm2"]
        for linear, inputs, outputs in (("qkv", 1, 3), ("projection", 1, 1), ("up", 1, 4), ("down", 4, 1)):
            sizes[f"{name}.{linear}.weight"] = (outputs * width, inputs * width)
            sizes[f"{name}.{linear}.bias"] = (outputs * width,)
    for name in norms:
        sizes[f"{name}.weight"] = sizes[f"{name}.bias"] = (width,)
    for name, shape in sizes.items():
        size = FLOAT * shape[0] * (shape[1] if len(shape) == 2 else 1)
        for category in "parameters", "gradients":
            assert_blocks(breakdown, "tensor", name, category, "end", [size])
    for name, blocks in kept.items():
        assert_blocks(breakdown, "module", name, "activations", "forward_end", blocks)
    assert breakdown.total("activations", "forward_end") == sum(map(sum, kept.values()))
