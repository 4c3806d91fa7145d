"""What a model is trained on. A new kind is one entry of KINDS."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass

from ..command import Error
from .configs import Model
from .mappings import config_types, types_of


@dataclass(frozen=True)
class Kind:
    name: str
    auto_class: str  # of transformers
    sample: tuple[str, ...]  # the lines of a dataset's __getitem__
    length: str = "tokens"  # what --seq counts; "": nothing
    task_type: str | None = None  # PEFT's


_TOKENS = (
    "ids = torch.randint(vocabulary, (LENGTH,))",
    'return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}',
)
KINDS = (  # in the order in which they are looked for where the config names no architecture
    Kind(
        "speech",
        "AutoModelForSpeechSeq2Seq",
        (
            "sound = torch.randn(config.num_mel_bins, 2 * config.max_source_positions, dtype=DTYPE)",
            'return {"input_features": sound, "labels": torch.randint(vocabulary, (LENGTH,))}',
        ),
    ),
    Kind(
        "image classes",
        "AutoModelForImageClassification",
        (
            'image = torch.randn(getattr(config, "num_channels", 3), LENGTH, LENGTH, dtype=DTYPE)',
            'return {"pixel_values": image, "labels": torch.randint(config.num_labels, ())}',
        ),
        "pixels",
    ),
    Kind("seq2seq", "AutoModelForSeq2SeqLM", _TOKENS, task_type="SEQ_2_SEQ_LM"),
    Kind("masked words", "AutoModelForMaskedLM", _TOKENS),
    Kind("next word", "AutoModelForCausalLM", _TOKENS, task_type="CAUSAL_LM"),
    Kind(
        "ctc",
        "AutoModelForCTC",
        (
            "sound = torch.randn(LENGTH, dtype=DTYPE)",
            'return {"input_values": sound, "labels": torch.randint(1, vocabulary, (LENGTH // 16000 * 10,))}',
        ),
        "sound samples",
    ),
)
NEXT_WORD = next(kind for kind in KINDS if kind.name == "next word")
_DEFAULT_LENGTH = {"tokens": 2048, "pixels": 224, "sound samples": 160000}
# Where a config says how long a sample can be.
_LIMITS = ("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len", "seq_length")
_RELATIVE_POSITIONS = ("t5", "mt5", "umt5", "longt5")  # no limit: their attention counts distances


def kind_of(model: Model) -> Kind:
    """Throws Error where this Python's transformers does not know the model, or no kind trains it."""
    if model.model_type not in config_types() and not model.own_code:
        release = importlib.metadata.version("transformers")
        what = f"transformers {release} does not know the architecture {model.model_type!r}"
        raise Error(what, model.source, "a newer transformers may: pip install -U transformers")
    if any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in model.architectures) or model.model_type not in config_types():
        kind = NEXT_WORD
    else:
        kind = next((kind for kind in KINDS if model.model_type in types_of(kind.auto_class)), None)
    if kind is None:
        names = ", ".join(one.name for one in KINDS)
        raise Error(f"nothing here trains a model of the type {model.model_type!r}", model.source, f"kinds of training: {names}")
    return kind


def is_known(model: Model) -> bool:
    """transformers itself has the architecture, so the repository's own code is not needed."""
    return model.model_type in config_types()


def longest(model: Model) -> int | None:
    """The longest sample in tokens, where the config says it."""
    names = [name for name in _LIMITS if isinstance(model.text.get(name), int)]
    positions = model.text[names[0]] if names else None
    if positions is not None and model.model_type in ("roberta", "xlm-roberta", "camembert"):  # two positions are for padding
        return positions - 2
    return positions


def default_length(model: Model, kind: Kind) -> int:
    if kind.length == "pixels":
        size = model.config.get("image_size", _DEFAULT_LENGTH["pixels"])
        return size if isinstance(size, int) else _DEFAULT_LENGTH["pixels"]
    return min(_DEFAULT_LENGTH[kind.length], (longest(model) if kind.length == "tokens" else None) or 1 << 40)


def check_length(model: Model, kind: Kind, length: int) -> None:
    relative = model.model_type in _RELATIVE_POSITIONS
    most = longest(model) if kind.length == "tokens" and not relative else None
    if most is not None and length > most:
        raise Error(f"{model.name} takes at most {most:,} tokens", f"--seq {length}", f"say --seq {most} or less")
