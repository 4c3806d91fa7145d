"""Scripts that do not end well: endings.py KIND."""

import os
import sys
import time

import counters
import torch
from torch import nn

kind = sys.argv[1]
if kind == "cpu":
    print(torch.randn(3).sum().item())
    sys.exit()
if kind == "rank-raises":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl")
model = nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(10**9 if kind == "endless" else 3):
    if kind == "endless" and step == 2:
        counters.say()
        time.sleep(10**6)
    if kind == "rank-raises" and step == 1 and os.environ["RANK"] == "1":
        raise ValueError("rank 1 finds no data")
    model(torch.randn(4, 256, device="cuda")).sum().backward()
    optimizer.step()
    if kind == "raises" and step == 1:
        raise ValueError("no more data")
if kind == "exits":
    sys.exit(3)
