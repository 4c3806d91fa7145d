"""The next three batches are copied in advance."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(20000, 1024)), batch_size=256)
waiting = []

for (rows,) in loader:
    waiting.append(rows.cuda(non_blocking=True))
    if len(waiting) < 4:
        continue
    batch = waiting.pop(0)
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
