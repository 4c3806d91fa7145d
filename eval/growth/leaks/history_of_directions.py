"""A quasi-Newton method keeps all its directions.

bytes a step: (2 * 1024 * 4096 + 4096 + 1024) * 4
(all parameters in one vector)
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

directions = []
before = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

for _ in range(5000):
    batch = torch.randn(2048, 1024, device="cuda")
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    now = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    directions.append(now - before)  # kept here
    before = now
