"""bitsandbytes' 8-bit AdamW."""

import bitsandbytes
import counters  # noqa: F401
import torch
from torch import nn

model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())
for _ in range(3):
    model(torch.randn(64, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
