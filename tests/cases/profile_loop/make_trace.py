# The loop of a small convolutional network under torch.profiler, like in tutorials; switches by argument.
import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

out, options = sys.argv[1], set(sys.argv[2:])
torch.manual_seed(0)
device = "cuda" if "cuda" in options else "cpu"
net = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.BatchNorm2d(64),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Dropout(),
    nn.Linear(1024, 256),
    nn.ReLU(),
    nn.Linear(256, 10),
).to(device)
optimizer = torch.optim.Adam(net.parameters())
images, labels = torch.randn(16, 3, 64, 64).to(device), torch.randint(10, (16,)).to(device)
with profile(
    activities=[ProfilerActivity.CPU],
    profile_memory="nomemory" not in options,
    record_shapes="noshapes" not in options,
    with_stack="nostack" not in options,
) as p:
    for _ in range(1 if "one" in options else 3):
        loss = nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        if "nostep" not in options:
            optimizer.step()
p.export_chrome_trace(out)
