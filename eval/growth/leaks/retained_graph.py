"""The graph of each step is retained, and its loss kept.

bytes a step: (2048 * 1024 + 2048 * 4096 + 2048 * 1024) * 4 + 512
(the batch, the output of ReLU and of the last layer, and the loss in 512 bytes)
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
    loss.backward(retain_graph=True)
    optimizer.step()
    losses.append(loss)  # kept here
