#!/usr/bin/env python3
"""Train a ResNet-50 (or another torchvision classifier) on synthetic images.

    python train_resnet50.py --batch 64 --optimizer adam
    python train_resnet50.py --model vgg16 --amp

Needs PyTorch, torchvision and a CUDA GPU.
"""

import argparse

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset


class RandomImages(Dataset):
    """Images of noise with random labels, made when asked for."""

    def __init__(self, count: int, image_size: int, classes: int):
        self.count, self.image_size, self.classes = count, image_size, classes

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image = torch.randn(3, self.image_size, self.image_size, generator=generator)
        label = int(torch.randint(self.classes, (1,), generator=generator))
        return image, label


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", help="a torchvision classification model (default %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="images a step (default %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="optimizer steps (default %(default)s)")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate (default %(default)s)")
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd", help="SGD with momentum, or Adam (default %(default)s)")
    parser.add_argument("--image-size", type=int, default=224, help="height and width of an image (default %(default)s)")
    parser.add_argument("--classes", type=int, default=1000, help="number of classes (default %(default)s)")
    parser.add_argument("--workers", type=int, default=0, help="data loading processes (default %(default)s)")
    parser.add_argument("--amp", action="store_true", help="mixed precision (bf16 autocast)")
    parser.add_argument("--channels-last", action="store_true", help="NHWC memory format")
    return parser.parse_args()


def main():
    args = parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("train_resnet50.py: this example needs a CUDA GPU, and PyTorch finds none")
    device = torch.device("cuda")
    torch.manual_seed(0)
    memory_format = torch.channels_last if args.channels_last else torch.contiguous_format

    model = torchvision.models.get_model(args.model, weights=None, num_classes=args.classes).to(device, memory_format=memory_format)
    model.train()
    if args.optimizer == "adam":
        optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    loss_function = torch.nn.CrossEntropyLoss()
    data = RandomImages(args.batch * args.steps, args.image_size, args.classes)
    loader = DataLoader(data, batch_size=args.batch, num_workers=args.workers, pin_memory=True)

    for step, (images, labels) in enumerate(loader, start=1):
        images = images.to(device, non_blocking=True, memory_format=memory_format)
        labels = labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.amp):
            loss = loss_function(model(images), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step:3d}  loss {loss.item():.4f}", flush=True)

    mib = 2**20
    print(
        f"peak memory: {torch.cuda.max_memory_allocated() / mib:.1f} MiB allocated, {torch.cuda.max_memory_reserved() / mib:.1f} MiB reserved"
    )


if __name__ == "__main__":
    main()
