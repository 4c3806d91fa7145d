#!/usr/bin/env python3
"""Twelve data pipelines, each with a small training loop behind it. One at a time, as evaluate.py starts them:

    python pipelines.py NAME --folder DIR --workers 2                                                  trains on the GPU (under gpucast: the virtual one)
    python pipelines.py NAME --folder DIR --workers 2 --step-ms 40 --host-ms 2 --out FILE     the same loop before a card of known speed

Each makes its own files in DIR when they are not there."""

import argparse
import io
import itertools
import json
import math
import random
import re
import tarfile
import time
from multiprocessing import Value
from pathlib import Path

import numpy as np
import torch
from names import SYNC
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torchvision import transforms

MAKE = {}


def pipeline(function):
    MAKE[function.__name__.replace("_", "-")] = function
    return function


# ---- data ------------------------------------------------------------------------------------------------------------------------


def images(folder, kind, count, size):
    folder = folder / f"{kind}-{size[0]}x{size[1]}"
    if not folder.exists():
        folder.mkdir(parents=True)
        generator = np.random.default_rng(0)
        for index in range(count):
            coarse = generator.integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize(size, Image.BICUBIC).save(folder / f"{index:04}.{kind}", quality=90)
    return sorted(folder.iterdir())


class Files(Dataset):
    def __init__(self, paths, transform, length=100_000):
        self.paths, self.transform, self.length = paths, transform, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.transform(Image.open(self.paths[index % len(self.paths)]).convert("RGB")), index % 10


class Function(Dataset):
    """`make(index)` is a sample."""

    def __init__(self, make, length=100_000):
        self.make, self.length = make, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.make(index)


