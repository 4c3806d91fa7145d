"""Each loss is kept, and not its number.

bytes a step: 512
(a scalar in a block of 512 bytes)
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

losses = []

for _ in range(5000):
    batch = torch.randn(2048, 1024, device="cuda")
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss)  # kept here
