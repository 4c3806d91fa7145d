"""How far a run goes (--steps auto, --until-end), its warnings on the parts it did not reach, and copies of parameters."""

import re
import sys

import pytest
from conftest import LAUNCH_RANKS

# 20 batches an epoch, then an evaluation with larger batches than training.
EPOCHS = """
import copy, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def data(count):
    return TensorDataset(torch.randn(count, 256), torch.randint(0, 10, (count,)))

train, test = DataLoader(data(20 * 32), batch_size=32), DataLoader(data(16384), batch_size=16384)
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(EPOCHS):
    model.train()
    for x, y in train:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for x, y in test:
            (model(x.cuda()).argmax(1) == y.cuda()).sum()
print("peak=%d" % torch.cuda.max_memory_allocated())
"""

# 1 MiB of parameters four times over, in addition to the trained ones; a frozen layer with a trained layer's shapes.
COPIES = """
import copy, torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen, self.one, self.other = (nn.Linear(512, 512, bias=False) for _ in range(3))
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.other(self.one(self.frozen(x)))

class Average:
    def __init__(self, parameters):
        self.shadows = [parameter.detach().clone() for parameter in parameters]

model = Net().cuda()
trained = [model.one.weight, model.other.weight]
averages = [AveragedModel(model), copy.deepcopy(model).eval(), Average(trained), copy.deepcopy(model.state_dict())]
optimizer = torch.optim.Adam(trained)
for step in range(3):
    x = torch.randn(8, 512).cuda()
    with torch.no_grad():
        teacher = averages[1](x)
    (model(x) - teacher).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def warned(run, code):
    return [warning["message"] for warning in run.report["warnings"] if warning["code"] == code]


def test_three_steps_say_what_they_do_not_reach(gpucast):
    run = gpucast(EPOCHS.replace("EPOCHS", "3"))
    assert run.report["steps"] == 3
    assert warned(run, "evaluation_not_covered")[0].startswith("the steps that ran do not reach batches of 16384 from a TensorDataset:")


@pytest.mark.once
def test_auto_goes_on_to_the_evaluation(gpucast):
    run = gpucast(EPOCHS.replace("EPOCHS", "3"), "--steps", "auto")
    whole = gpucast(EPOCHS.replace("EPOCHS", "3"), "--until-end")
    assert 20 < run.report["steps"] < 30
    assert run.report["end_reason"] == "steps"
    assert whole.report["steps"] == 60
    assert whole.report["end_reason"] == "script_end"
    assert run.report["peak"]["allocated_bytes"] == whole.report["peak"]["allocated_bytes"] == whole.printed("peak")
    assert run.report["peak"]["allocated_at"]["phase"] == "evaluation"
    assert not warned(run, "evaluation_not_covered")
    assert (run.report["steps_rule"], whole.report["steps_rule"]) == ("auto", "until-end")


@pytest.mark.once
def test_auto_without_an_evaluation(gpucast):
    script = """
import torch
model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(100):
    model(torch.randn(BATCH, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    alike = gpucast(script.replace("BATCH", "32"), "--steps", "auto")
    assert 4 <= alike.report["steps"] <= 6
    growing = gpucast(script.replace("BATCH", "1000 * min(step, 12)"), "--steps", "auto")
    assert 15 <= growing.report["steps"] <= 25
    always = gpucast(script.replace("BATCH", "1000 * step"), "--steps", "auto")
    assert always.report["steps"] == 60


@pytest.mark.once
@pytest.mark.parametrize(
    "waits",
    [pytest.param("dist.all_gather_object([None] * 2, step)", marks=pytest.mark.slow), "time.sleep(0.1 * rank)"],
    ids=["in step", "one is slow"],
)
def test_ranks_end_behind_the_same_step(gpucast, waits):
    script = """
import time, torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    model(torch.randn(1000 * min(step, 3 + 5 * rank), 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    WAITS
"""
    (gpucast.job / "launch.py").write_text(LAUNCH_RANKS)
    command = [sys.executable, "launch.py", "2", "torch._dynamo", "train.py"]
    run = gpucast(script.replace("WAITS", waits), "--steps", "auto", command=command)
    other = type(run.capture)(run.capture_path.with_suffix(".rank1.gpucast"))
    assert run.report["steps"] == run.capture.one("end")["optimizer_steps"] == other.one("end")["optimizer_steps"]
    assert other.one("end")["reason"] == "steps"
    if "gather" in waits:
        assert run.report["steps"] < 60


def test_copies_of_parameters(gpucast):
    run = gpucast(COPIES)
    sizes = {line["name"]: line["bytes"] for line in run.report["categories"]}
    # Two of three matrices in a list, all three in a module, its deep copy and a state's dict; n_averaged of AveragedModel.
    assert sizes["parameter_copies"] == (2 + 3 * 3) << 20
    assert sizes["parameters"] == 3 << 20
    assert "unattributed" not in sizes or sizes["unattributed"] <= 512


@pytest.mark.once
@pytest.mark.parametrize("word", ["0", "-1", "often", "3x", ""])
def test_bad_numbers_of_steps(gpucast, word):
    run = gpucast("print('never')", f"--steps={word}", fresh=True)
    assert run.code == 2
    assert re.search(r"--steps: '.*' is not a number above 0\n  to do: --steps 3, --steps auto, or --until-end", run.err)
    assert "never" not in run.err


@pytest.mark.once
def test_looking_for_copies_runs_nothing_of_the_script(gpucast):
    """FSDP gathers all shards in state_dict(), and a user's class may do anything."""
    script = COPIES.replace(
        "    def forward", "    def state_dict(self, *args, **kwargs):\n        raise SystemExit(3)\n\n    def forward", 1
    )
    script = script.replace(", copy.deepcopy(model.state_dict())", "").replace("AveragedModel(model)", "0")
    run = gpucast(script)
    assert run.report["end_reason"] == "steps"
    assert {line["name"]: line["bytes"] for line in run.report["categories"]}["parameter_copies"] == (2 + 3) << 20


LOOKS_FOR_ITS_BATCH = """
import gc, torch
from torch import nn

def train(batch):
    model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(4))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(10):
        model(torch.randn(batch, 4096, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

batch = BATCH
while batch:
    gc.collect()
    torch.cuda.empty_cache()
    try:
        train(batch)
        batch = 0
    except torch.cuda.OutOfMemoryError:
        batch //= 2
"""


def test_a_script_that_looks_for_its_batch(gpucast):
    """Like accelerate's find_executable_batch_size: the successful attempt counts."""
    looked = gpucast(LOOKS_FOR_ITS_BATCH.replace("BATCH", "1 << 18"), "--gpu", "rtx3060", "--enforce-capacity")
    found = gpucast(LOOKS_FOR_ITS_BATCH.replace("BATCH", "1 << 16"), "--gpu", "rtx3060", "--enforce-capacity")
    assert looked.report["peak"]["allocated_bytes"] == found.report["peak"]["allocated_bytes"]
    assert looked.report["peak"]["reserved_bytes"] == found.report["peak"]["reserved_bytes"]
    assert looked.report["verdict"] == found.report["verdict"] == "fits"
    assert looked.report["oom"]["count"] == 2
    assert "the peaks are those after the last failure" in warned(looked, "allocations_failed")[0]
