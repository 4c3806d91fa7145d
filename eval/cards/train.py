"""Six ordinary trainings: python train.py MODEL [--amp]. Weights and data are random."""

import contextlib
import sys

import torch
import torchvision
from torch import nn


class UNet(nn.Module):
    """The U-Net of the paper: four levels of two 3x3 convolutions, with skips."""

    def __init__(self, widths=(64, 128, 256, 512, 1024), classes=2):
        super().__init__()
        self.down = nn.ModuleList(self.block(i, o) for i, o in zip((3, *widths), widths, strict=False))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, stride=2) for i, o in pairs)
        self.up = nn.ModuleList(self.block(i, o) for i, o in pairs)
        self.head = nn.Conv2d(widths[0], classes, 1)

    @staticmethod
    def block(inputs, outputs):
        layers = []
        for width in inputs, outputs:
            layers += [nn.Conv2d(width, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    def forward(self, x):
        skips = []
        for level, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if level else x)
            skips.append(x)
        for widen, block, skip in zip(self.widen, self.up, skips[-2::-1], strict=True):
            x = block(torch.cat([skip, widen(x)], 1))
        return self.head(x)


class Words(nn.Module):
    """A language model of two LSTM layers."""

    def __init__(self, words=10000, width=1024):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0])


def image_loss(model, classes, shape):
    images, labels = torch.randn(shape, device="cuda"), torch.randint(classes, shape[:1], device="cuda")
    return lambda: nn.functional.cross_entropy(model(images), labels)


def job(name):
    """The model, and a function that gives a batch's loss."""
    if name in ("resnet50", "vit_b_16"):
        model = getattr(torchvision.models, name)().cuda()
        return model, image_loss(model, 1000, (32, 3, 224, 224))
    if name == "unet":
        model = UNet().cuda()
        images, masks = torch.randn(4, 3, 256, 256, device="cuda"), torch.randint(2, (4, 256, 256), device="cuda")
        return model, lambda: nn.functional.cross_entropy(model(images), masks)
    if name == "lstm":
        model = Words().cuda()
        tokens = torch.randint(10000, (64, 64), device="cuda")
        return model, lambda: nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    import transformers

    config, head = {
        "bert": (transformers.BertConfig, transformers.BertForMaskedLM),
        "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
    }[name]
    model = head(config()).cuda()
    tokens = torch.randint(30000, (8, 512), device="cuda")
    return model, lambda: model(tokens, labels=tokens).loss


def main():
    model, batch_loss = job(sys.argv[1])
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        amp = "--amp" in sys.argv
        with torch.autocast("cuda", torch.float16) if amp else contextlib.nullcontext():
            loss = batch_loss()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
