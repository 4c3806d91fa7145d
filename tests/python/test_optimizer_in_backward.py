"""Hooks that step an optimizer in the backward pass, one optimizer for each parameter: its gradient is freed before the next one is there."""

import json
import subprocess
import sys

import pytest

MODEL = """
import torch
from torch import nn

model = nn.Sequential(*(nn.Linear(4096, 4096, device="cuda") for _ in range(10)))
"""

# As in PyTorch's tutorial, and torchtune's optimizer_in_bwd.
FUSED = (
    MODEL
    + """
optimizers = {weight: torch.optim.Adam([weight], foreach=False) for weight in model.parameters()}

def update(weight):
    optimizers[weight].step()
    optimizers[weight].zero_grad()

for weight in model.parameters():
    weight.register_post_accumulate_grad_hook(update)
for batch in range(4):
    model(torch.randn(2048, 4096, device="cuda")).sum().backward()
    torch.cuda.synchronize()
    print("batches=%d" % (batch + 1))
print("peak=%d" % torch.cuda.max_memory_allocated())
"""
)

PLAIN = (
    MODEL
    + """
optimizer = torch.optim.Adam(model.parameters(), foreach=False)
for batch in range(4):
    model(torch.randn(2048, 4096, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
)

# As LOMO: a hook on the gradient updates the weights whose gradients are there, the last ones follow after the backward pass. Two
# optimizers never step: their weights get no gradient.
BEFORE_ITS_OWN = """
import torch
from torch import nn

model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)), nn.LayerNorm(256)).cuda()
model[0].bias.requires_grad_(False)
unused = nn.Parameter(torch.zeros(16, device="cuda"))
weights = [*model.parameters(), unused]
optimizers = [torch.optim.SGD([weight], lr=0.1, momentum=0.9) for weight in weights]

def update(gradient=None):
    for weight, optimizer in zip(weights, optimizers):
        if weight.grad is not None:
            optimizer.step()
            weight.grad = None
    return gradient

for weight in weights:
    if weight.requires_grad:
        weight.register_hook(update)
for batch in range(12):
    hidden = torch.utils.checkpoint.checkpoint(model[:2], torch.randn(64, 256, device="cuda"), use_reentrant=False)
    model[2:](hidden).sum().backward()
    update()
    print("batches=%d" % (batch + 1))
print("peak=%d" % torch.cuda.max_memory_allocated())
"""


def is_quiet(run):
    """Neither PyTorch's profiler nor ours complains."""
    lines = [line for line in run.err.splitlines() if not line.startswith(("batches=", "peak=", "gpucast: the capture is"))]
    return lines == [] and not [one for one in run.report["warnings"] if one["code"] == "hook_failed"]


def time_of(gpucast_bin, run):
    words = [gpucast_bin, "time", "--gpu", "a100-80", "--format", "json", run.capture_path]
    return json.loads(subprocess.run(words, capture_output=True, check=True).stdout)


def test_a_step_is_a_batch(gpucast, gpucast_bin):
    run = gpucast(FUSED, "--steps", "10")
    assert run.code == 0 and is_quiet(run), run.err
    assert run.err.count("batches=") == run.report["steps"] == 4
    assert run.report["peak"]["allocated_bytes"] == run.printed("peak")
    fused, plain = time_of(gpucast_bin, run), time_of(gpucast_bin, gpucast(PLAIN, "--steps", "3"))
    assert fused["step"]["expected_ns"] == pytest.approx(plain["step"]["expected_ns"], rel=0.03)
    assert fused["gpu_ns"] == pytest.approx(plain["gpu_ns"], rel=0.03)


def test_the_run_ends_after_a_backward_pass(gpucast):
    run = gpucast(FUSED, "--steps", "2")
    assert run.code == 0 and is_quiet(run), run.err
    assert run.report["steps"] == 2 and run.err.count("batches=") == 1
    (begin, end) = (run.capture.marks(kind)[-1][0] for kind in ("phase_end", "step"))
    assert begin < end, "the last phase was over"


def test_hooks_on_gradients(gpucast):
    run = gpucast(BEFORE_ITS_OWN, "--steps", "20")
    assert run.code == 0 and is_quiet(run), run.err
    assert run.err.count("batches=") == run.report["steps"] == 12
    assert run.report["peak"]["allocated_bytes"] == run.printed("peak")


def test_profile(gpucast_bin, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(BEFORE_ITS_OWN)
    words = [gpucast_bin, "profile", "--steps", "3", "-o", tmp_path / "trace.json", "--", sys.executable, script]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr.count("batches=") == 2
    assert json.loads((tmp_path / "trace.json").read_text())["gpucast"]["steps"] == 3
