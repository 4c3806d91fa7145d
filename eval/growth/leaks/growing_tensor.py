"""A tensor is replaced by a longer one in each step.

bytes a step: 2048 * 1024 * 4
(the output, 2048 x 1024 floats)
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

history = torch.zeros(0, 1024, device="cuda")

for _ in range(5000):
    batch = torch.randn(2048, 1024, device="cuda")
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history = torch.cat([history, out.detach()])  # kept here
