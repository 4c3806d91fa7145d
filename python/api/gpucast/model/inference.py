"""The script of a model that generates text: weights, one prefill, some decoded tokens; and what it prints."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .configs import Model
from .script import Environment, Training, config_lines, model_arguments

STAGES = {
    "weights": "weights",
    "kv_cache": "KV cache, at the end",
    "prefill_peak": "peak of prefill, allocated",
    "decode_peak": "peak of decode, allocated",
}


@dataclass(frozen=True)
class Inference:
    batch: int = 1
    length: int = 2048
    new_tokens: int = 16
    precision: str = "bf16"
    attention: str = ""

    def __str__(self) -> str:
        return ", ".join(part for part in ("inference", self.precision, self.attention, f"{self.new_tokens} new tokens") if part)


def inference_script(model: Model, inference: Inference, environment: Environment) -> str:
    arguments = model_arguments(model, environment, Training(precision=inference.precision).dtype, inference.attention)
    vocabulary = "config.text_config.vocab_size" if "text_config" in model.config else "config.vocab_size"
    return f'''"""Generates text with {model.name} ({inference}) and random weights. Written by `gpucast model`; on a real card:

    python generate.py
"""

import torch
from transformers import AutoConfig, AutoModelForCausalLM

BATCH = {inference.batch}
LENGTH = {inference.length}  # tokens of each prompt
NEW_TOKENS = {inference.new_tokens}

{config_lines(model)}
model = AutoModelForCausalLM.from_config(config, {arguments}).cuda().eval()
print(f"weights_bytes={{torch.cuda.memory_allocated()}}")


def peak(stage):
    print(f"{{stage}}_peak_bytes={{torch.cuda.max_memory_allocated()}}")
    torch.cuda.reset_peak_memory_stats()


def cache_bytes(cache):
    pairs = [(layer.keys, layer.values) for layer in cache.layers] if hasattr(cache, "layers") else zip(cache.key_cache, cache.value_cache)
    return sum(one.numel() * one.element_size() for pair in pairs for one in pair)


with torch.inference_mode():
    prompt = torch.randint({vocabulary}, (BATCH, LENGTH), device="cuda")
    output = model(prompt, use_cache=True, logits_to_keep=1)
    peak("prefill")
    for _ in range(NEW_TOKENS):
        token = output.logits[:, -1:].argmax(-1)
        output = model(token, past_key_values=output.past_key_values, use_cache=True)
    peak("decode")
print(f"kv_cache_bytes={{cache_bytes(output.past_key_values)}}")
'''


def stages_of(printed: str) -> dict[str, int]:
    """{"weights_bytes": ...} of what the script printed."""
    found = dict(re.findall(r"^(\w+_bytes)=(\d+)$", printed, re.MULTILINE))
    return {f"{name}_bytes": int(found[f"{name}_bytes"]) for name in STAGES if f"{name}_bytes" in found}


def stage_lines(stages: dict[str, int]) -> list[str]:
    lines = [f"  {text:38} {stages[name + '_bytes'] / 2**20:11.2f} MiB" for name, text in STAGES.items() if f"{name}_bytes" in stages]
    return ["Inference", *lines, ""] if lines else []
