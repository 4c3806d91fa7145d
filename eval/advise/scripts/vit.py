"""A ViT (L/16) as in timm's examples: SGD-like loop with autocast, random images."""

import argparse

import timm
import torch
from torch.utils.data import DataLoader, Dataset

p = argparse.ArgumentParser()
p.add_argument("-m", "--model", default="vit_large_patch16_224")
p.add_argument("-b", "--batch-size", type=int, default=64)
a = p.parse_args()


class Images(Dataset):
    def __len__(self):
        return 10000

    def __getitem__(self, i):
        return torch.zeros(3, 224, 224), i % 1000


model = timm.create_model(a.model, num_classes=1000).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
loss_fn = torch.nn.CrossEntropyLoss().cuda()
for images, targets in DataLoader(Images(), batch_size=a.batch_size):
    images, targets = images.cuda(non_blocking=True), targets.cuda(non_blocking=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = loss_fn(model(images), targets)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
