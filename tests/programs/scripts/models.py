"""A training script of few steps: models.py MODEL MODE. Small models of the usual kinds: the compiled code matters here, not its
size."""

import sys

import counters  # noqa: F401
import torch
from torch import nn
from torch.nn import functional as F

WORDS, WIDTH, LENGTH, CLASSES = 2000, 128, 64, 10


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.inner(x)


def conv(inputs, outputs, kernel=3, stride=1, groups=1, act=nn.ReLU):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs), act())


def head(width):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Attention(nn.Module):
    def __init__(self, width, causal, rotary=False, heads=4):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.causal, self.rotary, self.heads = causal, rotary, heads

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.rotary:
            half = q.shape[-1] // 2
            angle = torch.arange(length, device=x.device)[:, None] / 10000 ** (torch.arange(half, device=x.device) / half)
            q, k = (
                torch.cat(
                    (y[..., :half] * angle.cos() - y[..., half:] * angle.sin(), y[..., :half] * angle.sin() + y[..., half:] * angle.cos()),
                    -1,
                )
                for y in (q, k)
            )
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).reshape(x.shape))


class SwiGLU(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def block(width, causal=False, rotary=False, norm=nn.LayerNorm, dropout=0.0):
    mlp = SwiGLU(width) if rotary else nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    return nn.Sequential(
        Residual(norm(width), Attention(width, causal, rotary), nn.Dropout(dropout)), Residual(norm(width), mlp, nn.Dropout(dropout))
    )


class Positions(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(length, width))

    def forward(self, x):
        return x + self.table


class Patches(nn.Module):
    def __init__(self, width, size=8):
        super().__init__()
        self.conv = nn.Conv2d(3, width, size, size)

    def forward(self, x):
        return self.conv(x).flatten(2).transpose(1, 2)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.middle = conv(3, 16), conv(16, 32, stride=2), conv(32, 32)
        self.up = nn.ConvTranspose2d(32, 16, 2, 2)
        self.out = nn.Conv2d(32, CLASSES, 1)

    def forward(self, x):
        first = self.down1(x)
        return self.out(torch.cat((first, self.up(self.middle(self.down2(first)))), 1)).mean((2, 3))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lstm, self.out = nn.Embedding(WORDS, WIDTH), nn.LSTM(WIDTH, WIDTH, 2, batch_first=True), nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        return self.out(self.lstm(self.words(x))[0])


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, 32) for _ in range(8))
        self.top = nn.Sequential(nn.Linear(8 * 32, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, x):
        return self.top(torch.cat([table(x[:, i]) for i, table in enumerate(self.tables)], 1))


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


def convnext_block(width):
    return Residual(
        nn.Conv2d(width, width, 7, padding=3, groups=width),
        nn.GroupNorm(1, width),
        nn.Conv2d(width, 4 * width, 1),
        nn.GELU(),
        nn.Conv2d(4 * width, width, 1),
    )


def text(**options):
    final = options.pop("final")
    return [nn.Embedding(WORDS, WIDTH), Positions(LENGTH, WIDTH), block(WIDTH, **options), block(WIDTH, **options), final]


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 512), nn.ReLU(), nn.Linear(512, CLASSES)),
    "resnet": lambda: nn.Sequential(conv(3, 32, 7, 2), Residual(conv(32, 32), conv(32, 32)), conv(32, 64, stride=2), head(64)),
    "mobilenet": lambda: nn.Sequential(conv(3, 32, 3, 2), conv(32, 32, groups=32, act=nn.Hardswish), conv(32, 64, 1, act=nn.Hardswish), head(64)),
    "vgg": lambda: nn.Sequential(conv(3, 32), nn.MaxPool2d(2), conv(32, 64), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 256, 256), nn.ReLU(), nn.Dropout(), nn.Linear(256, CLASSES)),
    "unet": UNet,
    "convnext": lambda: nn.Sequential(nn.Conv2d(3, 48, 4, 4), convnext_block(48), convnext_block(48), head(48)),
    "vit": lambda: nn.Sequential(Patches(WIDTH), Positions(64, WIDTH), block(WIDTH), block(WIDTH), Mean(), nn.Linear(WIDTH, CLASSES)),
    "gpt": lambda: nn.Sequential(*text(causal=True, final=nn.Linear(WIDTH, WORDS))),
    "bert": lambda: nn.Sequential(*text(dropout=0.1, final=nn.Linear(WIDTH, WORDS))),
    "llama": lambda: nn.Sequential(*text(causal=True, rotary=True, norm=RMSNorm, final=nn.Linear(WIDTH, WORDS, bias=False))),
    "lstm": Recurrent,
    "recommender": Recommender,
}  # fmt: skip
ON_WORDS = ("gpt", "bert", "llama", "lstm")


def batch(name):
    if name in ON_WORDS:
        return torch.randint(0, WORDS, (16, LENGTH), device="cuda"), torch.randint(0, WORDS, (16, LENGTH), device="cuda")
    x = torch.randint(0, 1000, (64, 8), device="cuda") if name == "recommender" else torch.randn(16, 3, 64, 64, device="cuda")
    return x, torch.randint(0, CLASSES, (len(x),), device="cuda")


def main():
    name, mode = sys.argv[1:]
    model = MODELS[name]().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    run = model if mode == "eager" else torch.compile(model, mode=mode)
    for _ in range(4):
        x, y = batch(name)
        F.cross_entropy(run(x).flatten(0, -2), y.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
