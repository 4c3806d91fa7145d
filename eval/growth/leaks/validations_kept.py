"""The results of each validation are kept.

bytes a step: 2048 * 1024 * 4 / 5
(the output, 2048 x 1024 floats, every fifth step)
options: --steps auto
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

valid = torch.randn(2048, 1024, device="cuda")
results = []

for step in range(5000):
    batch = torch.randn(2048, 1024, device="cuda")
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        model.eval()
        with torch.no_grad():
            results.append(model(valid))  # kept here
        model.train()
