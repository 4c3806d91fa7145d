"""Validation losses are summed up with their graphs.

bytes a step: (2048 * 4096 + 2048 * 1024) * 4
(the output of ReLU and of the last layer, which ReLU, Linear and pow keep for a backward pass)
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

valid = torch.randn(2048, 1024, device="cuda")
total = 0

for _ in range(5000):
    batch = torch.randn(2048, 1024, device="cuda")
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += model(valid).pow(2).mean()  # kept here
