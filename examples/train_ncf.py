#!/usr/bin/env python3
"""Train a neural collaborative filtering model (NeuMF) on synthetic ratings, with the tables of MovieLens-20M.

    python train_ncf.py --batch 65536
    python train_ncf.py --users 1000000 --items 100000 --factors 32

Needs PyTorch and a CUDA GPU, nothing else.
"""

import argparse

import torch
from torch import nn


class NeuMF(nn.Module):
    """A matrix factorization and a multilayer perceptron, each with tables of its own, joined by the last layer."""

    def __init__(self, users: int, items: int, factors: int, layers: list):
        super().__init__()
        self.mf_user_embed = nn.Embedding(users, factors)
        self.mf_item_embed = nn.Embedding(items, factors)
        self.mlp_user_embed = nn.Embedding(users, layers[0] // 2)
        self.mlp_item_embed = nn.Embedding(items, layers[0] // 2)
        self.mlp = nn.ModuleList(nn.Linear(fan_in, fan_out) for fan_in, fan_out in zip(layers, layers[1:]))
        self.final = nn.Linear(layers[-1] + factors, 1)
        for table in (self.mf_user_embed, self.mf_item_embed, self.mlp_user_embed, self.mlp_item_embed):
            nn.init.normal_(table.weight, std=0.01)

    def forward(self, user, item):
        factorized = self.mf_user_embed(user) * self.mf_item_embed(item)
        x = torch.cat((self.mlp_user_embed(user), self.mlp_item_embed(item)), dim=1)
        for layer in self.mlp:
            x = torch.relu(layer(x))
        return self.final(torch.cat((factorized, x), dim=1))


def ratings(batch: int, users: int, items: int, negatives: int):
    """A batch on the host: every user and item that met has label 1, and with each come `negatives` pairs that did not."""
    user = torch.randint(users, (batch,))
    item = torch.randint(items, (batch,))
    label = (torch.arange(batch) % (1 + negatives) == 0).float().unsqueeze(1)
    return user, item, label[torch.randperm(batch)]


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32768, help="ratings a step, negatives among them (default %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="optimizer steps (default %(default)s)")
    parser.add_argument("--lr", type=float, default=2e-4, help="learning rate (default %(default)s)")
    parser.add_argument("--users", type=int, default=138493, help="rows of the users' tables (default %(default)s)")
    parser.add_argument("--items", type=int, default=26744, help="rows of the items' tables (default %(default)s)")
    parser.add_argument("--factors", type=int, default=64, help="width of the matrix factorization (default %(default)s)")
    parser.add_argument(
        "--layers",
        type=int,
        nargs="+",
        default=[256, 256, 128, 64],
        help="widths of the perceptron; half the first is the width of its tables (default 256 256 128 64)",
    )
    parser.add_argument("--negatives", type=int, default=8, help="negative samples a rating (default %(default)s)")
    args = parser.parse_args()
    if len(args.layers) < 2 or args.layers[0] % 2 != 0:
        parser.error("--layers needs two widths or more, and an even one first: it holds a user and an item")
    return args


def main():
    args = parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("train_ncf.py: this example needs a CUDA GPU, and PyTorch finds none")
    device = torch.device("cuda")
    torch.manual_seed(0)

    model = NeuMF(args.users, args.items, args.factors, args.layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    loss_function = nn.BCEWithLogitsLoss()

    for step in range(1, args.steps + 1):
        user, item, label = (tensor.to(device) for tensor in ratings(args.batch, args.users, args.items, args.negatives))
        optimizer.zero_grad()
        loss = loss_function(model(user, item), label)
        loss.backward()
        optimizer.step()
        print(f"step {step:3d}  loss {loss.item():.4f}", flush=True)

    mib = 2**20
    print(
        f"peak memory: {torch.cuda.max_memory_allocated() / mib:.1f} MiB allocated, {torch.cuda.max_memory_reserved() / mib:.1f} MiB reserved"
    )


if __name__ == "__main__":
    main()
