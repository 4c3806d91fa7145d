"""Tensor parallel layers: an all-reduce after each block, which the next one needs at once."""

import torch
from measure_ranks import begin, measure
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

_, world = begin()
blocks = [torch.nn.Sequential(torch.nn.Linear(4096, 16384), torch.nn.GELU(), torch.nn.Linear(16384, 4096)) for _ in range(4)]
model = torch.nn.Sequential(*blocks).cuda().bfloat16()
mesh = init_device_mesh("cuda", (world,))
for block in model:
    parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x = torch.randn(16384, 4096, device="cuda", dtype=torch.bfloat16)


def step():
    optimizer.zero_grad()
    model(x).float().square().mean().backward()
    optimizer.step()


measure(step)
