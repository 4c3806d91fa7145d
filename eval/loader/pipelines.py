#!/usr/bin/env python3
"""Twelve data pipelines, each feeding a small training loop. One at a time, as evaluate.py starts them:

    gpucast run --real-time --gpu a100-80 -- python pipelines.py NAME --folder DIR --workers 2 --rows 512

prints milliseconds per step, on the card's clock. Each makes its own files in DIR if they are missing."""

import argparse
import io
import json
import multiprocessing
import os
import random
import tarfile
import time
from multiprocessing import Value
from pathlib import Path

import numpy as np
import torch
from names import SYNC
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
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
    """Texts in a data set of Hugging Face's (Arrow files, mapped to memory), through its tokenizer."""
    from datasets import Dataset as Table
    from datasets import load_from_disk
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = [f"word{index}" for index in range(5000)]
    if not (folder / "texts").exists():
        draw = random.Random(0)
        Table.from_dict({"text": [" ".join(draw.choices(words, k=draw.randint(50, 1200))) for _ in range(3000)]}).save_to_disk(
            folder / "texts"
        )
    texts = load_from_disk(folder / "texts")
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()

    def sample(index):
        return torch.tensor(tokenizer.encode(texts[index % len(texts)]["text"]).ids)

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


@pipeline
def shards(folder):
    """Tar files of JPEGs through webdataset, shared out among the workers, again and again."""
    import webdataset

    found = folder / "shards"
    if not found.exists():
        files = images(folder, "jpeg", 200, (320, 240))
        found.mkdir(parents=True)
        for number in range(8):
            with tarfile.open(found / f"{number}.tar", "w") as tar:
                for path in files[number::8]:
                    tar.add(path, path.name)

    def sample(image):
        return torch.from_numpy(np.asarray(image.resize((128, 128))).copy()).permute(2, 0, 1).float() / 255, 1

    paths = [str(path) for path in sorted(found.iterdir())]
    return webdataset.WebDataset(paths, shardshuffle=False).repeat().decode("pil").to_tuple("jpeg").map(lambda one: sample(one[0])), {
        "batch_size": 16
    }


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


class Pace:
    """A core's time for the same little work, now and then between samples, in the process that makes them: cores of a virtual
    machine change their speed. Written to the file that PACE_FILE names: process and seconds of each."""

    COUNT, A_BATCH = 1500, 8

    def __init__(self, batch_size):
        self.every = max(1, batch_size // self.A_BATCH)
        self.calls = 0
        self.file = os.open(os.environ["PACE_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def __call__(self, sample):
        self.calls += 1
        if self.calls % self.every == 0:
            begin, total = time.thread_time_ns(), 0
            for number in range(self.COUNT):
                total += number
            os.write(self.file, f"{os.getpid()} {(time.thread_time_ns() - begin) / 1e9:.9f}\n".encode())
        return sample


class Paced(Dataset):
    def __init__(self, dataset, pace):
        self.dataset, self.pace = dataset, pace

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.pace(self.dataset[index])


def loader_of(name, folder, workers, bytes_per_s=0):
    dataset, options = MAKE[name](folder, bytes_per_s) if bytes_per_s else MAKE[name](folder)
    if "PACE_FILE" in os.environ:
        pace = Pace(options["batch_size"])
        dataset = dataset.map(pace) if hasattr(dataset, "map") else Paced(dataset, pace)
    return DataLoader(dataset, num_workers=workers, pin_memory=SYNC[name] != "copy" and torch.cuda.is_available(), **options)


# ---- the training loop -----------------------------------------------------------------------------------------------------------


def train(loader, sync, rows, enough):
    """`rows`: the amount of work on the card for each batch. `enough` gets the step's end, an event of the card's, and says when to stop."""
    model = nn.Sequential(*(nn.Linear(4096, 4096, bias=False, device="cuda") for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    ones = torch.ones(rows, 4096, device="cuda")
    for batch, labels in loader:
        x = batch.to("cuda", non_blocking=sync != "copy").float()
        labels = labels.to("cuda", non_blocking=sync != "copy")
        loss = model(ones).mean() + x.mean() + labels.float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if sync == "item":
            loss.item()
        end = torch.cuda.Event(enable_timing=True)
        end.record()
        if enough(end):
            return


class Stopwatch:
    """Milliseconds per step on the card, without the first ones, over whole rounds of the workers."""

    def __init__(self, workers, seconds):
        self.round, self.warm, self.seconds = max(1, workers), 3 + 3 * workers, seconds
        self.ends = []
        self.began = self.cpu = None

    def __call__(self, end):
        self.ends.append(end)
        done = len(self.ends) - self.warm
        if done == 1:
            self.began, self.cpu = time.perf_counter(), cpu_s()
        return done > 10 and time.perf_counter() - self.began > self.seconds

    def found(self):
        torch.cuda.synchronize()
        took = time.perf_counter() - self.began
        busy, own = (after - before for before, after in zip(self.cpu, cpu_s()))
        ends = self.ends[self.warm - 1 :]
        last = (len(ends) - 1) // self.round * self.round
        return {"step_ms": ends[0].elapsed_time(ends[last]) / last, "others": max(0.0, busy - own) / took}


def cpu_s():
    """CPU time of the whole machine, and of this process with its workers."""

    def seconds(path, fields):
        with open(path, encoding="ascii", errors="replace") as file:
            words = file.readline().rpartition(") ")[2].split()
        return sum(int(words[field]) for field in fields) / os.sysconf("SC_CLK_TCK")

    workers = sum(seconds(f"/proc/{child.pid}/stat", (11, 12)) for child in multiprocessing.active_children())
    return seconds("/proc/stat", (1, 2, 3, 6, 7)), workers + seconds("/proc/self/stat", (11, 12, 13, 14))  # with workers that have ended


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MAKE)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--rows", type=int, default=512, help="amount of work on the card (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--bytes-per-s", type=float, default=0)
    args = parser.parse_args()
    loader = loader_of(args.name, args.folder, args.workers, args.bytes_per_s)
    watch = Stopwatch(args.workers, args.seconds)
    train(loader, SYNC[args.name], args.rows, watch)
    print(json.dumps(watch.found()), flush=True)


if __name__ == "__main__":
    main()
