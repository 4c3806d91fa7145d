"""A metric keeps all predictions on the card.

bytes a step: 2048 * 1024 * 4
(the output, 2048 x 1024 floats)
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Metric:
    def __init__(self):
        self.predictions = []

    def update(self, predictions):
        self.predictions.append(predictions.detach())  # kept here


metric = Metric()

for _ in range(5000):
    batch = torch.randn(2048, 1024, device="cuda")
    out = model(batch)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    metric.update(out)