@pipeline
def jpeg(folder):
    steps = transforms.Compose([transforms.RandomResizedCrop(128), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
    return Files(images(folder, "jpeg", 200, (320, 240)), steps), {"batch_size": 16}


@pipeline
def photos(folder):
    steps = transforms.Compose([transforms.Resize(224), transforms.CenterCrop(224), transforms.ToTensor()])
    return Files(images(folder, "jpeg", 60, (800, 600)), steps), {"batch_size": 4}


@pipeline
def png(folder):
    steps = transforms.Compose([transforms.RandomCrop(96), transforms.ToTensor()])
    return Files(images(folder, "png", 100, (200, 160)), steps), {"batch_size": 12}


@pipeline
def tokenise(folder):
    words = [f"word{index}" for index in range(5000)]
    ids = {word: index for index, word in enumerate(words)}
    draw = random.Random(0)
    texts = [" ".join(draw.choices(words, k=draw.randint(50, 1200))) for _ in range(300)]

    def sample(index):
        return torch.tensor([ids[word] for word in re.findall(r"\w+", texts[index % len(texts)])])

    def pad(samples):
        return nn.utils.rnn.pad_sequence(samples, batch_first=True), torch.zeros(len(samples), dtype=torch.long)

    return Function(sample), {"batch_size": 32, "collate_fn": pad}


@pipeline
def augment(folder):
    def sample(index):
        image = torch.full((3, 160, 160), float(index % 7))
        image = image + 0.1 * torch.randn_like(image)
        top, left = torch.randint(0, 32, (2,)).tolist()
        image = image[:, top : top + 128, left : left + 128].flip(2)
        return (image - image.mean()) / image.std(), index % 10

    return Function(sample), {"batch_size": 24}


@pipeline
def mixup(folder):
    def mix(samples):
        images = torch.stack([image for image, _ in samples])
        for _ in range(3):
            share = torch.rand(len(images), 1, 1, 1)
            images = share * images + (1 - share) * images[torch.randperm(len(images))]
        return images, torch.tensor([label for _, label in samples])

    return Function(lambda index: (torch.rand(3, 128, 128), index % 10)), {"batch_size": 24, "collate_fn": mix}


class Shards(IterableDataset):
    """Tar files of JPEGs, shared out among the workers, again and again."""

    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        worker = get_worker_info()
        mine = self.paths[worker.id :: worker.num_workers] if worker else self.paths
        for path in itertools.cycle(mine):
            with tarfile.open(path) as tar:
                for member in tar:
                    image = Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGB").resize((128, 128))
                    yield torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255, 1


@pipeline
def shards(folder):
    found = folder / "shards"
    if not found.exists():
        found.mkdir(parents=True)
        files = images(folder, "jpeg", 200, (320, 240))
        for number in range(8):
            with tarfile.open(found / f"{number}.tar", "w") as tar:
                for path in files[number::8]:
                    tar.add(path, path.name)
    return Shards(sorted(found.iterdir())), {"batch_size": 16}


@pipeline
def sleep(folder):
    def sample(index):
        time.sleep(0.008)
        return torch.zeros(3, 64, 64), index % 10

    return Function(sample), {"batch_size": 8}


@pipeline
def sleep_varied(folder):
    def sample(index):
        time.sleep(0.004 + random.Random(index).expovariate(1 / 0.004))
        return torch.zeros(3, 64, 64), index % 10

    return Function(sample), {"batch_size": 8}


@pipeline
def memory_map(folder):
    path = folder / "tokens.bin"
    if not path.exists():
        np.random.default_rng(0).integers(0, 50_000, 20_000_000, dtype=np.uint16).tofile(path)
    tokens = np.memmap(path, dtype=np.uint16, mode="r")

    def sample(index):
        start = random.randrange(len(tokens) - 1025)
        window = tokens[start : start + 1025].astype(np.int64)
        counts = np.bincount(window, minlength=50_000)
        return torch.from_numpy(window[:-1]), int(counts.argmax()) % 10

    return Function(sample), {"batch_size": 128}


@pipeline
def spectrogram(folder):
    def sample(index):
        wave = np.random.default_rng(index).standard_normal(32_000)
        frames = np.lib.stride_tricks.sliding_window_view(wave, 512)[::160] * np.hanning(512)
        return torch.from_numpy(np.log1p(np.abs(np.fft.rfft(frames, axis=1))).astype(np.float32)), index % 10

    return Function(sample), {"batch_size": 8}


class Disk:
    """Reads of all processes pass through one disk of this speed, one after the other."""

    def __init__(self, bytes_per_s):
        self.bytes_per_s = bytes_per_s
        self.free_at = Value("d", 0.0)

    def read(self, path):
        content = path.read_bytes()
        if self.bytes_per_s:
            with self.free_at.get_lock():
                begin = max(self.free_at.value, time.monotonic())
                self.free_at.value = end = begin + len(content) / self.bytes_per_s
            time.sleep(max(0.0, end - time.monotonic()))
        return content


@pipeline
def slow_disk(folder, bytes_per_s=0):
    disk = Disk(bytes_per_s)
    paths = images(folder, "png", 100, (200, 160))
    steps = transforms.Compose([transforms.RandomCrop(96), transforms.ToTensor()])

    def sample(index):
        return steps(Image.open(io.BytesIO(disk.read(paths[index % len(paths)]))).convert("RGB")), index % 10

    return Function(sample), {"batch_size": 12}


def loader_of(name, folder, workers, bytes_per_s=0):
    dataset, options = MAKE[name](folder, bytes_per_s) if bytes_per_s else MAKE[name](folder)
    return DataLoader(dataset, num_workers=workers, pin_memory=SYNC[name] != "copy" and torch.cuda.is_available(), **options)


# ---- the loop behind it ----------------------------------------------------------------------------------------------------------


def train(loader, sync):
    model = nn.Sequential(*(nn.Linear(8192, 8192, bias=False, device="cuda") for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch, labels in loader:
        x = batch.to("cuda", non_blocking=sync != "copy").float()
        labels = labels.to("cuda", non_blocking=sync != "copy")
        loss = model(torch.ones(512, 8192, device="cuda")).mean() + x.mean() + labels.float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if sync == "item":
            loss.item()


class Card:
    """Stands in for a GPU that takes `step_s` for a step: the one place that knows that there is none."""

    AHEAD = 4  # steps that its launch queue holds

    def __init__(self, step_s):
        self.step_s = step_s
        self.free_at = 0.0

    def launch(self):
        now = time.perf_counter()
        self.free_at = max(self.free_at, now) + self.step_s
        self.wait(self.AHEAD * self.step_s)

    def wait(self, left_s=0.0):
        time.sleep(max(0.0, self.free_at - left_s - time.perf_counter()))


def work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        math.sqrt(2.0)


def cpu_s():
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + irq + softirq) / 100


def measure(loader, sync, step_s, host_s, seconds):
    card = Card(step_s)
    warm = 3 + 3 * loader.num_workers
    ends = []
    for count, _ in enumerate(loader):
        if sync == "copy":
            card.wait()
        card.launch()  # its first kernel starts while the program launches others
        work(host_s)
        if sync == "item":
            card.wait()
        if count >= warm:
            ends.append(card.free_at)  # when the card is done with it
            if len(ends) > 10 and ends[-1] - ends[0] > seconds:
                break
    # Whole rounds of the workers.
    last = (len(ends) - 1) // max(1, loader.num_workers) * max(1, loader.num_workers)
    return (ends[last] - ends[0]) / last


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MAKE)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--step-ms", type=float)
    parser.add_argument("--host-ms", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--bytes-per-s", type=float, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    loader = loader_of(args.name, args.folder, args.workers, args.bytes_per_s)
    sync = SYNC[args.name]
    if args.step_ms is None:
        train(loader, sync)
        return
    begin, busy = time.perf_counter(), cpu_s()
    step_s = measure(loader, sync, args.step_ms / 1e3, args.host_ms / 1e3, args.seconds)
    args.out.write_text(json.dumps({"step_ms": step_s * 1e3, "busy_cores": (cpu_s() - busy) / (time.perf_counter() - begin)}))


if __name__ == "__main__":
    main()
