#!/usr/bin/env python3
"""Two training steps of a convolutional network, for run_cudnn.py. It also runs on a real card."""

import argparse

import torch
import torchvision
from torch import nn

TORCHVISION = ("resnet50", "vgg16", "convnext_tiny", "mobilenet_v2", "resnext50_32x4d", "efficientnet_b0")


def block(inputs, outputs):
    return nn.Sequential(
        *(nn.Conv3d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm3d(outputs), nn.ReLU(inplace=True)),
        *(nn.Conv3d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm3d(outputs), nn.ReLU(inplace=True)),
    )


class UNet3d(nn.Module):
    """Three levels of 32, 64 and 128 channels, as for segmenting volumes."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = block(1, 32), block(32, 64), block(64, 128)
        self.up2, self.up1 = nn.ConvTranspose3d(128, 64, 2, 2), nn.ConvTranspose3d(64, 32, 2, 2)
        self.after2, self.after1 = block(128, 64), block(64, 32)
        self.head = nn.Conv3d(32, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(nn.functional.max_pool3d(a, 2))
        c = self.bottom(nn.functional.max_pool3d(b, 2))
        b = self.after2(torch.cat([self.up2(c), b], 1))
        return self.head(self.after1(torch.cat([self.up1(b), a], 1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=[*TORCHVISION, "unet3d"], required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], required=True, help="bf16: autocast and channels_last")
    parser.add_argument("--benchmark", action="store_true")
    parser.add_argument("--deterministic", action="store_true")
    args = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = args.benchmark, args.deterministic
    volume = args.model == "unet3d"
    model = UNet3d() if volume else getattr(torchvision.models, args.model)(weights=None)
    layout = torch.contiguous_format
    if args.precision == "bf16":
        layout = torch.channels_last_3d if volume else torch.channels_last
    model = model.cuda().to(memory_format=layout).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        shape = (args.batch, 1, 64, 64, 64) if volume else (args.batch, 3, 224, 224)
        x = torch.zeros(shape, device="cuda").to(memory_format=layout)
        target = torch.zeros((args.batch, 64, 64, 64) if volume else (args.batch,), dtype=torch.int64, device="cuda")
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=args.precision == "bf16"):
            loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
