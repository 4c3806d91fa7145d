"""Fine-tunes BERT as a classifier with transformers' Trainer, with the calls and settings of its example run_glue.py: made sentences, padded
to 128 tokens as that script pads them, random weights of the real shape, checkpoints every 500 steps, an evaluation after the training."""

import argparse
import random

import torch
import transformers


class Sentences(torch.utils.data.Dataset):
    """`count` rows as the example's tokenizer leaves them: lists of whole numbers, which the default collator makes tensors of."""

    def __init__(self, count, length, vocabulary, classes):
        self.count, self.classes = count, classes
        tokens = random.Random(1).choices(range(1000, vocabulary), k=length // 2) + [0] * (length - length // 2)
        mask = [1] * (length // 2) + [0] * (length - length // 2)
        self.row = {"input_ids": tokens, "token_type_ids": [0] * length, "attention_mask": mask}

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return {**self.row, "label": i % self.classes}


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())}


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--train-samples", type=int, required=True)
parser.add_argument("--validation-samples", type=int, required=True)
parser.add_argument("--epochs", type=float, required=True)
parser.add_argument("--classes", type=int, default=2)
parser.add_argument("--vocabulary", type=int, default=28_996)
parser.add_argument("--save-steps", type=int, default=500)
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--out", required=True)
args = parser.parse_args()

transformers.set_seed(42)
config = transformers.BertConfig(vocab_size=args.vocabulary, num_labels=args.classes, attn_implementation="eager")
trainer = transformers.Trainer(
    model=transformers.BertForSequenceClassification(config),
    args=transformers.TrainingArguments(
        output_dir=args.out,
        per_device_train_batch_size=32,
        learning_rate=2e-5,
        num_train_epochs=args.epochs,
        save_strategy="steps" if args.save_steps > 0 else "no",
        save_steps=max(args.save_steps, 1),
        fp16=args.fp16,
        report_to=[],
    ),
    train_dataset=Sentences(args.train_samples, 128, args.vocabulary, args.classes),
    eval_dataset=Sentences(args.validation_samples, 128, args.vocabulary, args.classes),
    compute_metrics=accuracy,
    data_collator=transformers.default_data_collator,
)
trainer.train()
trainer.save_model()
print(trainer.evaluate())
