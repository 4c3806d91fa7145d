"""LoRA on a small Llama, its weights as they are or quantized by bitsandbytes: with_peft.py lora|4bit|8bit."""

import sys

import counters  # noqa: F401
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

kind = sys.argv[1]
config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
model = LlamaForCausalLM(config)
if kind == "lora":
    model = model.cuda()
else:
    model.save_pretrained("base")
    of_bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    quantized = of_bits if kind == "4bit" else BitsAndBytesConfig(load_in_8bit=True)
    model = prepare_model_for_kbit_training(LlamaForCausalLM.from_pretrained("base", quantization_config=quantized, device_map={"": 0}))
model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])
for _ in range(3):
    ids = torch.randint(0, 1000, (4, 64), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
