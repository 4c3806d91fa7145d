"""Diffusers' train_unconditional, shortened: a UNet2DModel on random images."""

import argparse

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DModel
from torch.utils.data import DataLoader, Dataset

p = argparse.ArgumentParser()
p.add_argument("--train_batch_size", type=int, default=16)
p.add_argument("--resolution", type=int, default=128)
a = p.parse_args()


class Images(Dataset):
    def __len__(self):
        return 10000

    def __getitem__(self, i):
        return torch.zeros(3, a.resolution, a.resolution)


model = UNet2DModel(
    sample_size=a.resolution,
    in_channels=3,
    out_channels=3,
    layers_per_block=2,
    block_out_channels=(128, 128, 256, 256, 512, 512),
    down_block_types=("DownBlock2D", "DownBlock2D", "DownBlock2D", "DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D", "UpBlock2D", "UpBlock2D", "UpBlock2D"),
).cuda()
noise_scheduler = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for clean in DataLoader(Images(), batch_size=a.train_batch_size):
    clean = clean.cuda()
    noise = torch.randn_like(clean)
    timesteps = torch.randint(0, 1000, (len(clean),), device="cuda")
    noisy = noise_scheduler.add_noise(clean, noise, timesteps)
    loss = F.mse_loss(model(noisy, timesteps).sample, noise)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
