"""The training script of a model, as text: what one would write by hand with transformers' Trainer, and PEFT for adapters."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from .configs import Model
from .kinds import Kind

_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}  # others: float32


@dataclass(frozen=True)
class Training:
    train: str = "full"  # full, lora, qlora
    batch: int = 1  # of each card
    length: int = 2048
    precision: str = "bf16"
    optimizer: str = ""  # the Trainer's own
    checkpointing: bool = False
    attention: str = ""  # the model's own
    rank: int = 16
    gpus: int = 1
    division: str = ""  # ddp, fsdp, zero3

    @property
    def dtype(self) -> str:
        return "torch." + _DTYPES.get(self.precision, "float32")

    def without_precision(self) -> str:
        return str(replace(self, precision=""))

    def __str__(self) -> str:
        adapters = f" of rank {self.rank}" if self.train != "full" else ""
        parts = [self.train + adapters, self.precision, self.optimizer, "checkpointing" if self.checkpointing else "", self.attention]
        parts.append(f"{self.division} on {self.gpus} cards" if self.division else "")
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Environment:
    """What a script may say depends on the releases it is for."""

    transformers: tuple[int, ...]

    @property
    def dtype_argument(self) -> str:
        return "dtype" if self.transformers >= (4, 56) else "torch_dtype"

    @property
    def fsdp(self) -> tuple[str, ...]:
        return ("fsdp=True",) if self.transformers >= (5,) else ('fsdp="full_shard auto_wrap"',)


def config_lines(model: Model) -> str:
    """How a script makes the model's config."""
    if model.own_code:
        return f"config = AutoConfig.from_pretrained({_python(model.repository)}, trust_remote_code=True)"
    fields = "".join(f"    {_python(key)}: {_python(value)},\n" for key, value in {"model_type": model.model_type, **model.config}.items())
    return f"CONFIG = {{\n{fields}}}\nconfig = AutoConfig.for_model(**CONFIG)"


def _python(value: Any) -> str:
    """As ruff writes it: with double quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_python(key)}: {_python(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_python, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def model_arguments(model: Model, environment: Environment, dtype: str, attention: str) -> str:
    more = f', attn_implementation="{attention}"' if attention else ""
    return f"{environment.dtype_argument}={dtype}{more}" + (", trust_remote_code=True" if model.own_code else "")


def training_script(model: Model, kind: Kind, training: Training, environment: Environment) -> str:
    vocabulary = "config.text_config.vocab_size" if "text_config" in model.config else "config.vocab_size"
    sample = "\n".join(f"        {line}".replace("vocabulary", vocabulary).replace("DTYPE", training.dtype) for line in kind.sample)
    launch = f"torchrun --nproc-per-node {training.gpus} train.py" if training.gpus > 1 else "python train.py"
    parts = [
        f'"""Trains {model.name} ({training}) with random weights and random data. Written by `gpucast model`; on real cards:\n\n    {launch}\n"""\n',
        "import torch",
        *(["from peft import LoraConfig, get_peft_model" + (", prepare_model_for_kbit_training" if training.train == "qlora" else "")]
          if training.train != "full" else []),
        f"from transformers import {', '.join(sorted(_imported(kind, training)))}\n",
        f"BATCH = {training.batch}  # of each card",
        f"LENGTH = {training.length}  # {kind.length} of a sample\n",
        "arguments = TrainingArguments(\n" + "".join(f"    {line},\n" for line in _arguments(training, environment)) + ")",
        config_lines(model),
        _model_lines(model, kind, training, environment),
        f"""

class RandomData(torch.utils.data.Dataset):
    def __len__(self):
        return 1000000

    def __getitem__(self, index):
{sample}


Trainer(model, arguments, train_dataset=RandomData()).train()
print(f"torch.cuda.max_memory_allocated() {{torch.cuda.max_memory_allocated():,}} bytes")
""",
    ]  # fmt: skip
    return "\n".join(parts)


def _imported(kind: Kind, training: Training) -> set[str]:
    return {"AutoConfig", kind.auto_class, "Trainer", "TrainingArguments"} | (
        {"BitsAndBytesConfig"} if training.train == "qlora" else set()
    )


def _arguments(training: Training, environment: Environment) -> list[str]:
    lines = [
        'output_dir="out"',
        'save_strategy="no"',
        'report_to="none"',
        "max_steps=5",
        "per_device_train_batch_size=BATCH",
    ]
    if training.precision.endswith("-mixed") or (training.division == "zero3" and training.precision in _DTYPES):
        lines.append(f"{training.precision[:4]}=True")  # DeepSpeed keeps weights in fp32 of its own either way
    if training.optimizer:
        lines.append(f'optim="{training.optimizer}"')
    if training.checkpointing and training.division == "fsdp":
        lines.append('fsdp_config={"activation_checkpointing": True}')
    elif training.checkpointing:
        lines.append("gradient_checkpointing=True")
    if training.division == "fsdp":
        lines += environment.fsdp
    if training.division == "zero3":
        lines.append(f"deepspeed={_deepspeed(training)}")
    return lines


def _deepspeed(training: Training) -> str:
    kind = {"bf16": "bf16", "fp16": "fp16"}.get(training.precision[:4])
    precision = f'"{kind}": {{"enabled": True}}, ' if kind else ""
    auto = ", ".join(f'"{name}": "auto"' for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"))
    return f'{{"zero_optimization": {{"stage": 3}}, {precision}{auto}}}'


def _model_lines(model: Model, kind: Kind, training: Training, environment: Environment) -> str:
    arguments = model_arguments(model, environment, training.dtype, training.attention)
    build = f"{kind.auto_class}.from_config(config, {arguments})"
    lora = f'LoraConfig(r={training.rank}, lora_alpha={2 * training.rank}, target_modules="all-linear"'
    lora += f', task_type="{kind.task_type}")' if kind.task_type else ")"
    if training.train == "full":
        return f"model = {build}"
    if training.train == "lora":
        return f"model = {build}\nmodel = get_peft_model(model, {lora})"
    compute = training.dtype
    return f"""base = {build}  # on the host
weights = dict({{tensor.data_ptr(): (name, tensor) for name, tensor in reversed(base.state_dict().items())}}.values())  # tied ones once
four_bits = BitsAndBytesConfig(
    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype={compute}
)
device = {{"": arguments.local_process_index}}
model = type(base).from_pretrained(
    None, config=config, state_dict=weights, quantization_config=four_bits, device_map=device, {arguments}
)
del base, weights
model = prepare_model_for_kbit_training(model, use_gradient_checkpointing={training.checkpointing})
model = get_peft_model(model, {lora})"""
