"""torchao: with_torchao.py adam8bit|qat|float8."""

import sys

import counters  # noqa: F401
import torch
from torch import nn

kind = sys.argv[1]
model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda().bfloat16()
if kind == "adam8bit":
    from torchao.optim import AdamW8bit

    optimizer = AdamW8bit(model.parameters())
elif kind == "qat":
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.qat import QATConfig

    base = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
    quantize_(model, QATConfig(base, step="prepare"))
    optimizer = torch.optim.AdamW(model.parameters())
else:
    from torchao.float8 import convert_to_float8_training

    model = torch.compile(convert_to_float8_training(model))
    optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(64, 512, device="cuda", dtype=torch.bfloat16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
