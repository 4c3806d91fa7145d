"""A logger keeps tensors.

bytes a step: 2 * 512
(two scalars in blocks of 512 bytes)
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Logger:
    def __init__(self):
        self.records = []

    def log(self, **values):
        self.records.append(values)  # kept here


logger = Logger()

for step in range(5000):
    batch = torch.randn(2048, 1024, device="cuda")
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    logger.log(step=step, loss=loss.detach(), largest=out.detach().max())
