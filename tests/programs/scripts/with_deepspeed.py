"""DeepSpeed: with_deepspeed.py 1|2|3|3-offload."""

import os
import sys

import counters  # noqa: F401
import deepspeed
import torch
from torch import nn

stage, _, offload = sys.argv[-1].partition("-")  # after the launchers' arguments
if "RANK" not in os.environ:
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29544"}
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
zero = {"stage": int(stage)}
if offload:
    zero |= {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}
model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4)])
engine, *_ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    optimizer=None if not offload else torch.optim.AdamW(model.parameters()),
    config={
        "train_micro_batch_size_per_gpu": 4,
        "bf16": {"enabled": True},
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
        **({} if offload else {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}}),
    },
)
for _ in range(3):
    x = torch.randn(4, 64, 512, device="cuda", dtype=torch.bfloat16)
    engine.backward(engine(x).square().mean())
    engine.step()
