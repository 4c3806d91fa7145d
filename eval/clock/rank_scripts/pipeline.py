"""One stage a rank, 1F1B: each rank waits for its neighbours' messages."""

import torch
from measure_ranks import begin, measure
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

MICRO_BATCHES = 8
rank, world = begin()
stage = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(6)]).cuda()
pipeline = Schedule1F1B(
    PipelineStage(stage, rank, world, torch.device("cuda")), MICRO_BATCHES, loss_fn=lambda out, target: (out - target).square().mean()
)
optimizer = torch.optim.SGD(stage.parameters(), 0.1)
x = torch.zeros(MICRO_BATCHES * 1024, 4096, device="cuda")


def step():
    optimizer.zero_grad()
    if rank == 0:
        pipeline.step(x)
    elif rank == world - 1:
        pipeline.step(target=x)
    else:
        pipeline.step()
    optimizer.step()


measure(step)
