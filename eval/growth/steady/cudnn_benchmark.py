"""Convolutions that try algorithms."""

import torch
from torch import nn

torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(5000):
    batch = torch.randn(16, 3, 64, 64, device="cuda")
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
