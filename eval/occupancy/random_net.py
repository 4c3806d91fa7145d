#!/usr/bin/env python3
"""One of GPUMemNet's random nets, as its list of layers stands in its tables: each layer's type, activations of a sample and parameters.

random_net.py '{"layers": [["linear", 1304, 1863416], ["ReLU", 1304, 0]], "input": [1428], "batch": 7}' [--steps 3]

Adam, cross entropy, loss.item() twice a step, as GPUMemNet trained them.
"""

import argparse
import json

import torch
from torch import nn


def build(spec):
    shape, layers = list(spec["input"]), []
    for name, activations, parameters in spec["layers"]:
        if name == "conv2d":
            channels = activations // (shape[1] * shape[2])
            layer = nn.Conv2d(shape[0], channels, 3, padding=1)
            shape[0] = channels
        elif name == "linear":
            if len(shape) == 3:
                layers.append(nn.Flatten())
                shape = [shape[0] * shape[1] * shape[2]]
            layer = nn.Linear(shape[0], activations)
            shape = [activations]
        elif name == "adaptive_avg_pool2d":
            layer = nn.AdaptiveAvgPool2d(1)
            shape = [shape[0], 1, 1]
        elif name == "softmax":
            layer = nn.Softmax(1)
        elif name.startswith("batchnorm"):
            layer = nn.BatchNorm2d(shape[0]) if len(shape) == 3 else nn.BatchNorm1d(shape[0])
        elif name.startswith("dropout"):
            layer = nn.Dropout(0.5)
        else:
            layer = getattr(nn, name)()
        if sum(p.numel() for p in layer.parameters()) != parameters:
            raise SystemExit(f"{name} has {sum(p.numel() for p in layer.parameters())} parameters here, {parameters} in the table")
        layers.append(layer)
    if not isinstance(layers[-1], nn.Softmax):
        layers.append(nn.Softmax(1))
    return nn.Sequential(*layers), shape[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", type=json.loads)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    model, classes = build(args.net)
    model.cuda()
    optimizer, loss_of = torch.optim.Adam(model.parameters(), lr=1e-3), nn.CrossEntropyLoss()
    for _ in range(args.steps):
        x = torch.randn(args.net["batch"], *args.net["input"]).cuda()
        y = torch.randint(classes, (args.net["batch"],)).cuda()
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()
        loss.item()


if __name__ == "__main__":
    main()
