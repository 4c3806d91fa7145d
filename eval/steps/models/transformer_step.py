"""A Hugging Face model forward, or forward and backward without an optimizer, in fp32 with eager attention: NeuSight's labels.
A configuration's own type (bfloat16 for Switch Transformers) was not used there: their labels' operators are all in fp32.

    python transformer_step.py --config bert_large.json --batch 8 --length 512 --mode train

Gradients are never set to zero there, so the backward pass adds to them. The allocator's cache is emptied before each forward pass.
"""

import argparse
import gc
import json
from pathlib import Path

import torch
import transformers
from step_job import STEPS, StepEnd


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True, help="config.json of the model")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--mode", choices=["train", "infer"], required=True)
    return parser.parse_args()


def make_model(config, train):
    architecture = config.architectures[0].lower()
    if "switch" in architecture:
        family = transformers.AutoModelForSeq2SeqLM
    elif "bert" in architecture:
        family = transformers.AutoModelForPreTraining if train else transformers.AutoModelForSequenceClassification
    else:
        family = transformers.AutoModelForCausalLM
    # On the card from the start: filling the weights of a large model on the host takes longer than everything else.
    with torch.device("cuda"):
        model = family.from_config(config, attn_implementation="eager", torch_dtype=torch.float32)
    return model.to("cuda")


def main():
    args = parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    settings = json.loads(args.config.read_text())
    config = transformers.AutoConfig.for_model(**settings)
    train = args.mode == "train"
    model = make_model(config, train).train(train)
    step_end = StepEnd()
    tokens = torch.ones(args.batch, args.length, dtype=torch.int64, device="cuda")
    inputs = {"input_ids": tokens}
    if config.is_encoder_decoder:
        inputs.update(attention_mask=tokens, decoder_input_ids=tokens)
    gc.collect()
    gc.freeze()  # a collection in each step is outside the measured time, so it must take none
    for _ in range(STEPS):
        gc.collect()
        torch.cuda.empty_cache()
        with torch.set_grad_enabled(train):
            result = model(**inputs)
        if train:
            logits = result["prediction_logits"] if "prediction_logits" in result else result["logits"]
            loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), tokens.view(-1))
            del result, logits
            loss.backward()
        torch.cuda.synchronize()
        step_end()


if __name__ == "__main__":
    main()
