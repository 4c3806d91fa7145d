"""`--world-size N --ranks R`: some ranks of a job run, the others are imagined."""

import re
import sys
from pathlib import Path

import pytest
from conftest import train_script

TRAIN = """
import os, sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)) for _ in range(3))).cuda()
shards = init_device_mesh("cuda", (2, world // 2), mesh_dim_names=("replicas", "shards"))
try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    from torch.distributed._composable.fsdp import fully_shard
for block in model:
    fully_shard(block, mesh=shards)
fully_shard(model, mesh=shards)
optimizer = torch.optim.AdamW(model.parameters())
sizes = [None] * world
dist.all_gather_object(sizes, rank + 1)
for step in range(3):
    model(torch.randn(64, 512, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    if step == 2:
        dist.barrier()
peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
os.write(1, f"\\nrank{rank}={peaks[0]}\\nreserved{rank}={peaks[1]}\\nsum{rank}={sum(sizes)}\\n".encode())  # in one write, because other ranks write too
"""


@pytest.mark.slow
@pytest.mark.once
def test_imagined_ranks_are_like_real_ones(gpucast, leaves_nothing):
    torchrun = str(Path(sys.executable).parent / "torchrun")
    real = gpucast(TRAIN, "--steps", "4", command=[torchrun, "--nproc-per-node", "4", "train.py"], timeout=200)
    assert real.code == 0, real.err
    for ranks in ("1,3",):
        run = gpucast(TRAIN, "--steps", "4", "--world-size", "4", "--ranks", ranks, timeout=120)
        assert run.code == 0, run.err
        chosen = [int(rank) for rank in ranks.split(",")]
        for rank in chosen:
            for what in ("rank", "reserved"):
                assert run.printed(f"{what}{rank}") == real.printed(f"{what}{rank}")
        # The others hold the same as the first rank that runs.
        assert run.printed(f"sum{chosen[0]}") == sum(rank + 1 for rank in chosen) + (4 - len(chosen)) * (chosen[0] + 1)
        assert {int(rank) for rank in re.findall(r"^rank(\d)=", run.err, re.MULTILINE)} == set(chosen)
        assert run.report["environment"]["world_size"] == 4 and run.report["environment"]["rank"] in chosen
    # The second of two nodes: torchrun waits for no other.
    nodes = ["--nnodes", "2", "--node-rank", "1", "--nproc-per-node", "2", "--master-addr", "node0.example", "--master-port", "29599"]
    run = gpucast(TRAIN, "--steps", "4", command=[torchrun, *nodes, "train.py"], timeout=120)
    assert run.code == 0, run.err
    for rank in (2, 3):
        assert [run.printed(f"{what}{rank}") for what in ("rank", "reserved")] == [
            real.printed(f"{what}{rank}") for what in ("rank", "reserved")
        ]
    assert run.printed("sum2") == 3 + 4 + 2 * 3 and run.report["environment"]["world_size"] == 4


@pytest.mark.once
def test_a_thousand_ranks(gpucast):
    run = gpucast(TRAIN, "--steps", "4", "--world-size", "1000", "--ranks", "998", timeout=120)
    assert run.code == 0, run.err
    assert run.report["environment"]["world_size"] == 1000 and run.printed("sum998") == 999 * 1000


@pytest.mark.slow
@pytest.mark.once
def test_a_rank_that_comes_late(gpucast):
    """Megatron's first rank compiles while the others wait; and a group whose first rank is simulated waits for nobody."""
    script = """
import os, time, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
pair, others = dist.new_group([0, 2]), dist.new_group([1, 2, 3])
if dist.get_rank() == 0:
    time.sleep(3)
dist.barrier()
x = torch.ones(1, device="cuda")
dist.all_reduce(x, group=pair)
if dist.get_rank() == 0:
    time.sleep(3)
    dist.send(x, 2)
else:
    dist.all_reduce(torch.ones(1, device="cuda"), group=others)
    dist.recv(x, 0)
torch.cuda.synchronize()
"""
    run = gpucast(script + train_script(), "--world-size", "4", "--ranks", "0,2", timeout=60)
    assert run.code == 0, run.err


def test_a_second_group_of_gloo(gpucast):
    """Megatron makes one beside each data-parallel group, for its checkpoints."""
    script = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl")
group = dist.new_group([0, 2, 4], backend="gloo")
got = [torch.zeros(1) for _ in range(3)]
dist.all_gather(got, torch.full((1,), 7.0), group=group)
dist.barrier(group)
print("size=%d" % dist.get_world_size(group), "sum=%d" % sum(got), "kind=%d" % (dist.get_backend(group) == "gloo"), sep="\\n")
"""
    run = gpucast(script + train_script(), "--world-size", "8")
    assert run.code == 0, run.err
    assert (run.printed("size"), run.printed("sum"), run.printed("kind")) == (3, 21, 1)


@pytest.mark.once
def test_an_object_of_an_imagined_rank(gpucast):
    script = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl")
got = [dist.get_rank()]
dist.broadcast_object_list(got, src=0)
print("got=%d" % got[0])
"""
    run = gpucast(script + train_script(), "--world-size", "4", "--ranks", "2", "--gpus", "2")
    assert run.code == 0, run.err
    assert run.printed("got") == 2
    assert [one["code"] for one in run.report["warnings"]].count("rank_imagined") == 1


@pytest.mark.once
def test_what_cannot_be(gpucast):
    run = gpucast("", "--world-size", "4", "--ranks", "0,4")
    assert run.code == 2 and "'4' is none of 4 ranks" in run.err
    run = gpucast("", "--ranks", "1")
    assert run.code == 2 and "--world-size" in run.err
    run = gpucast("import torch\ntorch.distributed.init_process_group('gloo')\n", "--world-size", "4")
    assert run.code == 2 and "gloo connects every rank" in run.err


GROUPS = """
import os, sys, torch, torch.distributed as dist
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", **({"device_id": device} if sys.argv[1:] == ["eager"] else {}))
rank, world = dist.get_rank(), dist.get_world_size()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda(), device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), 0.1)
halves = [dist.new_group(list(range(i, world, 2))) for i in range(2)]
for step in range(3):
    model(torch.randn(4, 64, device=device)).sum().backward()
    dist.all_reduce(torch.ones(8, device=device), group=halves[rank % 2])
    dist.send(torch.ones(8, device=device), rank ^ 1) if rank % 2 == 0 else dist.recv(torch.ones(8, device=device), rank ^ 1)
    optimizer.step()
"""


@pytest.mark.once
@pytest.mark.parametrize(("start", "ranks"), [pytest.param("lazy", "2,3", marks=pytest.mark.slow), ("eager", "2,3")])
def test_a_capture_says_which_ranks_a_communicator_connects(gpucast, start, ranks):
    run = gpucast(GROUPS, "--world-size", "6", "--ranks", ranks, command=[sys.executable, "train.py", start], timeout=120)
    assert run.code == 0, run.err
    (communicators,) = run.capture.all("communicators")
    assert communicators["node_ranks"] == 6
    found = sorted(group["ranks"] for group in communicators["groups"])
    assert found[:2] == [[0, 1, 2, 3, 4, 5], [0, 2, 4]]
    assert start == "eager" or found[2:] == [[2, 3]]
