"""One rank of a job over several: ranks.py KIND."""

import contextlib
import functools
import os
import sys

import counters  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

BLOCKS, WIDTH = 4, 512
kind = sys.argv[1]
world, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl")


def block():
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))


def train(model, step=None):
    optimizer = torch.optim.AdamW(model.parameters())
    if kind == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
    for _ in range(3):
        optimizer.zero_grad()
        step() if step else model(torch.randn(4, 64, WIDTH, device="cuda")).square().mean().backward()
        optimizer.step()


def pipeline():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    part = nn.Sequential(*[block() for _ in range(BLOCKS // world)]).cuda()
    stage = PipelineStage(part, dist.get_rank(), world, torch.device("cuda", local))
    schedule = Schedule1F1B(stage, n_microbatches=2 * world, loss_fn=lambda output, target: (output - target).square().mean())

    def step():
        x = torch.randn(2 * world, 64, WIDTH, device="cuda")
        if dist.get_rank() == 0:
            schedule.step(x)
        else:
            schedule.step(target=x) if dist.get_rank() == world - 1 else schedule.step()

    train(part, step)


def accumulating():
    """Three of four micro-batches without communication; gradients are views of DDP's buckets."""
    model = nn.Sequential(*[block() for _ in range(BLOCKS)])
    model = nn.parallel.DistributedDataParallel(model.cuda(), gradient_as_bucket_view=True)

    def step():
        for micro_batch in range(4):
            with model.no_sync() if micro_batch < 3 else contextlib.nullcontext():
                (model(torch.randn(4, 64, WIDTH, device="cuda")).square().mean() / 4).backward()

    train(model, step)


def context_parallel():
    from torch.distributed.tensor.experimental import context_parallel
    from torch.nn.functional import scaled_dot_product_attention

    mesh = init_device_mesh("cuda", (world,))
    project = nn.Linear(WIDTH, 3 * WIDTH).cuda()
    dist.broadcast(project.weight.data, 0)
    x = torch.randn(2, 1024, WIDTH, device="cuda", dtype=torch.bfloat16)

    def step():
        with torch.autocast("cuda", torch.bfloat16), context_parallel(mesh, buffers=(x,), buffer_seq_dims=(1,), no_restore_buffers=set()):
            q, k, v = (y.unflatten(-1, (8, -1)).transpose(1, 2) for y in project(x).chunk(3, -1))
            scaled_dot_product_attention(q, k, v, is_causal=True).square().mean().backward()

    train(project, step)


if kind == "pp":
    pipeline()
elif kind == "cp":
    context_parallel()
elif kind == "no_sync":
    accumulating()
else:
    model = nn.Sequential(*[block() for _ in range(BLOCKS)])
    if kind == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

        policy = functools.partial(size_based_auto_wrap_policy, min_num_params=100_000)
        model = FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.cuda.current_device())
    elif kind in ("fsdp2", "hsdp"):
        from torch.distributed.fsdp import fully_shard

        shape = (world // 2, 2) if kind == "hsdp" else (world,)
        mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
        for part in model:
            fully_shard(part, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif kind == "tp":
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        model = model.cuda()
        for part in model:
            parallelize_module(part, init_device_mesh("cuda", (world,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    else:
        model = nn.parallel.DistributedDataParallel(model.cuda())
    train(model)
dist.destroy_process_group()
