"""TRL's trainers on a text of random words, a tokenizer made here: with_trl.py sft|dpo|reward|grpo."""

import random
import sys

import counters  # noqa: F401
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedTokenizerFast

WORDS = [f"w{place}" for place in range(500)]
names = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{word: place + 3 for place, word in enumerate(WORDS)}}
raw = Tokenizer(models.WordLevel(names, unk_token="<unk>"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
config = LlamaConfig(
    hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, vocab_size=len(names), pad_token_id=0, eos_token_id=1,
    num_labels=1,
)  # fmt: skip


def text(words=12):
    return " ".join(random.choices(WORDS, k=words))


def arguments(kind, steps=3, **more):
    return kind(output_dir="out", max_steps=steps, per_device_train_batch_size=4, report_to=[], save_strategy="no", bf16=True, **more)


kind = sys.argv[1]
if kind == "sft":
    from trl import SFTConfig, SFTTrainer

    data = Dataset.from_list([{"text": text(30)} for _ in range(32)])
    trainer = SFTTrainer(LlamaForCausalLM(config), arguments(SFTConfig, max_length=64), train_dataset=data, processing_class=tokenizer)
elif kind == "dpo":
    from trl import DPOConfig, DPOTrainer

    data = Dataset.from_list([{"prompt": text(), "chosen": text(), "rejected": text()} for _ in range(32)])
    trainer = DPOTrainer(
        LlamaForCausalLM(config), LlamaForCausalLM(config), args=arguments(DPOConfig), train_dataset=data, processing_class=tokenizer
    )
elif kind == "reward":
    from trl import RewardConfig, RewardTrainer

    data = Dataset.from_list([{"prompt": text(), "chosen": text(), "rejected": text()} for _ in range(32)])
    trainer = RewardTrainer(LlamaForSequenceClassification(config), arguments(RewardConfig), train_dataset=data, processing_class=tokenizer)
else:
    from trl import GRPOConfig, GRPOTrainer

    def reward(completions, **_):
        return [float(len(set(one.split()))) for one in completions]

    data = Dataset.from_list([{"prompt": text()} for _ in range(32)])
    more = arguments(GRPOConfig, 2, num_generations=4, max_completion_length=16)
    trainer = GRPOTrainer(LlamaForCausalLM(config), reward, more, data, processing_class=tokenizer)
trainer.train()
