"""The what-if `fsdp`: each rank's memory is that of a script written with fully_shard, to the byte."""

import pytest
from test_run_what_if import edited, history

pytestmark = pytest.mark.once

SCRIPT = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 256)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True) for _ in range(3))
        self.head = nn.Linear(256, 1000)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank, ranks = dist.get_rank(), dist.get_world_size()
model = Net().cuda()
model = DistributedDataParallel(model, device_ids=[rank])
assert len(model.module.blocks) == 3 and all(name.startswith("module.") for name in model.state_dict())
optimizer = torch.optim.AdamW(model.parameters())


def compute_gradients():
    model(torch.zeros(4 + 4 * rank, 64, dtype=torch.long, device="cuda")).sum().backward()


for step in range(4):
    optimizer.zero_grad()
    with model.no_sync():
        compute_gradients()
    compute_gradients()
    optimizer.step()
"""

WRAPPED = "model = DistributedDataParallel(model, device_ids=[rank])\n"
OPTIMIZER = "optimizer = torch.optim.AdamW(model.parameters())\n"
BY_HAND = [
    (WRAPPED, "for block in model.blocks:\n    fully_shard(block, mesh=mesh)\nfully_shard(model, mesh=mesh)\n"),
    ('assert len(model.module.blocks) == 3 and all(name.startswith("module.") for name in model.state_dict())\n', ""),
    (
        "    with model.no_sync():\n        compute_gradients()\n    compute_gradients()\n",
        "    model.set_requires_gradient_sync(False)\n    compute_gradients()\n    model.set_requires_gradient_sync(True)\n    compute_gradients()\n",
    ),
]
TWO_RANKS = ("--world-size", "2", "--ranks", "0,1")


def by_hand(mesh):
    return edited([*BY_HAND, ("model = Net().cuda()\n", f"model = Net().cuda()\nmesh = {mesh}\n")], SCRIPT)


def peaks(done):
    assert done.code == 0, done.err
    return [(rank["rank"], rank["allocated_bytes"], rank["reserved_bytes"]) for rank in done.report["ranks"]]


@pytest.mark.slow
def test_is_a_script_with_fully_shard(gpucast):
    done = gpucast(SCRIPT, *TWO_RANKS, "--what-if", "fsdp")
    (what_if,) = done.report["what_if"]
    assert what_if["acted"] and what_if["did"].startswith("3 TransformerEncoderLayer, Net sharded over 2 of 2 ranks by fully_shard")
    hand = gpucast(by_hand('init_device_mesh("cuda", (2,))'), *TWO_RANKS)
    assert peaks(done) == peaks(hand)
    assert peaks(done)[0][1] < peaks(done)[1][1], "rank 1 has the larger batch"
    assert history(done) == history(hand)
    first = edited([(OPTIMIZER, ""), ("model = Net().cuda()\n", f"model = Net().cuda()\n{OPTIMIZER}")], SCRIPT)
    assert peaks(gpucast(first, *TWO_RANKS, "--what-if", "fsdp")) == peaks(hand), "the optimizer gets the new parameters"


@pytest.mark.slow
def test_groups_of_ranks_hold_the_model_together(gpucast):
    one_of_four = ("--world-size", "4", "--ranks", "0")
    done = gpucast(SCRIPT, *one_of_four, "--what-if", "fsdp:2")
    hand = gpucast(by_hand('init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))'), *one_of_four)
    assert done.code == hand.code == 0, done.err + hand.err
    assert history(done) == history(hand)
    assert "sharded over 2 of 4 ranks" in done.report["what_if"][0]["did"]


STEPPED = f"{OPTIMIZER}model(torch.zeros(4, 64, dtype=torch.long, device='cuda')).sum().backward()\noptimizer.step()\n"


@pytest.mark.parametrize(
    ("pairs", "ranks", "name", "why"),
    [
        ([], 4, "fsdp:3", "the job has 4 ranks, which 3 does not divide"),
        ([], 1, "fsdp", "the job has one rank"),
        (
            [(OPTIMIZER, ""), ("model = Net().cuda()\n", f"model = Net().cuda()\n{STEPPED}")],
            4,
            "fsdp",
            "an optimizer has state of the model's parameters before DistributedDataParallel is made",
        ),
    ],
)
def test_what_it_cannot_shard_stays(gpucast, pairs, ranks, name, why):
    done = gpucast(edited(pairs, SCRIPT), "--world-size", str(ranks), "--what-if", name)
    assert done.code == 0, done.err
    assert done.report["what_if"] == [{"name": name, "acted": False, "did": why}]
