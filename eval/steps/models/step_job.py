"""Shared by the scripts of this folder: the number of steps, the end of one, and models on images."""

import argparse
import os

import torch

STEPS = int(os.environ.get("STEPS", "40"))  # gpucast ends its capture earlier; the rest shows the host's time


class StepEnd:
    """gpucast counts steps of optimizers. This one's only parameter never has a gradient, so its step launches nothing."""

    def __init__(self):
        self._optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.0, foreach=False)

    def __call__(self):
        self._optimizer.step()


def image_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--image", type=int, required=True)
    return parser


def add_layout(parser):
    parser.add_argument("--layout", choices=["nchw", "nhwc"], required=True)


def on_card(args, model):
    """(the model, a batch of images), on the card in the asked layout."""
    layout = torch.channels_last if args.layout == "nhwc" else torch.contiguous_format
    images = torch.randn(args.batch, 3, args.image, args.image, device="cuda").contiguous(memory_format=layout)
    return model.to("cuda", memory_format=layout), images


def allow_tf32(allowed):
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
