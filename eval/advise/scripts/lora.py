"""LoRA of a Llama of 1B parameters, or of Mistral-7B's shape, as in PEFT's examples; random weights and tokens."""

import argparse

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM, LlamaConfig

p = argparse.ArgumentParser()
p.add_argument("--batch-size", type=int, default=4)
p.add_argument("--model", default="1b")
p.add_argument("--length", type=int, default=1024)
p.add_argument("--dtype", default="float32")
a = p.parse_args()
shapes = {
    "1b": dict(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, vocab_size=32000
    ),
    "7b": dict(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, vocab_size=32000
    ),
}
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(LlamaConfig(**shapes[a.model]), dtype=getattr(torch, a.dtype))
model = get_peft_model(
    model, LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM")
)
model.train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)


class Tokens(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, i):
        return torch.randint(32000, (a.length,))


for ids in DataLoader(Tokens(), batch_size=a.batch_size, shuffle=True):
    ids = ids.cuda()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
