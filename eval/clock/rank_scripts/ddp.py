"""A convolutional network under DistributedDataParallel: gradients are reduced while the backward goes on."""

import torch
from measure_ranks import begin, measure

begin()
widths = [3, 64, 128, 256, 512]
blocks = [
    torch.nn.Sequential(torch.nn.Conv2d(a, b, 3, 2, 1), torch.nn.BatchNorm2d(b), torch.nn.ReLU(), torch.nn.Conv2d(b, b, 3, 1, 1))
    for a, b in zip(widths, widths[1:], strict=False)
]
model = torch.nn.Sequential(*blocks, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 1000)).cuda()
model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=4)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
x = torch.randn(64, 3, 224, 224, device="cuda")
y = torch.randint(0, 1000, (64,), device="cuda")


def step():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


measure(step)
