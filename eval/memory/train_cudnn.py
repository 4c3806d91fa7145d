#!/usr/bin/env python3
"""Two training steps of a convolutional network, for run_cudnn.py. It also runs on a real card."""

import argparse

import torch
import torchvision

from eval.truth.measure_on_gpu import make_model

TORCHVISION = ("resnet50", "vgg16", "convnext_tiny", "mobilenet_v2", "resnext50_32x4d")


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
    model = make_model("unet3d")[0] if volume else getattr(torchvision.models, args.model)(weights=None)
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
            loss = torch.nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
