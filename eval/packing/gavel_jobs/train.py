#!/usr/bin/env python3
"""Trains one of Gavel's jobs (OSDI '20) on random data of the real data's shape, to be captured with `gpucast run`.

    gpucast run --gpu v100-16 -o lm-20.gpucast -- python eval/packing/gavel_jobs/train.py lm --batch 20

Optimizers use one tensor at a time and gradients are set to zero, not dropped, like PyTorch in Gavel's measurements (1.x): a step has more and
shorter kernels than today."""

import argparse
import random

import torch
from gavel_models import Autoencoder, CifarResNet18, LstmLanguageModel, Player, Transformer, discriminator, generator
from torch import nn
from torch.nn import functional

CUDA = torch.device("cuda")


def images(model, batch, pixels, classes, rate, decay):
    """Classification as CIFAR-10's and ImageNet's scripts do it: host data each step, loss and hits read back."""
    model.to(CUDA)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=decay, foreach=False)
    criterion = nn.CrossEntropyLoss()
    while True:
        x, labels = torch.rand(batch, 3, pixels, pixels).to(CUDA), torch.randint(classes, (batch,)).to(CUDA)
        optimizer.zero_grad(set_to_none=False)
        out = model(x)
        loss = criterion(out, labels)
        loss.backward()
        optimizer.step()
        loss.item()
        out.max(1)[1].eq(labels).sum().item()
        yield


def resnet18(batch):
    return images(CifarResNet18(), batch, 32, 10, 0.1, 5e-4)


def resnet50(batch):
    from torchvision.models import resnet50 as network

    return images(network(), batch, 224, 1000, 0.1, 1e-4)


def sentences(batch):
    """Multi30k's lengths: 13 words in the mean, padded to the longest of the batch; a word that begins and one that ends."""
    lengths = [min(50, max(4, round(random.gauss(13, 4.2)))) + 2 for _ in range(batch)]
    words, places = torch.zeros(batch, max(lengths), dtype=torch.long), torch.zeros(batch, max(lengths), dtype=torch.long)
    for i, length in enumerate(lengths):
        words[i, :length] = torch.randint(4, 2900, (length,))
        places[i, :length] = torch.arange(1, length + 1)
    return words.to(CUDA), places.to(CUDA)


def transformer(batch):
    model = Transformer().to(CUDA)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], betas=(0.9, 0.98), eps=1e-9, foreach=False)
    while True:
        source, source_places = sentences(batch)
        target, target_places = sentences(batch)
        gold = target[:, 1:].flatten()
        optimizer.zero_grad(set_to_none=False)
        out = model(source, source_places, target[:, :-1], target_places[:, :-1])
        loss = functional.cross_entropy(out, gold, ignore_index=0, reduction="sum")
        hits = out.max(1)[1].eq(gold).masked_select(gold.ne(0)).sum().item()  # noqa: F841  (as the original reads it)
        loss.backward()
        optimizer.step()
        loss.item()
        yield


def lm(batch):
    model = LstmLanguageModel().to(CUDA)
    optimizer = torch.optim.SGD(model.parameters(), lr=20, foreach=False)
    hidden = tuple(torch.zeros(2, batch, 200, device=CUDA) for _ in range(2))
    while True:
        words = torch.randint(33278, (36, batch)).to(CUDA)
        hidden = tuple(h.detach() for h in hidden)
        model.zero_grad(set_to_none=False)
        out, hidden = model(words[:-1], hidden)
        loss = functional.cross_entropy(out, words[1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25, foreach=False)
        optimizer.step()
        loss.item()
        yield


FILMS_OF_BATCH = {
    512: 6700,
    1024: 8600,
    2048: 10700,
    4096: 12900,
    8192: 15000,
}  # different films among about 70 per viewer, only a few popular


def recommendation(batch):
    model = Autoencoder().to(CUDA)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=2e-5, foreach=False)
    films_of_batch = FILMS_OF_BATCH.get(batch, 15000)
    viewed = 70 * batch
    while True:
        films = torch.randperm(20108)[:films_of_batch].to(CUDA)
        places = torch.stack([torch.randint(batch, (viewed,)), torch.randint(films_of_batch, (viewed,))])
        seen = torch.sparse_coo_tensor(places, torch.ones(viewed), (batch, films_of_batch)).to(CUDA).to_dense()
        optimizer.zero_grad(set_to_none=False)
        loss = functional.binary_cross_entropy_with_logits(model(seen, films), seen, reduction="sum") / batch
        loss.backward()
        optimizer.step()
        loss.item()
        yield


