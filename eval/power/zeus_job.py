#!/usr/bin/env python3
"""A training of Zeus's traces on random data, as a plain program: eval/power/evaluate.py runs it without a card.

    python zeus_job.py '{"network": "resnet50", "batch": 64, "optimizer": "Adadelta"}' [--steps 5]

- resnet50: torchvision's, images of 224 x 224.
- bert_squad, bert_sentiment: BERT base from PyTorch's own layers, 384 and 64 tokens a text, with a small head.
- tf32: products of linear layers may use TF32, the default of the PyTorch of that time.
"""

import argparse
import json

import torch
import torchvision
from torch import nn

LENGTHS = {"bert_squad": 384, "bert_sentiment": 64}
WORDS = 30522


class Bert(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(WORDS, 768), nn.Embedding(512, 768), nn.LayerNorm(768)
        self.layers = nn.ModuleList(Layer() for _ in range(12))
        self.head = nn.Linear(768, outputs)

    def forward(self, words):
        x = nn.functional.dropout(self.norm(self.words(words) + self.places.weight[: words.shape[1]]), 0.1)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Layer(nn.Module):
    """Attention of the time of the traces: products and a softmax, no fused kernel."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(768, 768) for _ in range(4))
        self.wide, self.narrow = nn.Linear(768, 3072), nn.Linear(3072, 768)
        self.norms = nn.ModuleList(nn.LayerNorm(768) for _ in range(2))

    def forward(self, x):
        query, key, value = (layer(x).unflatten(2, (12, 64)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        scores = nn.functional.dropout((query @ key.transpose(2, 3) / 8).softmax(3), 0.1)
        x = self.norms[0](x + nn.functional.dropout(self.out((scores @ value).transpose(1, 2).flatten(2)), 0.1))
        return self.norms[1](x + nn.functional.dropout(self.narrow(nn.functional.gelu(self.wide(x))), 0.1))


def make_job(job):
    """(The model, a batch, its loss)."""
    size = job["batch"]
    if job["network"] == "resnet50":
        model = torchvision.models.resnet50()
        batch, target = torch.randn(size, 3, 224, 224, device="cuda"), torch.randint(1000, (size,), device="cuda")
        return model, batch, lambda output: nn.functional.cross_entropy(output, target)
    words = torch.randint(WORDS, (size, LENGTHS[job["network"]]), device="cuda")
    if job["network"] == "bert_squad":
        begin, end = (torch.randint(words.shape[1], (size,), device="cuda") for _ in range(2))
        loss = lambda output: sum(nn.functional.cross_entropy(output[:, :, i], place) for i, place in enumerate((begin, end))) / 2  # noqa: E731
        return Bert(2), words, loss
    target = torch.randint(2, (size,), device="cuda")
    return Bert(2), words, lambda output: nn.functional.cross_entropy(output[:, 0], target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=json.loads)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = bool(options.job.get("tf32"))
    model, batch, loss_of = make_job(options.job)
    model.to("cuda").train()
    optimizer = getattr(torch.optim, options.job["optimizer"])(model.parameters())
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss_of(model(batch)).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
