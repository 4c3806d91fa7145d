"""Loops that ask the card until its answer is right: they end, and loops that end by themselves are left alone."""

import pytest
from conftest import train_script

# Each runs to its own end, with fewer answers than there are in earnest. `rounds()` looks like a library's: it names nothing.
ENDLESS = """
import itertools, time
import torch
from _gpucast import loops
loops._FEW, loops._MANY = 20, 200

def draw():
    return torch.randn(1000, device="cuda")

def until_all_hold():
    done, x = False, draw()
    while not done:
        x = x * 0.9
        done = (x > 0).all().item()

def while_any_holds():
    x = draw()
    while (x > 2).any():
        x = x * 0.9

def while_some_are_chosen():
    x = draw()
    while (x > 2).nonzero().numel() > 0:
        x = x * 1.0

def while_copied():
    x = draw()
    while (x > 2).cpu().any():
        x = x * 0.9

def power_iteration():
    matrix, vector = torch.randn(16, 16, device="cuda"), torch.randn(16, device="cuda")
    while True:
        new = matrix @ vector
        new = new / new.norm()
        if torch.allclose(new, vector):
            break
        vector = new

def newton_iteration():
    for _ in itertools.count():
        x = torch.randn((), device="cuda")
        step = (x * x - 2) / (2 * x)
        if step.abs() < 1e-6:
            break

def several_questions():
    while not (draw() > 5).any() or not torch.equal(draw(), draw()):
        pass

def until_equal():
    while not torch.equal(draw(), draw()):
        pass

def number():
    while draw().mean().item() < 0.9:
        pass

def large_number():
    while float(draw().mean()) < 30.0:
        pass

def negative_number():
    while float(draw().mean()) > -30.0:
        pass

def whole_number():
    while int((draw() > 3).sum()) > 0:
        pass

def in_a_function():
    def fits():
        for parameter in (draw(), draw()):
            if (parameter > 0).all():
                return True
        return False
    while fits():
        pass

def fresh_from_the_host():
    while True:
        x = torch.randn(16).cuda()
        if (x.mean() + draw().mean()) > 1:
            break

def scripted_rejection():
    torch.distributions.VonMises(torch.ones(1, device="cuda"), torch.ones(1, device="cuda")).sample((10,))

for endless in (until_all_hold, while_any_holds, while_some_are_chosen, while_copied, power_iteration, newton_iteration, several_questions,
                until_equal, number, large_number, negative_number, whole_number, in_a_function, fresh_from_the_host, scripted_rejection):
    began = time.time()
    endless()
    print(endless.__name__, f"{time.time() - began:.2f} s", flush=True)
print("ended=1")
"""

# What a loop that ends by itself is answered stays as it was.
ORDINARY = """
import torch
from _gpucast import loops
loops._FEW, loops._MANY = 20, 200

x = torch.randn(1000, device="cuda")

def rejected(limit):
    while (x > limit).all():  # ends at its first answer
        return False
    return True

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = 0
while batches < 60:  # steps
    loss = model(torch.randn(4, 8, device="cuda")).sum()
    if torch.isnan(loss) or loss > 10:
        raise RuntimeError("loss")
    if batches < 2:
        loss.backward()
        optimizer.step()
    else:
        loops.stepped()
    batches += 1

for batch in range(150):  # a loop over batches that are on the card
    if torch.isnan(model(x[:8])).any():
        raise RuntimeError("nan")

batches = iter(range(60))
while True:  # data from the host
    if next(batches, None) is None:
        break
    if torch.isnan(model(torch.randn(8).cuda())).any():
        raise RuntimeError("nan")

text, length = torch.zeros(2, 1, dtype=torch.long, device="cuda"), 0
while length < 2000:  # a text that grows, and is over where each line is
    following = model(torch.randn(2, 8, device="cuda")).argmax(-1, keepdim=True)
    text = torch.cat([text, following.repeat(1, 40)], dim=1)
    length += 40
    if torch.equal(following, text[:, :1]):
        raise RuntimeError("the text is over")

for limit in range(100):
    if rejected(limit) != rejected(limit):
        raise RuntimeError("another answer")
print("ordinary=1")
"""


def warnings(run, code="loop_ended"):
    return [warning["message"] for warning in run.report["warnings"] if warning["code"] == code]


@pytest.mark.parametrize("values", ["auto", "on", "off"])
def test_loops_end(gpucast, values):
    run = gpucast(ENDLESS + train_script(), *([] if values == "auto" else ["--values", values]), timeout=100)
    assert run.code == 0, run.err
    assert run.printed("ended") == 1 and run.report["steps"] == 3
    assert all("train.py:" in one for one in warnings(run)) and len(warnings(run)) >= 8


@pytest.mark.parametrize("values", ["auto", "on"])
def test_ordinary_loops_stay(gpucast, values):
    run = gpucast(ORDINARY + train_script(), *([] if values == "auto" else ["--values", values]), timeout=100)
    assert run.code == 0, run.err
    assert run.printed("ordinary") == 1 and warnings(run) == []
