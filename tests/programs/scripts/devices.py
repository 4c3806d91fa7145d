"""One process, two devices: devices.py dp|spread."""

import sys

import counters  # noqa: F401
import torch
from torch import nn


class Spread(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(512, 2048).to("cuda:0"), nn.Linear(2048, 512).to("cuda:1")

    def forward(self, x):
        return self.second(self.first(x).relu().to("cuda:1"))


if sys.argv[1] == "spread":
    model = Spread()
else:
    model = nn.DataParallel(nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(64, 512, device="cuda:0")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
