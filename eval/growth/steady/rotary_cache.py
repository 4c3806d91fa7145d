"""A table that grows to the longest length so far."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

lengths = torch.randint(16, 2048, (5000,)).tolist()
table = torch.zeros(0, 1024, device="cuda")

for step in range(5000):
    if lengths[step] > len(table):
        table = torch.zeros(lengths[step], 1024, device="cuda")
    batch = torch.randn(lengths[step], 1024, device="cuda") + table[: lengths[step]]
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
