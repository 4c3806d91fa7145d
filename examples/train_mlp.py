#!/usr/bin/env python3
"""Train a multilayer perceptron on synthetic data.

    python train_mlp.py --batch 4096 --hidden 4096 --layers 4

Needs PyTorch and a CUDA GPU, nothing else.
"""

import argparse

import torch


class MLP(torch.nn.Module):
    def __init__(self, inputs: int, hidden: int, layers: int, classes: int):
        super().__init__()
        sizes = [inputs] + [hidden] * layers
        blocks = []
        for fan_in, fan_out in zip(sizes, sizes[1:]):
            blocks += [torch.nn.Linear(fan_in, fan_out), torch.nn.ReLU()]
        self.body = torch.nn.Sequential(*blocks)
        self.head = torch.nn.Linear(hidden, classes)

    def forward(self, x):
        return self.head(self.body(x))


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024, help="samples a step (default %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="optimizer steps (default %(default)s)")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate (default %(default)s)")
    parser.add_argument("--inputs", type=int, default=784, help="features of a sample (default %(default)s)")
    parser.add_argument("--hidden", type=int, default=2048, help="units of a hidden layer (default %(default)s)")
    parser.add_argument("--layers", type=int, default=3, help="hidden layers (default %(default)s)")
    parser.add_argument("--classes", type=int, default=10, help="number of classes (default %(default)s)")
    return parser.parse_args()


def main():
    args = parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("train_mlp.py: this example needs a CUDA GPU, and PyTorch finds none")
    device = torch.device("cuda")
    torch.manual_seed(0)

    model = MLP(args.inputs, args.hidden, args.layers, args.classes).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    loss_function = torch.nn.CrossEntropyLoss()

    for step in range(1, args.steps + 1):
        x = torch.randn(args.batch, args.inputs).to(device)
        y = torch.randint(args.classes, (args.batch,)).to(device)
        optimizer.zero_grad()
        loss = loss_function(model(x), y)
        loss.backward()
        optimizer.step()
        print(f"step {step:3d}  loss {loss.item():.4f}", flush=True)

    mib = 2**20
    print(
        f"peak memory: {torch.cuda.max_memory_allocated() / mib:.1f} MiB allocated, {torch.cuda.max_memory_reserved() / mib:.1f} MiB reserved"
    )


if __name__ == "__main__":
    main()
