"""Training over several ranks, started like torchrun: each rank's peaks equal its own counters, and its share equals arithmetic.

GPUCAST_RANKS=2,4,8 tries other numbers of ranks, and more kinds.
"""

import os
import re
import sys

import pytest
from conftest import LAUNCH_RANKS

BLOCKS, WIDTH = 4, 512
KINDS = [pytest.param("fsdp1", marks=pytest.mark.slow), "fsdp2", "tp"]
COUNTS = [int(count) for count in os.environ.get("GPUCAST_RANKS", "2").split(",")]
if COUNTS != [2]:
    KINDS += ["ddp-view", "ddp-static", "hsdp"]
PARAMETERS = BLOCKS * (2 * 4 * WIDTH * WIDTH + 4 * WIDTH + WIDTH)  # two linear layers a block, and their biases

SCRIPT = """
import functools, os, sys
import torch
import torch.distributed as dist
from torch import nn

kind = sys.argv[1]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(BLOCKS)])
if kind == "fsdp1":
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=100_000)
    model = FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.cuda.current_device())
else:
    model = model.cuda()
if kind.startswith("ddp"):
    model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=kind == "ddp-view", static_graph=kind == "ddp-static")
elif kind in ("fsdp2", "hsdp"):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    shape = (world // 2, 2) if kind == "hsdp" else (world,)
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard")[-len(shape):])
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
elif kind == "tp":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cuda", (world,))
    for block in model:
        parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 64, WIDTH, device="cuda")).sum().backward()
    optimizer.step()
print(f"@{rank}={torch.cuda.max_memory_allocated()},{torch.cuda.max_memory_reserved()}", flush=True)
dist.destroy_process_group()
""".replace("WIDTH", str(WIDTH)).replace("BLOCKS", str(BLOCKS))


def share(kind, ranks):
    """A rank's parameters, in elements. Tensor parallelism keeps the second layers' biases whole."""
    if kind.startswith("ddp"):
        return PARAMETERS
    if kind == "tp":
        return (PARAMETERS - BLOCKS * WIDTH) // ranks + BLOCKS * WIDTH
    return PARAMETERS // (2 if kind == "hsdp" else ranks)


@pytest.mark.once
@pytest.mark.parametrize("ranks", COUNTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_rank_is_its_own_counters(gpucast, kind, ranks):
    (gpucast.job / "launch.py").write_text(LAUNCH_RANKS)
    command = [sys.executable, "launch.py", str(ranks), "torch._dynamo", "train.py", kind]
    run = gpucast(SCRIPT, "--steps", "4", command=command, timeout=60 + 30 * ranks)
    assert run.code == 0, run.err
    own = {int(rank): (int(allocated), int(reserved)) for rank, allocated, reserved in re.findall(r"@(\d+)=(\d+),(\d+)", run.err)}
    assert {rank["rank"]: (rank["allocated_bytes"], rank["reserved_bytes"]) for rank in run.report["ranks"]} == own
    assert len(own) == ranks
    if kind != "fsdp1":  # flat parameters, padded
        categories = {category["name"]: category["bytes"] for category in run.report["categories"]}
        assert categories["parameters"] == 4 * share(kind, ranks) and categories["optimizer_state"] >= 2 * categories["parameters"]
