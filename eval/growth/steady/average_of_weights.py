"""An average of the weights, in place."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

average = [parameter.detach().clone() for parameter in model.parameters()]

for _ in range(5000):
    batch = torch.randn(2048, 1024, device="cuda")
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for old, new in zip(average, model.parameters()):
        old.lerp_(new.detach(), 0.1)
