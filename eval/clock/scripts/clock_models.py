"""Models that several scripts share."""

import torch


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.second(x))


class GPT(torch.nn.Module):
    def __init__(self, vocabulary=32000, width=1024, heads=16, layers=6, length=512):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Parameter(torch.zeros(length, width))
        self.blocks = torch.nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places)))


def cnn(width=64, blocks=8):
    def block(before, after, stride):
        return torch.nn.Sequential(
            torch.nn.Conv2d(before, after, 3, stride, 1, bias=False), torch.nn.BatchNorm2d(after), torch.nn.ReLU(inplace=True)
        )

    layers, before = [block(3, width, 2)], width
    for i in range(blocks):
        after = width * 2 ** (i // 2)
        layers.append(block(before, after, 2 if i % 2 and i < 6 else 1))
        before = after
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(before, 1000))
