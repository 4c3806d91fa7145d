"""torchvision's detectors and segmentation on random images: with_torchvision.py MODEL."""

import sys

import counters  # noqa: F401
import torch
from torchvision.models import detection, segmentation

name = sys.argv[1]
if hasattr(detection, name):
    model = getattr(detection, name)(
        weights=None, weights_backbone=None, num_classes=5, **({} if "ssd" in name else {"min_size": 256})
    ).cuda()
else:
    model = getattr(segmentation, name)(weights=None, weights_backbone=None, num_classes=5).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
model.train()
for _ in range(3):
    images = torch.randn(2, 3, 256, 256).cuda()
    if hasattr(detection, name):
        boxes = torch.tensor([[10.0, 10, 100, 120], [50, 60, 200, 180]]).cuda()
        masks = {"masks": torch.ones(2, 256, 256, dtype=torch.uint8).cuda()} if "mask" in name else {}
        targets = [{"boxes": boxes, "labels": torch.tensor([1, 2]).cuda(), **masks} for _ in images]
        loss = sum(model(list(images), targets).values())
    else:
        loss = torch.nn.functional.cross_entropy(model(images)["out"], torch.randint(0, 5, (2, 256, 256)).cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
