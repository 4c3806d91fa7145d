"""Full fine-tuning as fms-acceleration's benchmark starts it: trl's SFTTrainer, as tuning.sft_trainer of fms-hf-tuning calls it.

Weights are not drawn. Prints what the Trainer's memory probes count, added up as benchmark.py does: {"peak": bytes, "allocated": bytes}.
Several ranks: the variables that `accelerate launch` sets with the benchmark's accelerate.yaml are set by the caller.
"""

import argparse
import inspect
import json

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from transformers.modeling_utils import no_init_weights
from trl import SFTConfig, SFTTrainer


def a_model(config):
    kind = config.pop("model_type")
    with no_init_weights():
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(kind, **config), torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2"
        )
    model.tie_weights()
    return model


def a_tokenizer(length):
    words = {"<pad>": 0, "</s>": 1, "<unk>": 2}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"pad_token": "<pad>", "eos_token": "</s>", "bos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=length, **names)


def packed_texts(count, length):
    """Whole sequences, as packing leaves them."""
    tokens = list(range(3, 3 + length))
    return Dataset.from_dict({"input_ids": [tokens] * count})


class Probe(TrainerCallback):
    """Memory where the Trainer's own probe reads it: before the last batches are released."""

    def on_log(self, arguments, state, control, logs=None, **_):
        if "train_runtime" in logs:
            self.allocated = torch.cuda.memory_allocated()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, help="JSON file: the model's config")
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True, help="sequences a device")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--bf16", action="store_true", help="autocast")
    parser.add_argument("--plugins", help="YAML file for fms-acceleration's framework")
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()

    with open(options.config) as file:
        model = a_model(json.load(file))
    tokenizer = a_tokenizer(options.length)
    arguments = SFTConfig(
        output_dir=options.out,
        per_device_train_batch_size=options.batch,
        gradient_accumulation_steps=1,
        gradient_checkpointing=True,
        bf16=options.bf16,
        learning_rate=2e-5,
        weight_decay=0.01,
        warmup_steps=10,
        adam_epsilon=1e-4,
        lr_scheduler_type="linear",
        logging_steps=10,
        max_steps=options.steps,
        save_strategy="no",
        report_to=[],
        include_tokens_per_second=True,
        max_seq_length=options.length,
        packing=False,  # the texts are packed already
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    framework = None
    if options.plugins:
        from fms_acceleration import AccelerationFramework

        framework = AccelerationFramework(options.plugins)
        model, _ = framework.augmentation(model, arguments, modifiable_args=(None,))

    probe, sums = Probe(), [torch.cuda.memory_allocated()]
    name = "processing_class" if "processing_class" in inspect.signature(SFTTrainer.__init__).parameters else "tokenizer"
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=packed_texts((options.steps + 3) * options.batch * options.ranks, options.length),
        callbacks=[probe],
        **{name: tokenizer},
    )
    sums.append(torch.cuda.memory_allocated())
    peak = torch.cuda.max_memory_allocated()
    if framework:
        for callback in framework.get_callbacks_and_ready_for_train(model, trainer.accelerator):
            trainer.add_callback(callback)
    torch.cuda.reset_peak_memory_stats()
    trainer.train()
    sums.append(probe.allocated)
    print(json.dumps({"peak": max(peak, torch.cuda.max_memory_allocated()), "allocated": max(sums)}), flush=True)


if __name__ == "__main__":
    main()
