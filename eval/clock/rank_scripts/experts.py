"""Experts on all ranks: tokens go to them and come back (all_to_all)."""

import torch
from measure_ranks import begin, measure
from torch.distributed.nn.functional import all_to_all_single

_, world = begin()
experts = [torch.nn.Sequential(torch.nn.Linear(2048, 8192), torch.nn.ReLU(), torch.nn.Linear(8192, 2048)) for _ in range(4)]
model = torch.nn.ModuleList(experts).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(16384, 2048, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def exchanged(tokens):
    return all_to_all_single(torch.empty_like(tokens), tokens.contiguous())


def step():
    optimizer.zero_grad()
    tokens = x
    for expert in model:
        tokens = exchanged(expert(exchanged(tokens)))
    tokens.float().square().mean().backward()
    optimizer.step()


measure(step)
