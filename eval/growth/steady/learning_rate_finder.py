"""A search for the learning rate, then another optimizer.
options: --steps auto
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

finder = torch.optim.SGD(model.parameters(), lr=1e-6)
for _ in range(12):
    model(torch.randn(2048, 1024, device="cuda")).pow(2).mean().backward()
    finder.step()
    finder.zero_grad()
    finder.param_groups[0]["lr"] *= 2

for _ in range(5000):
    batch = torch.randn(2048, 1024, device="cuda")
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