def cyclegan(batch):
    forth, back, judge_a, judge_b = (net.to(CUDA) for net in (generator(), generator(), discriminator(), discriminator()))
    mean_square, absolute = nn.MSELoss(), nn.L1Loss()
    makers = torch.optim.Adam([*forth.parameters(), *back.parameters()], lr=2e-4, betas=(0.5, 0.999), foreach=False)
    judges = [torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999), foreach=False) for net in (judge_a, judge_b)]
    while True:
        a, b = (torch.rand(batch, 3, 256, 256).to(CUDA) for _ in range(2))
        valid, fake = torch.ones(batch, 1, 16, 16).to(CUDA), torch.zeros(batch, 1, 16, 16).to(CUDA)
        makers.zero_grad(set_to_none=False)
        same = (absolute(back(a), a) + absolute(forth(b), b)) / 2
        made_b = forth(a)
        fooled_b = mean_square(judge_b(made_b), valid)
        made_a = back(b)
        fooled = (fooled_b + mean_square(judge_a(made_a), valid)) / 2
        cycle = (absolute(back(made_b), a) + absolute(forth(made_a), b)) / 2
        total = fooled + 10 * cycle + 5 * same
        total.backward()
        makers.step()
        losses = []
        for judge, optimizer, real, made in ((judge_a, judges[0], a, made_a), (judge_b, judges[1], b, made_b)):
            optimizer.zero_grad(set_to_none=False)
            loss = (mean_square(judge(real), valid) + mean_square(judge(made.detach().clone()), fake)) / 2
            loss.backward()
            optimizer.step()
            losses.append(loss)
        for loss in (*losses, total, fooled, cycle, same):
            loss.item()
        yield


def a3c(batch):
    """One of its four workers. It plays 20 frames, learns from them, and gives its gradients to weights on the host."""
    shared, model = Player(), Player().to(CUDA)
    for parameter in shared.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.Adam(shared.parameters(), lr=1e-4, amsgrad=True)
    hidden = tuple(torch.zeros(batch, 512, device=CUDA) for _ in range(2))
    frame = torch.rand(batch, 1, 80, 80).to(CUDA)
    while True:
        model.load_state_dict(shared.state_dict())
        hidden = tuple(h.detach() for h in hidden)
        values, chances, entropies = [], [], []
        for _ in range(20):
            value, logits, hidden = model(frame, hidden)
            chance, log_chance = logits.softmax(1), logits.log_softmax(1)
            entropies.append(-(log_chance * chance).sum(1))
            action = chance.multinomial(1)
            chances.append(log_chance.gather(1, action))
            action.cpu()
            frame = torch.rand(batch, 1, 80, 80).to(CUDA)
            values.append(value)
        reached = model(frame, hidden)[0].detach()
        values.append(reached)
        advantage = torch.zeros(batch, 1).to(CUDA)
        policy_loss = value_loss = 0
        for i in reversed(range(20)):
            reached = 0.99 * reached
            value_loss = value_loss + 0.5 * (reached - values[i]).pow(2)
            advantage = advantage * 0.99 + 0.99 * values[i + 1].detach() - values[i].detach()
            policy_loss = policy_loss - chances[i] * advantage - 0.01 * entropies[i]
        model.zero_grad(set_to_none=False)
        (policy_loss + 0.5 * value_loss).sum().backward()
        for parameter, of_shared in zip(model.parameters(), shared.parameters()):
            of_shared.grad = parameter.grad.cpu()
        optimizer.step()
        yield


JOBS = {job.__name__: job for job in (resnet18, resnet50, transformer, lm, recommendation, cyclegan, a3c)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    random.seed(0)
    steps = JOBS[args.job](args.batch)
    for _ in range(args.steps):
        next(steps)


if __name__ == "__main__":
    main()
