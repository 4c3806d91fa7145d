"""DDP in processes that mp.spawn starts: one for each device."""

import os
import sys

import counters
import torch
import torch.distributed as dist
from torch import multiprocessing as mp
from torch import nn


def work(rank, world):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ.get("MASTER_PORT", "29533")}
    dist.init_process_group("nccl", rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda(), device_ids=[rank]
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(32, 256, device=rank)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
    counters.say(rank)


if __name__ == "__main__":
    mp.spawn(work, (torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
    sys.exit(0)
