#!/usr/bin/env python3
"""An ordinary training script, the job of every case in the matrix. It knows nothing of gpucast.

    python train.py --model resnet101 --batch 16 --optimizer AdamW --zero-grad start
    python train.py --model gpt2 --batch 4 --optimizer SGD --zero-grad after_step --device cpu --trace loop.json.gz

CNNs come from torchvision, transformers from the public configurations in eval/memory/configs; weights and data are random.
"""

import argparse
import contextlib
import importlib
import json
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

# Any other model is torchvision's.
TRANSFORMERS = {
    "gpt2": "openai-community__gpt2",
    "distilgpt2": "distilbert__distilgpt2",
    "opt-125m": "facebook__opt-125m",
    "opt-350m": "facebook__opt-350m",
    "gpt-neo-125m": "EleutherAI__gpt-neo-125M",
    "cerebras-gpt-111m": "cerebras__Cerebras-GPT-111M",
    "t5-small": "T5-small",
    "pythia-160m": "EleutherAI__pythia-160m",
    "qwen3-0.6b": "Qwen__Qwen3-0.6B",
}
# A configuration's names for its number of layers.
LAYER_FIELDS = ("n_layer", "num_hidden_layers", "num_layers", "num_decoder_layers")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="torchvision's name, or one of " + ", ".join(TRANSFORMERS))
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--optimizer", default="AdamW", help="name in torch.optim")
    parser.add_argument("--momentum", type=float, default=0.0, help="of SGD and RMSprop")
    parser.add_argument("--zero-grad", choices=["start", "before_backward", "after_step"], default="start")
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--classes", type=int, default=1000, help="of a CNN")
    parser.add_argument("--seq", type=int, default=128, help="tokens in a text")
    parser.add_argument("--layers", type=int, help="of a transformer, if not its configuration's")
    parser.add_argument("--no-mask", action="store_true", help="texts without padding and without an attention mask")
    parser.add_argument("--accumulate", type=int, default=1, help="batches in an optimizer step")
    parser.add_argument("--trace", type=Path, help="profile the loop with torch.profiler, as its tutorials do, and write the trace here")
    parser.add_argument("--trace-all", action="store_true", help="with --trace: profile the construction of the model, too")
    return parser.parse_args()


def make_optimizer(args, parameters):
    momentum = {"momentum": args.momentum} if args.momentum else {}
    return getattr(torch.optim, args.optimizer)(parameters, lr=0.001, **momentum)


def make_cnn(args):
    import torchvision

    model = getattr(torchvision.models, args.model)(num_classes=args.classes)
    count = args.batch * args.iterations * args.accumulate
    data = TensorDataset(torch.randn(count, 3, 86, 86), torch.randint(args.classes, (count,)))
    return model, data


def read_config(args):
    fields = json.loads((Path(__file__).resolve().parents[1] / "memory/configs" / (TRANSFORMERS[args.model] + ".json")).read_text())
    return {**fields, **{name: args.layers for name in LAYER_FIELDS if args.layers and name in fields}}


def make_transformer(args):
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    config = AutoConfig.for_model(**read_config(args))
    auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    model = auto.from_config(config)
    ids = torch.randint(config.vocab_size, (args.batch * args.iterations * args.accumulate, args.seq))
    # Texts are shorter than the longest one and padded, like batches of real text.
    mask = torch.ones_like(ids)
    mask[:, args.seq * 3 // 4 :] = 0
    if args.no_mask:
        return model, TensorDataset(ids, ids)
    return model, TensorDataset(ids, ids.masked_fill(mask == 0, -100), mask)


def train_cnn(args, model, loader, optimizer, profiler):
    loss_function = torch.nn.CrossEntropyLoss()
    for index, (inputs, labels) in enumerate(loader):
        first, last = index % args.accumulate == 0, index % args.accumulate == args.accumulate - 1
        if first and args.zero_grad == "start":
            optimizer.zero_grad()
        inputs, labels = inputs.to(args.device), labels.to(args.device)
        outputs = model(inputs)
        loss = loss_function(outputs, labels)
        if first and args.zero_grad == "before_backward":
            optimizer.zero_grad()
        loss.backward()
        if last:
            optimizer.step()
            if args.zero_grad == "after_step":
                optimizer.zero_grad()
        profiler.step()


def train_transformer(args, model, loader, optimizer, profiler):
    for index, texts in enumerate(loader):
        first, last = index % args.accumulate == 0, index % args.accumulate == args.accumulate - 1
        if first and args.zero_grad == "start":
            optimizer.zero_grad()
        batch = {name: tensor.to(args.device) for name, tensor in zip(("input_ids", "labels", "attention_mask"), texts)}
        outputs = model(**batch)
        loss = outputs.loss
        if first and args.zero_grad == "before_backward":
            optimizer.zero_grad()
        loss.backward()
        if last:
            optimizer.step()
            if args.zero_grad == "after_step":
                optimizer.zero_grad()
        profiler.step()


def make_profiler():
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True)


class NoProfiler(contextlib.nullcontext):
    def step(self):
        pass


def main():
    args = parse_args()
    torch.manual_seed(0)
    if args.model in TRANSFORMERS:
        kind = read_config(args)["model_type"]
        importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")  # imports must not be in the profile
        make, train = make_transformer, train_transformer
    else:
        import torchvision  # noqa: F401

        make, train = make_cnn, train_cnn
    profiler = make_profiler() if args.trace else NoProfiler()
    with contextlib.ExitStack() as stack:
        if args.trace_all:
            stack.enter_context(profiler)
        model, data = make(args)
        model.to(args.device)
        model.train()
        optimizer = make_optimizer(args, model.parameters())
        loader = DataLoader(data, batch_size=args.batch, shuffle=True)
        if not args.trace_all:
            stack.enter_context(profiler)
        train(args, model, loader, optimizer, profiler)
    if args.trace:
        profiler.export_chrome_trace(str(args.trace))


if __name__ == "__main__":
    main()
