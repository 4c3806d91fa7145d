"""docs/howto/errors.md: each message comes out of gpucast, and each command of the page runs."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs/howto/errors.md").read_text()
SECTIONS = {
    heading: re.findall(r"^    (gpucast .*)$", body, re.MULTILINE)
    for heading, body in re.findall(r"^### (.*?)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
}

MLP = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default={batch})
batch = parser.parse_args().batch
model = torch.nn.Sequential(*[torch.nn.Linear({width}, {width}) for _ in range({layers})]).cuda()
optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.1)
for step in range({steps}):
    optimizer.zero_grad()
    model(torch.zeros(batch, {width}, device="cuda")).sum().backward()
    optimizer.step()
"""
LINEAR = "import torch\nmodel = torch.nn.Linear(10, 10).cuda()\n"

# Heading -> the script that meets it, and what a command of the section prints.
CASES = {
    "CUDA out of memory. Tried to allocate 1.83 GiB": (
        MLP.format(batch=60000, width=8192, layers=8, optimizer="SGD", steps=5),
        ["DOES NOT FIT", "the largest is --batch"],
    ),
    "CUDA out of memory, in the first optimizer.step()": (
        MLP.format(batch=8, width=20000, layers=2, optimizer="AdamW", steps=5),
        ["DOES NOT FIT", "optimizer state", "Best: factored-optimizer"],
    ),
    "CUDA out of memory, after an hour": (
        """
import torch
model = torch.nn.Linear(1000, 1000).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
outputs = []
for step in range(1000):
    optimizer.zero_grad()
    outputs.append(model(torch.zeros(1000, 1000, device="cuda")))
    outputs[-1].sum().backward()
    optimizer.step()
""",
        ["GROWS", "outputs"],
    ),
    "CUDA out of memory, in the first validation": (
        MLP.format(batch=8192, width=4096, layers=12, optimizer="SGD", steps=3)
        + "outputs = [model(torch.zeros(8192, 4096, device='cuda')) for _ in range(20)]\n",
        ["DOES NOT FIT"],
    ),
    "If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF": (
        """
import torch
model = torch.nn.Linear(10, 10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
for step in range(30):
    large = torch.empty((150 + step) << 20, dtype=torch.uint8, device="cuda")
    kept.append(large[: 10 << 20].clone())
    del large
    model(torch.zeros(4, 10, device="cuda")).sum().backward()
    optimizer.step()
""",
        ["expandable_segments:True", "pieces"],
    ),
    "Tried to allocate 596.05 GiB": (
        "import torch\nmodel = torch.nn.Conv2d(1, 64, 3, padding=1).cuda()\nmodel(torch.zeros(1, 1, 50000, 50000, device='cuda'))\n",
        ["Tried to allocate 596.05 GiB", "train.py:3"],
    ),
    "Expected all tensors to be on the same device": (LINEAR + "model(torch.zeros(4, 10))\n", []),
    "mat1 and mat2 shapes cannot be multiplied": (LINEAR + "model(torch.zeros(4, 12, device='cuda'))\n", []),
    "mat1 and mat2 must have the same dtype": (LINEAR + "model.half()(torch.zeros(4, 10, device='cuda'))\n", []),
    "one of the variables needed for gradient computation has been modified by an inplace operation": (
        LINEAR + "y = model(torch.zeros(4, 10, device='cuda')).exp()\ny += 1\ny.sum().backward()\n",
        [],
    ),
    "Trying to backward through the graph a second time": (
        LINEAR + "y = model(torch.zeros(4, 10, device='cuda')).exp().sum()\ny.backward()\ny.backward()\n",
        [],
    ),
    "can't convert cuda:0 device type tensor to numpy": (LINEAR + "model.weight.detach().numpy()\n", []),
    "Cannot re-initialize CUDA in forked subprocess": (
        """
import torch
from torch.utils.data import DataLoader, Dataset

class Ones(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.ones(3, device="cuda")

torch.zeros(1, device="cuda")
for batch in DataLoader(Ones(), num_workers=1, multiprocessing_context="fork"):
    pass
""",
        [],
    ),
    "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned": (LINEAR + "torch.ones(3).cuda().pin_memory()\n", []),
    "element 0 of tensors does not require grad and does not have a grad_fn": (
        LINEAR + "model.requires_grad_(False)\nmodel(torch.zeros(4, 10, device='cuda')).sum().backward()\n",
        [],
    ),
    "No available kernel. Aborting execution.": (
        """
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
q = torch.zeros(2, 4, 128, 64, device="cuda")
with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    torch.nn.functional.scaled_dot_product_attention(q, q, q)
""",
        [],
    ),
    "no kernel image is available for execution on the device": (
        LINEAR + "model(torch.zeros(4, 10, device='cuda')).relu().sum().backward()\n",
        ["GTX 1080 Ti"],
    ),
    "CUDA error: invalid device ordinal": ("import torch\ntorch.zeros(1, device='cuda:3')\n", ["FITS"]),
    "out of resource: shared memory, Required: 524288, Hardware limit: 101376": (
        """
import torch
import triton
import triton.language as tl

@triton.jit
def product(a, b, c, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))

a = torch.zeros(256, 256, device="cuda")
product[(1,)](a, a, torch.empty_like(a), N=256)
""",
        [],
    ),
    "Found no NVIDIA driver on your system": (MLP.format(batch=8, width=64, layers=2, optimizer="SGD", steps=5), ["Usable.", "FITS"]),
}
SHOWS_NO_MESSAGE = {
    "CUDA out of memory. Tried to allocate 1.83 GiB",
    "CUDA out of memory, in the first optimizer.step()",
    "CUDA out of memory, after an hour",
    "CUDA out of memory, in the first validation",
    "If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF",
    "CUDA error: invalid device ordinal",  # the page's command has the four GPUs
    "Found no NVIDIA driver on your system",
}


def test_each_message_has_a_case():
    assert list(SECTIONS) == list(CASES) and len(CASES) >= 20
    assert all(SECTIONS.values())


@pytest.mark.slow
@pytest.mark.parametrize("heading", CASES)
def test_the_commands_run(gpucast_bin, tmp_path, heading):
    script, wanted = CASES[heading]
    if "triton" in script and importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    (tmp_path / "train.py").write_text(script)
    printed = ""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in SECTIONS[heading]:
        words = [{"gpucast": gpucast_bin, "python": sys.executable}.get(word, word) for word in command.split()]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600, env=environment)
        assert done.returncode in (0, 1, 2), (command, done.stderr)
        assert "The following argument" not in done.stderr, command
        printed += done.stdout + done.stderr
    for text in wanted + ([] if heading in SHOWS_NO_MESSAGE else [heading]):
        assert text in printed, printed[-4000:]
