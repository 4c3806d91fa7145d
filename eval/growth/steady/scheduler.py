"""A learning rate that falls, as a tensor."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.1, device="cuda"), capturable=True)

scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)

for _ in range(5000):
    batch = torch.randn(2048, 1024, device="cuda")
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
