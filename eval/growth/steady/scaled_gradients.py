"""Half precision with a GradScaler."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

scaler = torch.amp.GradScaler("cuda")

for _ in range(5000):
    batch = torch.randn(2048, 1024, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(batch)
        loss = out.float().pow(2).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
