"""Fine-tuning as one writes it by hand with transformers' Trainer, to compare `gpucast model` with: by_hand.py MODEL full|lora|qlora|fsdp.

Weights are random. Those of QLoRA are written to a checkpoint first, and read and quantized by from_pretrained, as in a user's job.
"""

import os
import sys
import tempfile

import torch
import transformers
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, default_data_collator

LLAMA3 = dict(vocab_size=128256, max_position_embeddings=131072, rope_theta=500000.0, tie_word_embeddings=True)
QWEN = dict(vocab_size=151936, max_position_embeddings=32768, rope_theta=1000000.0, tie_word_embeddings=True, rms_norm_eps=1e-6)
GEMMA2 = dict(hidden_size=2304, intermediate_size=9216, num_hidden_layers=26, num_attention_heads=8, num_key_value_heads=4, head_dim=256)
GEMMA2 |= dict(query_pre_attn_scalar=256, vocab_size=256000, max_position_embeddings=8192, tie_word_embeddings=True)
GEMMA3 = dict(hidden_size=640, intermediate_size=2048, num_hidden_layers=18, num_attention_heads=4, num_key_value_heads=1, head_dim=256)
PHI = dict(
    hidden_size=2048, intermediate_size=8192, num_hidden_layers=24, num_attention_heads=32, vocab_size=51200, partial_rotary_factor=0.5
)
OLMOE = dict(intermediate_size=1024, vocab_size=50304, num_experts=64, num_experts_per_tok=8)
WHISPER = dict(d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12, decoder_attention_heads=12)
MODELS = {  # id: (class of the config, class of the model, what differs from the config's defaults, length)
    "openai-community/gpt2": ("GPT2Config", "GPT2LMHeadModel", {}, 1024),
    "Qwen/Qwen2.5-0.5B": ("Qwen2Config", "Qwen2ForCausalLM", dict(QWEN, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2), 2048),
    "Qwen/Qwen3-0.6B": ("Qwen3Config", "Qwen3ForCausalLM", dict(QWEN, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960), 2048),
    "meta-llama/Llama-3.2-1B": ("LlamaConfig", "LlamaForCausalLM", dict(LLAMA3, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8), 2048),
    "mistralai/Mistral-7B-v0.1": ("MistralConfig", "MistralForCausalLM", {}, 2048),
    "google/gemma-3-270m": ("Gemma3TextConfig", "Gemma3ForCausalLM", dict(GEMMA3, vocab_size=262144, max_position_embeddings=32768, sliding_window=512), 2048),
    "google/gemma-2-2b": ("Gemma2Config", "Gemma2ForCausalLM", GEMMA2, 2048),
    "microsoft/phi-1_5": ("PhiConfig", "PhiForCausalLM", PHI, 2048),
    "allenai/OLMoE-1B-7B-0924": ("OlmoeConfig", "OlmoeForCausalLM", OLMOE, 2048),
    "google-bert/bert-base-uncased": ("BertConfig", "BertForMaskedLM", {}, 512),
    "google-t5/t5-small": ("T5Config", "T5ForConditionalGeneration", dict(decoder_start_token_id=0), 512),
    "google/vit-base-patch16-224": ("ViTConfig", "ViTForImageClassification", dict(num_labels=1000), 0),
    "openai/whisper-small": ("WhisperConfig", "WhisperForConditionalGeneration", dict(WHISPER, encoder_ffn_dim=3072, decoder_ffn_dim=3072, vocab_size=51865), 448),
}  # fmt: skip


class Texts(Dataset):
    def __init__(self, vocabulary, length):
        self.vocabulary, self.length = vocabulary, length

    def __len__(self):
        return 10000

    def __getitem__(self, number):
        tokens = [(number * 7919 + place * 104729) % self.vocabulary for place in range(self.length)]
        return {"input_ids": tokens, "attention_mask": [1] * self.length, "labels": list(tokens)}


class Sounds(Texts):
    def __getitem__(self, number):
        return {"input_features": torch.zeros(80, 3000, dtype=torch.bfloat16), "labels": super().__getitem__(number)["labels"]}


class Images(Texts):
    def __getitem__(self, number):
        return {"pixel_values": torch.zeros(3, 224, 224, dtype=torch.bfloat16), "labels": number % 1000}


def main():
    name, train = sys.argv[1:]
    config_class, model_class, fields, length = MODELS[name]
    config, kind = getattr(transformers, config_class)(**fields), getattr(transformers, model_class)
    arguments = dict(output_dir="out", per_device_train_batch_size=2, max_steps=3, save_strategy="no", report_to=[])
    if train == "fsdp":
        arguments |= dict(fsdp=True)
    arguments = TrainingArguments(**arguments)
    if train == "qlora":
        from transformers import BitsAndBytesConfig

        bits = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16
        )
        with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
            kind(config).to(torch.bfloat16).save_pretrained(folder)
            model = kind.from_pretrained(folder, quantization_config=bits, dtype=torch.bfloat16, device_map={"": 0})
    else:
        torch.set_default_dtype(torch.bfloat16)
        model = kind(config)
        torch.set_default_dtype(torch.float32)
    if train in ("lora", "qlora"):
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

        if train == "qlora":
            model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        tasks = {"CausalLM": "CAUSAL_LM", "LMHeadModel": "CAUSAL_LM", "T5ForConditionalGeneration": "SEQ_2_SEQ_LM"}
        task = next((task for ending, task in tasks.items() if model_class.endswith(ending)), None)
        model = get_peft_model(model, LoraConfig(task_type=task, r=16, lora_alpha=32, target_modules="all-linear"))
    data = {"openai/whisper-small": Sounds, "google/vit-base-patch16-224": Images}.get(name, Texts)
    vocabulary = getattr(config, "vocab_size", 0)
    Trainer(model=model, args=arguments, train_dataset=data(vocabulary, length), data_collator=default_data_collator).train()


main()
