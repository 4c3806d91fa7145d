"""Exceptions are kept, and with them the variables of their functions.

bytes a step: 2 * 2048 * 1024 * 4
(the batch and twice the batch: variables of check())
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def check(values):
    doubled = values * 2
    raise ValueError(f"a bad batch of {len(doubled)}")


errors = []

for _ in range(5000):
    batch = torch.randn(2048, 1024, device="cuda")
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    try:
        check(batch)
    except ValueError as error:
        errors.append(error)  # kept here
