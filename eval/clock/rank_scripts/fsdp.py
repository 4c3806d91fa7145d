"""A transformer whose layers are sharded (FSDP2): parameters are gathered before each layer, gradients scattered after it."""

import torch
from measure_ranks import begin, measure
from torch.distributed.fsdp import fully_shard

begin()
layers = [torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0, batch_first=True) for _ in range(8)]
model = torch.nn.Sequential(*layers).cuda().bfloat16()
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(32, 512, 1024, device="cuda", dtype=torch.bfloat16)


def step():
    optimizer.zero_grad()
    model(x).float().square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


measure(step)
