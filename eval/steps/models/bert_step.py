"""BERT large, fine-tuned for questions or one accumulated batch of its pre-training, like NVIDIA's DeepLearningExamples.

    python bert_step.py --task squad --batch 8 --length 384 --precision amp
    python bert_step.py --task pretraining --batch 16 --length 512 --precision amp

Pre-training there takes an optimizer's step each few hundred batches, so a batch is forward and backward.
"""

import argparse

import torch
import transformers
from step_job import STEPS, StepEnd, allow_tf32


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=["squad", "pretraining"], required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--precision", choices=["amp", "fp32"], required=True)
    return parser.parse_args()


def batch_of(args):
    tokens = torch.ones(args.batch, args.length, dtype=torch.long, device="cuda")
    inputs = {"input_ids": tokens, "attention_mask": tokens, "token_type_ids": torch.zeros_like(tokens)}
    zeros = torch.zeros(args.batch, dtype=torch.long, device="cuda")
    if args.task == "squad":
        return {**inputs, "start_positions": zeros, "end_positions": zeros}
    return {**inputs, "labels": tokens, "next_sentence_label": zeros}


def main():
    args = parse_args()
    allow_tf32(args.precision != "fp32")
    config = transformers.BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    family = transformers.BertForQuestionAnswering if args.task == "squad" else transformers.BertForPreTraining
    config._attn_implementation = "eager"
    with torch.device("cuda"):
        model = family(config)
    model = model.to("cuda").train()
    inputs = batch_of(args)
    amp = args.precision == "amp"
    scaler = torch.amp.GradScaler("cuda", enabled=amp)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-5) if args.task == "squad" else None
    step_end = StepEnd() if optimizer is None else None
    for _ in range(STEPS):
        with torch.autocast("cuda", torch.float16, enabled=amp):
            loss = model(**inputs).loss
        scaler.scale(loss).backward()
        if optimizer is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if step_end is not None:
            step_end()


if __name__ == "__main__":
    main()
