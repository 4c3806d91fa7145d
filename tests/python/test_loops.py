"""Loops that read from the card until they get the right answer end. Loops with an end of their own are not changed."""

import pytest
from conftest import train_script

# With lower limits than in earnest.
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

# Loops with an end of their own: their answers stay the same.
ORDINARY = """
import torch
from _gpucast import loops
loops._FEW, loops._MANY = 20, 200

x = torch.randn(1000, device="cuda")

def rejected(limit):
    rounds = 0
    while torch.equal(x, x * limit):  # ends at its first answer
        rounds += 1
    return rounds

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

history, length = torch.zeros(8, 1, device="cuda"), 0
while length < 60:  # what grows, and ends at its length
    out = model(torch.randn(8, 8, device="cuda")).detach()
    history = torch.cat([history, out.repeat(1, 20)], dim=1)
    length += 1
    if torch.equal(out, history[:, :8]):
        raise RuntimeError("the same")

chosen = torch.randn(4096, 64, device="cuda").topk(4, dim=-1).indices
for expert in range(300):  # each expert has another number of tokens
    if len(torch.where(chosen == expert % 64)[0]) == 0:
        raise RuntimeError("no tokens")

for limit in range(80):
    if rejected(limit) != rejected(limit):
        raise RuntimeError("another answer")
print("ordinary=1")
"""


# torch.nn.init.trunc_normal_ of 2.12 and later draws again what lies outside the bounds, for the rounds that a card needs in most runs; before,
# it draws once. The card's generator counts 4 on for each round of a thousand numbers.
TRUNCATED = """
import torch
from torch import nn

def draw(**how):
    weight, counters = nn.Parameter(torch.empty(1000, device="cuda")), []
    for _ in range(2):
        generator, allocated = torch.cuda.get_rng_state()[8:].view(torch.int64).item(), torch.cuda.memory_stats()["allocation.all.allocated"]
        assert nn.init.trunc_normal_(weight, **how) is weight
        counters = [torch.cuda.get_rng_state()[8:].view(torch.int64).item() - generator,
                    torch.cuda.memory_stats()["allocation.all.allocated"] - allocated]
    return counters

torch.manual_seed(0)
host = torch.get_rng_state()
again = torch.__version__ >= "2.12" or not torch.__version__.startswith("2.")
ROUND, AGAIN = 4, 2  # tensors: two comparisons, both, any; numbers and the choice of them
assert draw(std=0.02) == ([4, ROUND] if again else [4, 0]), draw(std=0.02)
assert draw() == ([12, 3 * ROUND + 2 * AGAIN] if again else [4, 0]), draw()  # 1 in 22 lies outside
tight = draw(a=-0.1, b=0.1)  # drawn evenly, and accepted by another number: 998 of 1,000
assert tight[0] == (16 if again else 4), tight
assert torch.equal(host, torch.get_rng_state())

from torchvision.models import SwinTransformer, VisionTransformer
with torch.device("cuda"):
    vit = VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=10)
    swin = SwinTransformer(patch_size=[4, 4], embed_dim=16, depths=[1, 1], num_heads=[1, 2], window_size=[4, 4], num_classes=10)
    images = torch.randn(2, 3, 32, 32)
optimizer = torch.optim.SGD([*vit.parameters(), *swin.parameters()], lr=0.1)
for step in range(4):
    (vit(images).sum() + swin(images).sum()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def warnings(run, code="loop_ended"):
    return [warning["message"] for warning in run.report["warnings"] if warning["code"] == code]


# The run starts again here, with values followed; what is counted is known.
FOLLOWED = """
import torch
torch.arange(3, device="cuda").nonzero()
"""


def ends(run):
    assert run.code == 0, run.err
    assert run.printed("ended") == 1 and run.report["steps"] == 3
    assert all("train.py:" in one for one in warnings(run)) and len(warnings(run)) >= 8


@pytest.mark.parametrize("before", ["", FOLLOWED], ids=["first", "followed"])
def test_loops_end(gpucast, before):
    ends(gpucast(before + ENDLESS + train_script()))


@pytest.mark.once
def test_loops_end_where_values_are_not_followed(gpucast):
    ends(gpucast(ENDLESS + train_script(), "--values", "off"))


@pytest.mark.once
@pytest.mark.parametrize("before", ["", FOLLOWED], ids=["first", "followed"])
def test_ordinary_loops_stay(gpucast, before):
    run = gpucast(before + ORDINARY + train_script())
    assert run.code == 0, run.err
    assert run.printed("ordinary") == 1 and warnings(run) == []


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", FOLLOWED], ids=["first", "followed"])
def test_truncated_normal_is_known(gpucast, before):
    run = gpucast(before + TRUNCATED)
    assert run.code == 0, run.err
    assert run.report["steps"] == 3 and warnings(run) == warnings(run, "value_assumed") == []
