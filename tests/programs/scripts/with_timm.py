"""A timm model as timm's own train.py trains it: with_timm.py MODEL."""

import sys

import counters  # noqa: F401
import timm
import timm.optim
import timm.utils
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy

model = timm.create_model(sys.argv[1], num_classes=10, drop_path_rate=0.1).cuda().to(memory_format=torch.channels_last)
optimizer = timm.optim.create_optimizer_v2(model, "lamb", lr=1e-3, weight_decay=0.02)
average = timm.utils.ModelEmaV3(model, decay=0.99)
scaler = timm.utils.NativeScaler()
mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=10)
loss = SoftTargetCrossEntropy()
for step in range(3):
    x, y = (
        torch.randn(8, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last),
        torch.randint(0, 10, (8,), device="cuda"),
    )
    x, y = mixup(x, y)
    with torch.autocast("cuda", torch.float16):
        value = loss(model(x), y)
    scaler(value, optimizer, clip_grad=1.0, parameters=model.parameters())
    optimizer.zero_grad()
    average.update(model, step=step)
