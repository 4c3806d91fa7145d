"""Scripts without an optimizer: each backward pass is a step where the script changes its weights between two."""

import pytest

SCRIPT = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)).cuda()
batch = torch.randn(32, 64, device="cuda")
with torch.no_grad():
    for _ in range({evaluations}):
        model.eval()(batch)
model.train()
for step in range({passes}):
    model.zero_grad()
    model(batch).square().mean().backward()
    {update}
print("passes=%d" % (step + 1))
"""

BY_DATA = "for p in model.parameters(): p.data.add_(p.grad, alpha=-0.1)"
UPDATES = {
    "data": BY_DATA,
    "no_grad": "with torch.no_grad():\n        for p in model.parameters(): p -= 0.1 * p.grad",
    "foreach": "with torch.no_grad(): torch._foreach_add_(list(model.parameters()), [p.grad for p in model.parameters()], alpha=-0.1)",
    "replaced": "for p in model.parameters(): p.data = p.data - 0.1 * p.grad",
}
LATER = (
    SCRIPT
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""
)


def script(passes, update="pass", text=SCRIPT, evaluations=0):
    return text.format(passes=passes, update=update, evaluations=evaluations)


def codes(run):
    return {warning["code"] for warning in run.report["warnings"]}


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_each_pass_is_a_step(gpucast, update):
    run = gpucast(script(5, update), "--until-end")
    assert (run.report["steps"], codes(run)) == (5, set())
    assert [mark[-1] for mark in run.capture.marks("step")] == [1, 2, 3, 4, 5]


def test_the_run_ends_after_the_wanted_steps_and_one_was_observed(gpucast):
    run = gpucast(script(1000, BY_DATA, evaluations=3), "--steps", "3")
    assert run.report["steps"] == 3 and "passes=" not in run.err
    (observed,) = run.capture.all("operators")
    assert observed["step"] == 2
    names = [line[2] for line in run.capture.of("operator_kind")]
    assert "aten::add_" in names and "aten::mm" in names


NEW_INPUT = "del batch\n    batch = torch.ones(32, 64, device='cuda', requires_grad=True)"  # where the one before was


@pytest.mark.once
@pytest.mark.parametrize("update", ["pass", "gradients = [p.grad.mul_(2) for p in model.parameters()]", NEW_INPUT])
def test_passes_that_change_no_weights_are_none(gpucast, update):
    run = gpucast(script(12, update))
    assert run.report["steps"] == 0 and "passes=12" in run.err
    assert codes(run) == {"no_optimizer_step"}
    assert run.capture.all("operators") == []


@pytest.mark.once
def test_an_optimizer_that_is_made_after_some_passes_counts_alone(gpucast):
    assert gpucast(script(3, text=LATER), "--until-end").report["steps"] == 4


def test_a_model_that_is_new_between_two_passes_is_no_step(gpucast):
    """Its weights are written where it is made. Pipelines take a gradient of a new stage to learn its shapes, before the first pass."""
    new = """
for step in range(4):
    model = nn.Linear(64, 8).cuda()
    torch.autograd.grad(model(batch).sum(), list(model.parameters()))
    model(batch).sum().backward()
"""
    run = gpucast(script(0, text=SCRIPT.replace("print(", "#")) + new, "--until-end")
    assert run.report["steps"] == 0
