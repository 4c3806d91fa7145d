#!/usr/bin/env python3
"""The figures of a model that other papers' estimators need, per sample: one JSON line per model.

    gpucast run --gpu rtx3060 -- python -m eval.papers.model_statistics statistics.jsonl VGG16 openai-community/gpt2

On the virtual GPU, so nothing is computed and a CUDA build of PyTorch can be imported.
"""

import json
import sys
from pathlib import Path

import torch

from eval.memory import xmem_workload as workload

IMAGE = (1, 3, 86, 86)


def size_bytes(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def outputs_of(model, *inputs, **named):
    """Bytes of the outputs of all modules without children, in one forward pass."""
    seen = []

    def count(module, given, output):
        found = output if isinstance(output, (tuple, list)) else [output]
        seen.append(size_bytes(tensor for tensor in found if isinstance(tensor, torch.Tensor)))

    for module in model.modules():
        if not list(module.children()):
            module.register_forward_hook(count)
    model(*inputs, **named)
    return sum(seen)


def of_cnn(name):
    import torchvision

    builder, classes = workload.CNNS[name]
    model = getattr(torchvision.models, builder)(num_classes=classes)
    image = torch.zeros(IMAGE)
    return {
        "input_bytes": size_bytes([image]),
        "parameters_bytes": size_bytes(model.parameters()),
        "outputs_bytes": outputs_of(model, image),
    }


def of_transformer(name):
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    config = AutoConfig.for_model(**json.loads(workload.config_path(name).read_text()))
    decoder_only = not config.is_encoder_decoder
    model = (AutoModelForCausalLM if decoder_only else AutoModelForSeq2SeqLM).from_config(config, attn_implementation="eager")
    ids = torch.zeros(1, workload.SEQUENCE_LENGTH, dtype=torch.int64)
    named = {} if decoder_only else {"decoder_input_ids": ids}
    statistics = {
        "input_bytes": 3 * size_bytes([ids]),  # tokens, mask, labels
        "parameters_bytes": size_bytes(model.parameters()),
        "outputs_bytes": outputs_of(model, input_ids=ids, **named),
    }
    if decoder_only:
        statistics["decoder"] = {
            "layers": config.num_hidden_layers,
            "hidden": config.hidden_size,
            "vocabulary": config.vocab_size,
            "length": workload.SEQUENCE_LENGTH,
            # Tensor by tensor, because each is rounded up; a matrix that embedding and output share counts once.
            "weights_bytes": [size_bytes([weight]) for weight in model.parameters() if weight.dim() > 1],
        }
    return statistics


def main():
    torch.set_default_device("cuda")
    torch.set_grad_enabled(False)
    path, *names = sys.argv[1:]
    lines = [{"model": name, **(of_cnn if name in workload.CNNS else of_transformer)(name)} for name in names]
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
