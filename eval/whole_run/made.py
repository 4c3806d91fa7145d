"""Data of the measured trainings' sizes, made of noise, and what stands in for packages that the trainers only need to start.

    ENV/bin/python -m eval.whole_run.made NAME CHECKOUT

makes the data of the row NAME. `evaluate` calls it.
"""

import argparse
import json
from pathlib import Path

LABELS_10 = 10
SENTENCE = "one two three four five "

# Each token is a word. The real package downloads its vocabulary.
TIKTOKEN = '''"""Stands in for the package of this name, which downloads its words: each word is a token."""


class Encoding:
    eot_token = 50256

    def encode(self, text, **options):
        return [len(word) for word in text.split()]


def get_encoding(name):
    return Encoding()
'''
WATERMARK = '''"""Stands in for the package of this name, which prints versions."""


def watermark(**options):
    return ""
'''
EMPTY = '"""Stands in for a package that is imported and not used."""\n'


def stand_in(path, text=EMPTY):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def words(count):
    return (SENTENCE * (count // 5 + 1)).split()[:count]


def spam(folder, train=1045, validation=149, test=300, longest=120):
    """The balanced split of the SMS data set: two columns; the longest text has 120 tokens."""
    for name, count in (("train", train), ("validation", validation), ("test", test)):
        lines = [f"{i % 2},{' '.join(words(longest if i == 0 else 10 + i % 40))}\n" for i in range(count)]
        (folder / f"{name}.csv").write_text("Label,Text\n" + "".join(lines))


def reviews(folder, train=35_000, validation=5_000, test=10_000):
    """IMDb's reviews: each split's longest has more than 512 tokens, so the script pads all of it to 512. The raw files are few, because
    the script reads them only to print how many there are of each class."""
    for name, count in (("train", train), ("val", validation), ("test", test)):
        lines = [f"{i},{' '.join(words(700 if i == 0 else 200))},{i % 2}\n" for i in range(count)]
        (folder / f"{name}.csv").write_text("index,text,label\n" + "".join(lines))
    for split in ("train", "test"):
        for kind in ("pos", "neg"):
            raw = folder / "aclImdb" / split / kind
            raw.mkdir(parents=True, exist_ok=True)
            (raw / "0.txt").write_text(SENTENCE)


def distilbert(folder):
    """The shape of distilbert-base-uncased with random weights, under the name by which the script loads it."""
    import transformers

    word_pieces(folder, 30_522)
    transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(num_labels=2)).save_pretrained(folder)


def word_pieces(folder, vocabulary):
    """BERT's kind of tokenizer, with few words of a vocabulary of this size."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    names = special + SENTENCE.split() + [f"unused{i}" for i in range(vocabulary)]
    (folder / "vocab.txt").write_text("\n".join(names[:vocabulary]) + "\n")
    transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt"), model_max_length=512).save_pretrained(folder)


def pictures(folder, train=50_000, test=10_000):
    """CIFAR-10 as airbench keeps it after the first run."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    for name, count in (("train", train), ("test", test)):
        images = torch.randint(0, 256, (count, 32, 32, 3), dtype=torch.uint8)
        labels = torch.randint(0, LABELS_10, (count,))
        torch.save({"images": images, "labels": labels, "classes": [str(i) for i in range(LABELS_10)]}, folder / f"{name}.pt")


def normalized_pictures(path, train=50_000, test=10_000):
    """CIFAR-10 as hlb-CIFAR10 keeps it after the first run: half precision, one-hot labels, saved from the card."""
    from unittest import mock

    import torch

    torch.manual_seed(1)
    data = {}
    for name, count in (("train", train), ("eval", test)):
        targets = torch.nn.functional.one_hot(torch.randint(0, LABELS_10, (count,)), LABELS_10).half()
        data[name] = {"images": torch.randn(count, 3, 32, 32).half(), "targets": targets}
    with mock.patch("torch.serialization.location_tag", lambda storage: "cuda:0"):
        torch.save(data, path)


def cifar10(folder, train_files=5, per_file=10_000):
    """CIFAR-10's own files. Their checksums differ from the real ones: `scripts/run_older.py` lets them pass."""
    import pickle

    import numpy

    folder = folder / "cifar-10-batches-py"
    folder.mkdir(parents=True, exist_ok=True)
    random = numpy.random.default_rng(1)
    for name in [*(f"data_batch_{i + 1}" for i in range(train_files)), "test_batch"]:
        pixels = random.integers(0, 256, (per_file, 3072), dtype=numpy.uint8)
        labels = random.integers(0, LABELS_10, per_file).tolist()
        (folder / name).write_bytes(pickle.dumps({"data": pixels, "labels": labels}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(i) for i in range(LABELS_10)]}))


def fashion(folder):
    """The files of FashionMNIST and MNIST, which have the same form."""
    from eval.made_data import mnist

    mnist(folder)
    target = folder / "FashionMNIST"
    if not target.exists():
        target.symlink_to("MNIST")


def litgpt_model(folder, name):
    """A model of litgpt by its name, with zeros as weights and a made tokenizer."""
    import torch
    from litgpt.config import Config
    from litgpt.model import GPT
    from litgpt.utils import save_config

    from eval.made_data import tokenizer

    tokenizer(folder)
    config = Config.from_name(name)
    with torch.device("meta"):
        shapes = GPT(config).state_dict()
    torch.save({key: torch.zeros(value.shape, dtype=torch.bfloat16) for key, value in shapes.items()}, folder / "lit_model.pth")
    save_config(config, folder)


def alpaca(folder, count=2000, mean_tokens=86, sigma=0.8, longest=460):
    """Instructions and answers whose tokens, with the template's 44, have Alpaca's mean; a word is a token in the made tokenizer."""
    import numpy

    folder.mkdir(parents=True, exist_ok=True)
    drawn = numpy.random.default_rng(1).lognormal(numpy.log(mean_tokens) - sigma**2 / 2, sigma, count)
    lines = []
    for tokens in drawn.clip(8, longest).astype(int).tolist():
        question = max(4, tokens // 5)
        row = {"instruction": " ".join(words(question)), "input": "", "output": " ".join(words(tokens - question))}
        lines.append(json.dumps(row) + "\n")
    (folder / "train.jsonl").write_text("".join(lines))


def main():
    from eval.whole_run.rows import ROWS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[row.name for row in ROWS])
    parser.add_argument("checkout", type=Path)
    args = parser.parse_args()
    for make in next(row for row in ROWS if row.name == args.name).data:
        marker = args.checkout / f".made-{make.name.replace('/', '-')}"
        if not marker.exists():
            make(args.checkout)
            marker.touch()


if __name__ == "__main__":
    main()
