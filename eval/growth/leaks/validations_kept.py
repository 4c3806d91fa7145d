"""The results of each validation are kept: one after each epoch of five batches.

bytes a step: 2048 * 1024 * 4 / 5
(the output, 2048 x 1024 floats, every fifth step)
options: --steps auto
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
training = DataLoader(TensorDataset(torch.randn(5 * 256, 1024)), batch_size=256)
valid = torch.randn(2048, 1024, device="cuda")
results = []

for _ in range(1000):
    for (rows,) in training:
        loss = model(rows.cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        results.append(model(valid))  # kept here
    model.train()
