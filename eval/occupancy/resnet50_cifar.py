"""ResNet-50 on images of CIFAR-10's size, as DNN-occu trains it for its Figures 2 and 6: fp32, SGD. The data set lies on the card, because the
figures are of the GPU and not of a loader."""

import argparse

import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--steps", type=int, default=10)
options = parser.parse_args()
model = torchvision.models.resnet50(num_classes=10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
images = torch.zeros(4096, 3, 32, 32, device="cuda")
labels = torch.zeros(4096, dtype=torch.long, device="cuda")
for step in range(options.steps):
    at = step * options.batch % 2048
    loss = torch.nn.functional.cross_entropy(model(images[at : at + options.batch]), labels[at : at + options.batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
