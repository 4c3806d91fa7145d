#!/usr/bin/env python3
"""One measured run of the xMem artifact, repeated: same model, optimizer, batch size and order of operations.

Started by xmem_rows.py, on PyTorch 2.6.0 and transformers 4.51.3. It also runs on a real card.
"""

import argparse
import json
from pathlib import Path

import torch

# torchvision builders and their number of classes.
CNNS = {
    "VGG16": ("vgg16", 1000),
    "VGG19": ("vgg19", 1000),
    "ResNet101": ("resnet101", 1000),
    "ResNet152": ("resnet152", 1000),
    "MobileNetV2": ("mobilenet_v2", 1000),
    "ConvNeXtTiny": ("convnext_tiny", 1000),
    "ConvNeXtBase": ("convnext_base", 1000),
    "RegNetX400MF": ("regnet_x_400mf", 1000),
    "RegNetY400MF": ("regnet_y_400mf", 1000),
    "MnasNet": ("mnasnet1_0", 10),
    "MobeNetV3Small": ("mobilenet_v3_small", 10),
    "MobeNetV3Large": ("mobilenet_v3_large", 10),
}
SEQUENCE_LENGTH = 128


def config_path(model: str) -> Path:
    return Path(__file__).parent / "configs" / (model.replace("/", "__") + ".json")


def make_optimizer(name: str, parameters):
    if name == "Adafactor":
        from transformers import Adafactor

        return Adafactor(parameters, lr=0.001, relative_step=False)
    return getattr(torch.optim, name)(parameters, lr=0.001)


def train_cnn(args, device):
    import torchvision

    builder, classes = CNNS[args.model]
    model = getattr(torchvision.models, builder)(num_classes=classes)
    model.to(device)
    model.train()
    optimizer = make_optimizer(args.optimizer, model.parameters())
    loss_function = torch.nn.CrossEntropyLoss()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)

    def batches():
        for _ in range(args.iterations):
            yield torch.zeros(args.batch, 3, 86, 86), torch.zeros(args.batch, dtype=torch.int64)

    for inputs, labels in batches():
        if args.zero_grad == 0:
            optimizer.zero_grad()
        inputs = inputs.to(device)
        labels = labels.to(device)
        outputs = model(inputs)
        loss = loss_function(outputs, labels)
        if args.zero_grad == 1:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        _, predictions = torch.max(outputs, 1)
        if args.zero_grad == 2:
            optimizer.zero_grad()
        scheduler.step()


def train_transformer(args, device):
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    fields = json.loads(config_path(args.model).read_text())
    config = AutoConfig.for_model(**fields)
    auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    model = auto.from_config(config)
    model.train()
    optimizer = make_optimizer(args.optimizer, model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)
    model.to(device)

    def batches():
        for _ in range(args.iterations):
            ids = torch.randint(config.vocab_size, (args.batch, SEQUENCE_LENGTH))
            # Texts are shorter than the longest one and padded, so the mask is never all ones.
            mask = torch.ones_like(ids)
            mask[:, SEQUENCE_LENGTH // 2 :] = 0
            yield {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}

    for index, batch in enumerate(batches()):
        if args.zero_grad == 0:
            optimizer.zero_grad()
        batch = {key: value.to(device) for key, value in batch.items()}
        outputs = model(**batch)
        loss = outputs.loss
        if args.zero_grad == 1:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.zero_grad == 2:
            optimizer.zero_grad()
        if index < args.iterations - 1:
            scheduler.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--optimizer", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument(
        "--zero-grad", type=int, choices=[0, 1, 2], required=True, help="0: first in the iteration, 1: before backward, 2: last"
    )
    parser.add_argument("--iterations", type=int, default=4)
    args = parser.parse_args()
    (train_cnn if args.model in CNNS else train_transformer)(args, torch.device("cuda"))


if __name__ == "__main__":
    main()
