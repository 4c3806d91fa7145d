"""diffusers on random images: with_diffusers.py ddpm|dit|vae."""

import sys

import counters  # noqa: F401
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler, DiTTransformer2DModel, UNet2DModel
from diffusers.training_utils import EMAModel

kind = sys.argv[1]
if kind == "ddpm":
    blocks = ("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")
    model = UNet2DModel(32, 3, 3, layers_per_block=1, block_out_channels=(32, 64), down_block_types=blocks[0], up_block_types=blocks[1])
elif kind == "dit":
    model = DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=32, in_channels=4, num_layers=2, sample_size=16, num_embeds_ada_norm=10
    )
else:
    ends = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    model = AutoencoderKL(3, 3, block_out_channels=(32, 64), **ends)
model = model.cuda()
average = EMAModel(model.parameters(), model_cls=type(model), model_config=model.config)
scheduler, optimizer = DDPMScheduler(), torch.optim.AdamW(model.parameters())
for _ in range(3):
    if kind == "vae":
        x = torch.randn(2, 3, 64, 64, device="cuda")
        latent = model.encode(x).latent_dist
        loss = F.mse_loss(model.decode(latent.sample()).sample, x) + latent.kl().mean() * 1e-6
    else:
        x = torch.randn(4, 3, 32, 32, device="cuda") if kind == "ddpm" else torch.randn(4, 4, 16, 16, device="cuda")
        noise, steps = torch.randn_like(x), torch.randint(0, 1000, (4,), device="cuda")
        more = {"class_labels": torch.randint(0, 10, (4,), device="cuda")} if kind == "dit" else {}
        made = model(scheduler.add_noise(x, noise, steps), steps, **more).sample
        loss = F.mse_loss(made, noise)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    average.step(model.parameters())
