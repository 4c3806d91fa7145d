"""The models of Gavel's jobs (OSDI '20), small: each is the published definition with the sizes that Gavel's command lines choose."""

import math

import torch
from torch import nn
from torch.nn import functional


class BasicBlock(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
        )
        same = stride == 1 and channels_in == channels
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))
        )

    def forward(self, x):
        return functional.relu(self.body(x) + self.shortcut(x))


class CifarResNet18(nn.Module):
    """ResNet-18 with a first layer that keeps the 32 x 32 of an image."""

    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        before = 64
        for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [BasicBlock(before, channels, stride), BasicBlock(channels, channels, 1)]
            before = channels
        self.features = nn.Sequential(*layers, nn.AvgPool2d(4), nn.Flatten())
        self.linear = nn.Linear(512, 10)

    def forward(self, x):
        return self.linear(self.features(x))


class LstmLanguageModel(nn.Module):
    """PyTorch's word_language_model with its defaults on Wikitext-2."""

    def __init__(self, words=33278, width=200, layers=2, dropout=0.2):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, layers, dropout=dropout)
        self.decoder = nn.Linear(width, words)

    def forward(self, x, hidden):
        out, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return self.decoder(self.drop(out).flatten(0, 1)), hidden


class Attention(nn.Module):
    """Vaswani's, products and softmax one by one, like code of 2018."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.drop, self.drop_out, self.norm = nn.Dropout(dropout), nn.Dropout(dropout), nn.LayerNorm(width)

    def split(self, x):
        batch, length, width = x.shape
        x = x.view(batch, length, self.heads, width // self.heads)
        return x.permute(2, 0, 1, 3).contiguous().view(-1, length, width // self.heads)

    def forward(self, x, memory, mask):
        query, key, value = self.split(self.query(x)), self.split(self.key(memory)), self.split(self.value(memory))
        scores = torch.bmm(query, key.transpose(1, 2)) / math.sqrt(query.shape[-1])
        scores = scores.masked_fill(mask.repeat(self.heads, 1, 1), -1e9)
        mixed = torch.bmm(self.drop(scores.softmax(2)), value)
        mixed = mixed.view(self.heads, x.shape[0], x.shape[1], -1).permute(1, 2, 0, 3).contiguous().flatten(2)
        return self.norm(self.drop_out(self.out(mixed)) + x)


class FeedForward(nn.Module):
    def __init__(self, width, inner, dropout):
        super().__init__()
        self.first, self.second = nn.Conv1d(width, inner, 1), nn.Conv1d(inner, width, 1)
        self.drop, self.norm = nn.Dropout(dropout), nn.LayerNorm(width)

    def forward(self, x):
        out = self.second(functional.relu(self.first(x.transpose(1, 2)))).transpose(1, 2)
        return self.norm(self.drop(out) + x)


class Layer(nn.Module):
    def __init__(self, width, inner, heads, dropout, decodes):
        super().__init__()
        self.own = Attention(width, heads, dropout)
        self.other = Attention(width, heads, dropout) if decodes else None
        self.feed = FeedForward(width, inner, dropout)

    def forward(self, x, kept, mask, memory=None, memory_mask=None):
        x = self.own(x, x, mask) * kept
        if self.other is not None:
            x = self.other(x, memory, memory_mask) * kept
        return self.feed(x) * kept


class Transformer(nn.Module):
    """The base model (six layers of 512) on Multi30k: words seen five times and more; the last layer shares the target's embedding."""

    def __init__(self, words_in=2911, words_out=3149, width=512, inner=2048, layers=6, heads=8, dropout=0.1, positions=53):
        super().__init__()
        self.words_in, self.words_out = nn.Embedding(words_in, width, padding_idx=0), nn.Embedding(words_out, width, padding_idx=0)
        self.places_in, self.places_out = (nn.Embedding(positions, width, padding_idx=0).requires_grad_(False) for _ in range(2))
        self.encoder = nn.ModuleList(Layer(width, inner, heads, dropout, False) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(width, inner, heads, dropout, True) for _ in range(layers))
        self.last = nn.Linear(width, words_out, bias=False)
        self.last.weight = self.words_out.weight
        self.scale = width**-0.5

    def forward(self, source, source_places, target, target_places):
        source_mask = source.eq(0).unsqueeze(1)
        kept = source.ne(0).unsqueeze(-1).float()
        memory = self.words_in(source) + self.places_in(source_places)
        for layer in self.encoder:
            memory = layer(memory, kept, source_mask.expand(-1, source.shape[1], -1))
        length = target.shape[1]
        later = torch.triu(torch.ones(length, length, device=target.device, dtype=torch.uint8), 1).expand(target.shape[0], -1, -1)
        mask = (target.eq(0).unsqueeze(1).expand(-1, length, -1).byte() + later).gt(0)
        kept = target.ne(0).unsqueeze(-1).float()
        out = self.words_out(target) + self.places_out(target_places)
        for layer in self.decoder:
            out = layer(out, kept, mask, memory, source_mask.expand(-1, length, -1))
        return (self.last(out) * self.scale).flatten(0, 1)


