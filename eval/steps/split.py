"""The models for fitting constants, and those for judging them: by architecture, so other weights, or TensorFlow's padding, do not make
another model."""

import hashlib
import random
import re

PREFIXES = ("adv", "dm", "ens", "gluon", "ig", "jx", "legacy", "ssl", "swsl", "tf", "tv")
SUFFIXES = (
    "ap",
    "ns",
    "sam",
    "dist",
    "distilled",
    "bitm",
    "bit",
    "teacher",
    "in21ft1k",
    "in22ft1k",
    "22kft1k",
    "in21k",
    "hnf",
    "hnfd",
    "pruned",
)


def architecture(model):
    words = model.split(".")[0].split("_")
    while len(words) > 1 and words[0] in PREFIXES:
        words = words[1:]
    while len(words) > 1 and words[-1] in SUFFIXES:
        words = words[:-1]
    return re.sub(r"^(efficientnet_b\d)a$", r"\1", "_".join(words))


def half(model):
    """True: constants may be fitted on it. Fixed for ever, so the committed constants never saw the others."""
    return hashlib.sha1(architecture(model).encode()).digest()[-1] % 2 == 0


def random_half(models, seed):
    """The architectures of one half of these models, by seed."""
    names = sorted({architecture(model) for model in models})
    random.Random(seed).shuffle(names)
    return set(names[: len(names) // 2])
