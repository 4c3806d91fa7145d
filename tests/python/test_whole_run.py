"""`gpucast time --run`: a whole training from a run with fewer batches."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

epochs, every = int(sys.argv[1]), int(sys.argv[2])
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train = DataLoader(TensorDataset(torch.randn(40_000, 64), torch.randint(8, (40_000,))), batch_size=100, shuffle=True)
test = DataLoader(TensorDataset(torch.randn(3_000, 64), torch.randint(8, (3_000,))), batch_size=100)

def evaluate():
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in test:
            right += (model(x.cuda()).argmax(1) == y.cuda()).sum().item()
    model.train()

for epoch in range(epochs):
    for number, (x, y) in enumerate(train, 1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
        if every and number % every == 0:
            evaluate()
    if not every:
        evaluate()
    torch.save({"model": model.state_dict()}, "checkpoint.pt")
print("trained")
"""
WITHOUT_LOADER = """
import torch
from torch import nn

model = nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    model(torch.randn(16, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def whole_run(gpucast_bin, tmp_path):
    def start(script, *arguments, options=(), seconds=None):
        (tmp_path / "train.py").write_text(textwrap.dedent(script))
        command = [gpucast_bin, "time", "--run", "--gpu", "a100-80", "--format", "json", *options, "--", sys.executable, "train.py"]
        environment = os.environ | ({"GPUCAST_RUN_S": str(seconds)} if seconds is not None else {})
        done = subprocess.run([*command, *map(str, arguments)], cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done, json.loads(done.stdout)["run"] if done.returncode == 0 else None

    return start


def parts(run):
    return {part["name"]: part for part in run["parts"]}


def test_epochs_and_evaluations_are_counted(whole_run, tmp_path):
    done, run = whole_run(SCRIPT, 3, 0)
    assert done.returncode == 0, done.stderr
    assert "trained" in done.stderr and not (tmp_path / "checkpoint.pt").exists()
    assert (run["steps"], run["epochs"], run["complete"]) == (1200, 3, True)
    assert parts(run)["evaluation"]["count"] == 3 * 30
    assert parts(run)["checkpoints"]["count"] == 3
    assert run["wall_ns"]["expected"] == pytest.approx(sum(part["ns"] for part in run["parts"]))
    assert run["wall_ns"]["low"] < run["wall_ns"]["expected"] < run["wall_ns"]["high"]


@pytest.mark.once
def test_a_shortened_run_counts_as_the_whole_one(whole_run):
    """Passes end after 12 batches, later ones after 3; the counts are those of the script."""
    done, run = whole_run(SCRIPT, 6, 0, seconds=0)
    assert done.returncode == 0, done.stderr
    assert (run["steps"], run["epochs"]) == (2400, 6)
    assert parts(run)["evaluation"]["count"] == 6 * 30


AHEAD = """
def ahead(loader):
    batches = iter(loader)
    now = next(batches)
    for following in batches:
        yield now
        now = following
    yield now
"""


@pytest.mark.once
def test_a_loop_that_is_one_batch_ahead(whole_run):
    """As accelerate's and the Trainer's: the last step of a pass comes after its end."""
    done, run = whole_run(AHEAD + SCRIPT.replace("enumerate(train, 1)", "enumerate(ahead(train), 1)"), 3, 0, seconds=0)
    assert done.returncode == 0, done.stderr
    assert run["steps"] == 1200
    assert parts(run)["checkpoints"]["count"] == 3


@pytest.mark.once
def test_evaluations_inside_a_pass_come_again(whole_run):
    done, run = whole_run(SCRIPT, 2, 5, seconds=0)
    assert done.returncode == 0, done.stderr
    assert run["steps"] == 800
    assert parts(run)["evaluation"]["count"] == 2 * 80 * 30  # every 5 of 400 batches


@pytest.mark.once
@pytest.mark.parametrize(("option", "steps"), [(("--epochs", "30"), 12_000), (("--steps-total", "1000"), 1000)])
def test_the_users_own_length(whole_run, option, steps):
    done, run = whole_run(SCRIPT, 3, 0, options=option)
    assert done.returncode == 0, done.stderr
    assert run["steps"] == steps
    assert parts(run)["evaluation"]["count"] == pytest.approx(steps / 400 * 30)


@pytest.mark.once
def test_a_script_without_a_loader(whole_run):
    done, run = whole_run(WITHOUT_LOADER, options=("--steps-total", "100000"))
    assert done.returncode == 0, done.stderr
    assert (run["steps"], run["complete"]) == (100_000, True)
    done, run = whole_run(WITHOUT_LOADER)
    assert run["steps"] == 50


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--run", "--", "torchrun", "--nproc-per-node", "2", "train.py"), "for a training on one card"),
        (("--epochs", "3", "--", "true"), "add --run"),
        (("--run", "--epochs", "3", "--steps-total", "4", "--", "true"), "give one of them"),
        (("--run", "x.gpucast"), "this is a capture"),
    ],
)
def test_what_cannot_be_asked(gpucast_bin, tmp_path, options, message):
    (tmp_path / "x.gpucast").write_bytes(b"")
    done = subprocess.run([gpucast_bin, "time", *options], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and message in done.stderr, done.stderr


@pytest.mark.once
def test_workers_of_a_loader_leave_no_record(whole_run):
    done, run = whole_run(SCRIPT.replace("shuffle=True)", "shuffle=True, num_workers=2)"), 2, 0, seconds=0)
    assert done.returncode == 0, done.stderr
    assert run["steps"] == 800


LOSS_OF_A_FEW = """
def loss_of(loader, most):
    total = 0
    with torch.no_grad():
        for number, (x, y) in enumerate(loader):
            if number == most:
                break
            total += nn.functional.cross_entropy(model(x.cuda()), y.cuda()).item()
    return total
"""


@pytest.mark.once
def test_a_loop_that_is_left_over_the_loader_that_trains(whole_run):
    """Every 50 batches the script looks at the loss of 5 batches, also of those that it trains with."""
    few = SCRIPT.replace("for epoch in", LOSS_OF_A_FEW + "for epoch in", 1).replace(
        "            evaluate()", "            loss_of(train, 5), loss_of(test, 5)", 1
    )
    done, run = whole_run(few, 2, 50)
    assert done.returncode == 0, done.stderr
    assert run["steps"] == 800
    assert parts(run)["evaluation"]["count"] == pytest.approx(2 * 8 * 2 * 6)  # the sixth batch ends the loop
