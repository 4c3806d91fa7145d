"""A model that is compiled in its first steps."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

compiled = torch.compile(model, backend="aot_eager")

for _ in range(5000):
    batch = torch.randn(2048, 1024, device="cuda")
    out = compiled(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
