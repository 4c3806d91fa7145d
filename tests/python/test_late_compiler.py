"""torch._dynamo, which an optimizer's first step would import, is imported where a script uses it."""

import pytest

TRAIN = """
import sys, torch

weight = torch.ones(8, device="cuda", requires_grad=True)
optimizer = torch.optim.AdamW([weight])
loaded = lambda: "torch._dynamo.eval_frame" in sys.modules

def step():
    weight.sum().backward()
    optimizer.step()
    optimizer.zero_grad()

step()
print("after a step:", loaded(), file=sys.stderr)
"""

USES = """
zero_grad = torch.optim.Optimizer.zero_grad
while hasattr(zero_grad, "__wrapped__"):
    zero_grad = zero_grad.__wrapped__
before = getattr(zero_grad, "__dynamo_disable", None)
{use}
import torch._dynamo
print("used:", loaded(), torch._dynamo is sys.modules["torch._dynamo"], type(torch._dynamo).__name__, file=sys.stderr)
print("left alone:", before is zero_grad, "for compiled code:", getattr(zero_grad, "__dynamo_disable", None) is zero_grad, file=sys.stderr)
step()
print("disabled:", getattr(zero_grad, "__dynamo_disable", zero_grad) is not zero_grad, file=sys.stderr)
"""


@pytest.mark.once
def test_a_script_that_compiles_nothing_does_not_import_the_compiler(gpucast):
    done = gpucast(TRAIN, fresh=True)
    assert done.code == 0
    assert "after a step: False" in done.err


@pytest.mark.parametrize(
    "use",
    [
        "torch._dynamo.config.suppress_errors = False",
        pytest.param("import torch._dynamo.config", marks=pytest.mark.slow),
        "from torch._dynamo import optimize",
        pytest.param("import torch._dynamo as compiler; compiler.graph_break()", marks=pytest.mark.slow),
        pytest.param("torch._dynamo.something = 1", marks=pytest.mark.slow),
        pytest.param("torch.compile(lambda x: x + 1)(weight.detach())", marks=pytest.mark.slow),
    ],
)
@pytest.mark.once
def test_it_is_there_when_it_is_used(gpucast, use):
    done = gpucast(TRAIN + USES.format(use=use), fresh=True)
    assert done.code == 0, done.err
    assert "after a step: False" in done.err
    assert "used: True True module" in done.err
    assert "left alone: True for compiled code: False" in done.err
    assert "disabled: True" in done.err