class Autoencoder(nn.Module):
    """Recoder's dynamic autoencoder: one hidden layer of 200, weights only of a batch's films."""

    def __init__(self, films=20108, width=200):
        super().__init__()
        self.encoder, self.decoder = nn.Embedding(films, width), nn.Embedding(films, width)
        self.encoder_bias, self.decoder_bias = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(films))
        self.noise = nn.Dropout(0.5)

    def forward(self, seen, films):
        hidden = torch.tanh(functional.linear(self.noise(functional.normalize(seen)), self.encoder(films).t(), self.encoder_bias))
        return functional.linear(hidden, self.decoder(films), self.decoder_bias.index_select(0, films))


def normalized(*layers):
    return [*layers[:1], nn.InstanceNorm2d(layers[0].out_channels), *layers[1:]]


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.ReflectionPad2d(1),
            *normalized(nn.Conv2d(channels, channels, 3), nn.ReLU(inplace=True)),
            nn.ReflectionPad2d(1),
            *normalized(nn.Conv2d(channels, channels, 3)),
        )

    def forward(self, x):
        return x + self.body(x)


def generator(blocks=9):
    """CycleGAN's for 256 x 256."""
    layers = [nn.ReflectionPad2d(3), *normalized(nn.Conv2d(3, 64, 7), nn.ReLU(inplace=True))]
    for channels in (128, 256):
        layers += normalized(nn.Conv2d(channels // 2, channels, 3, 2, 1), nn.ReLU(inplace=True))
    layers += [Residual(256) for _ in range(blocks)]
    for channels in (128, 64):
        layers += [nn.Upsample(scale_factor=2), *normalized(nn.Conv2d(channels * 2, channels, 3, 1, 1), nn.ReLU(inplace=True))]
    return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(64, 3, 7), nn.Tanh())


def discriminator():
    """CycleGAN's: judges patches."""
    layers = [nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True)]
    for channels in (128, 256, 512):
        layers += normalized(nn.Conv2d(channels // 2, channels, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True))
    return nn.Sequential(*layers, nn.ZeroPad2d((1, 0, 1, 0)), nn.Conv2d(512, 1, 4, padding=1))


class Player(nn.Module):
    """A3C's network for Atari: four convolutions and an LSTM cell, one frame at a time."""

    def __init__(self, actions=6):
        super().__init__()
        layers = []
        for before, channels, kernel, padding in ((1, 32, 5, 2), (32, 32, 5, 1), (32, 64, 4, 1), (64, 64, 3, 1)):
            layers += [nn.Conv2d(before, channels, kernel, 1, padding), nn.MaxPool2d(2, 2), nn.ReLU()]
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.cell = nn.LSTMCell(1024, 512)
        self.critic, self.actor = nn.Linear(512, 1), nn.Linear(512, actions)

    def forward(self, frame, hidden):
        hidden = self.cell(self.features(frame), hidden)
        return self.critic(hidden[0]), self.actor(hidden[0]), hidden
