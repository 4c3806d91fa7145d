"""A training loop of one's own over eight ranks, as nanotron's: tensor parallel layers inside of pipeline stages, micro-batches that
accumulate, and an optimizer sharded over the replicas (ZeRO 1). Groups have no names."""

import os

import counters  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn

WIDTH, LAYERS, MICRO_BATCHES, TENSOR, PIPELINE = 512, 4, 4, 2, 2
SHAPE = (2, 128, WIDTH)  # of a micro-batch
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
grid = torch.arange(world).view(PIPELINE, -1, TENSOR)  # pipeline, data, tensor
stage = rank // (world // PIPELINE)


def my_group(lists):
    groups = [(ranks, dist.new_group(ranks)) for ranks in lists.tolist()]
    return next((ranks, group) for ranks, group in groups if rank in ranks)


_, tensor = my_group(grid.reshape(-1, TENSOR))
replicas, data = my_group(grid.transpose(1, 2).reshape(-1, world // PIPELINE // TENSOR))
stages, pipeline = my_group(grid.permute(1, 2, 0).reshape(-1, PIPELINE))


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x.view_as(x)

    @staticmethod
    def backward(_, gradient):
        dist.all_reduce(gradient, group=tensor)
        return gradient


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        dist.all_reduce(x, group=tensor)
        return x.view_as(x)

    @staticmethod
    def backward(_, gradient):
        return gradient


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH // TENSOR, bias=False)
        self.down = nn.Linear(4 * WIDTH // TENSOR, WIDTH, bias=False)

    def forward(self, x):
        return x + Gather.apply(self.down(nn.functional.gelu(self.up(Scatter.apply(x)))))


def move(kind, values, to):
    for work in dist.batch_isend_irecv([dist.P2POp(kind, values, to, pipeline)]):
        work.wait()
    return values


model = nn.Sequential(*[Block() for _ in range(LAYERS // PIPELINE)]).cuda().bfloat16()
flat = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
sums = torch.zeros(flat.numel(), device="cuda")
place = 0
for parameter in model.parameters():
    parameter.data = flat[place : place + parameter.numel()].view_as(parameter)
    parameter.sum = sums[place : place + parameter.numel()].view_as(parameter)
    place += parameter.numel()
shard = nn.Parameter(flat.chunk(len(replicas))[replicas.index(rank)].float())
optimizer = torch.optim.AdamW([shard])


def forward():
    before = torch.empty(SHAPE, device="cuda", dtype=torch.bfloat16)
    x = torch.randn_like(before) if stage == 0 else move(dist.irecv, before, stages[stage - 1])
    x.requires_grad_(stage > 0)
    y = model(x)
    if stage == PIPELINE - 1:
        return x, y.float().square().mean() / MICRO_BATCHES
    move(dist.isend, y.detach(), stages[stage + 1])
    return x, y


def backward(x, y):
    gradient = None if stage == PIPELINE - 1 else move(dist.irecv, torch.empty_like(y), stages[stage + 1])
    y.backward(gradient)
    if stage > 0:
        move(dist.isend, x.grad, stages[stage - 1])
    for parameter in model.parameters():
        parameter.sum += parameter.grad
        parameter.grad = None


for _ in range(5):
    for pair in [forward() for _ in range(MICRO_BATCHES)]:
        backward(*pair)
    shard.grad = torch.empty_like(shard)
    dist.reduce_scatter_tensor(shard.grad, sums, group=data)
    optimizer.step()
    dist.all_gather_into_tensor(flat, shard.detach().bfloat16(), group=data)
    sums.zero_()
dist.destroy_process_group()
