"""Data sets of the right form for public training programs, made of noise: nothing is downloaded."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


def text_data(path, size=2_000_000):
    import numpy as np

    path.parent.mkdir(parents=True, exist_ok=True)
    letters = np.frombuffer(b"etaoinshrdlu cmfwypvbgkqjxz\n", dtype=np.uint8)
    data = letters[np.random.default_rng(1).integers(0, len(letters), size)].tobytes()
    if path.suffix == ".gz":
        import gzip

        data = gzip.compress(data, 1)
    path.write_bytes(data)


def images(folder, count=20_000, size=256, name="{}.jpg"):
    """`count` names of ten pictures."""
    import numpy as np
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    for i in range(count):
        path = folder / name.format(i)
        if i < 10:
            shape = (size, size) if path.suffix == ".gif" else (size, size, 3)
            Image.fromarray(random.integers(0, 2 if path.suffix == ".gif" else 256, shape, dtype=np.uint8)).save(path)
        elif not path.exists():
            os.link(folder / name.format(i % 10), path)


def classes(folder, names="ab", **options):
    for name in names:
        images(folder / name, **options)


def mnist(folder, train=60_000, test=10_000):
    """The files of torchvision's MNIST."""
    import numpy as np

    raw = folder / "MNIST/raw"
    raw.mkdir(parents=True, exist_ok=True)
    for kind, count in (("train", train), ("t10k", test)):
        pixels = np.random.default_rng(1).integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = np.random.default_rng(2).integers(0, 10, count, dtype=np.uint8)
        for name, magic, array in (("images-idx3", 2051, pixels), ("labels-idx1", 2049, labels)):
            head = b"".join(number.to_bytes(4, "big") for number in (magic, *array.shape))
            for end in ("", ".gz"):  # torchvision looks for the first, and some scripts for the second
                (raw / f"{kind}-{name}-ubyte{end}").write_bytes(head + array.tobytes())


def characters(folder):
    """nanoGPT's prepared characters."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "val"):
        np.random.default_rng(1).integers(0, 65, 1_000_000).astype(np.uint16).tofile(folder / f"{name}.bin")
    (folder / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 65, "itos": {}, "stoi": {}}))


def boxes(folder, count=2000):
    """A data set for YOLO: pictures, a label each, its YAML, and the font of its plots."""
    import matplotlib

    images(folder / "images", count=count)
    (folder / "labels").mkdir(exist_ok=True)
    for i in range(count):
        (folder / f"labels/{i}.txt").write_text("0 0.5 0.5 0.3 0.3\n")
    shutil.copy(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf", folder / "Arial.ttf")
    (folder / "data.yaml").write_text(f"path: {folder}\ntrain: images\nval: images\nnames: {{0: thing}}\n")


def yolo_weights(checkout):
    """YOLOv5 loads these for a test of mixed precision, and downloads them otherwise."""
    make = "import torch; from models.yolo import Model; torch.save({'model': Model('models/yolov5n.yaml')}, 'yolov5n.pt')"
    subprocess.run([sys.executable, "-c", make], cwd=checkout, check=True)


def stories(folder):
    """LitGPT's prepared TinyStories: tokens in litdata's form."""
    import torch
    from litdata.streaming import TokensLoader
    from litdata.streaming.writer import BinaryWriter

    (folder / "TinyStories_all_data").mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(("train", "val")):
        (folder / f"TinyStories_all_data/{i}.json").write_text("[]")  # looked for, and not read where there are tokens
        (folder / name).mkdir(exist_ok=True)
        writer = BinaryWriter(str(folder / name), chunk_bytes="64MB", item_loader=TokensLoader(block_size=513))
        for i in range(100):
            writer[i] = torch.randint(0, 50_000, (51_300,), dtype=torch.int32)
        writer.done()
        writer.merge()


def tokenizer(folder):
    import tokenizers
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    made.train_from_iterator(["one two three four five"], tokenizers.trainers.BpeTrainer(vocab_size=2000, special_tokens=["<s>", "</s>"]))
    saved = transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="</s>")
    saved.save_pretrained(folder)


def texts(path, count=2000):
    """A line of JSON each."""
    import random

    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ({"text": " ".join(random.Random(i).choices(["one", "two", "three", "four", "five"], k=300))} for i in range(count))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def small_llama(folder):
    """A model of 7 million parameters with its tokenizer, and a file of texts."""
    import transformers

    tokenizer(folder / "model")
    texts(folder / "text/train.jsonl", count=4000)
    config = transformers.LlamaConfig(vocab_size=2000, hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4)
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "model")


def hours(path):
    """A CSV file in the form of ETTh1: seven series, a row an hour."""
    import numpy as np
    import pandas as pd

    path.parent.mkdir(parents=True, exist_ok=True)
    names = ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]
    table = pd.DataFrame(np.random.default_rng(1).normal(size=(17_420, 7)).round(3), columns=names)
    table.insert(0, "date", pd.date_range("2016-07-01", periods=len(table), freq="h"))
    table.to_csv(path, index=False)


@dataclass(frozen=True)
class Made:
    """To be called with a checkout's folder."""

    name: str
    make: Callable
    options: dict

    def __call__(self, checkout):
        self.make(checkout / self.name, **self.options)


def at(make, folder, **options):
    return Made(folder, make, options)
