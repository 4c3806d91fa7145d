"""Losses as numbers, and slow weights that follow every five steps."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

losses = []
slow = [parameter.detach().clone() for parameter in model.parameters()]

for step in range(5000):
    batch = torch.randn(2048, 1024, device="cuda")
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 5 == 4:
        slow = [old.lerp(new.detach(), 0.5) for old, new in zip(slow, model.parameters())]
