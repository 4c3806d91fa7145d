"""accelerate's own loop: under `accelerate launch`, over all ranks that it starts. --batch: of all ranks; --find: looks for a batch that runs."""

import sys

import counters  # noqa: F401
import torch
from accelerate import Accelerator
from accelerate.utils import find_executable_batch_size, set_seed
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

set_seed(1)
config = BertConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
all_ranks = int(sys.argv[sys.argv.index("--batch") + 1]) if "--batch" in sys.argv else 32
data = TensorDataset(torch.randint(0, 1000, (3 * all_ranks, 32)), torch.randint(0, 2, (3 * all_ranks,)))


def train(accelerator, batch):
    model = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    ranks = accelerator.num_processes
    loader = DataLoader(data, batch // ranks, shuffle=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for ids, labels in loader:
        with accelerator.accumulate(model):
            loss = model(input_ids=ids, labels=labels).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        accelerator.gather_for_metrics((loss.detach(), labels))
    accelerator.wait_for_everyone()


accelerator = Accelerator(mixed_precision="bf16")
if "--find" in sys.argv:

    @find_executable_batch_size(starting_batch_size=128)
    def attempt(batch):
        accelerator.free_memory()
        if batch > 32:
            raise RuntimeError("CUDA out of memory.")
        train(accelerator, batch)

    attempt()
else:
    train(accelerator, all_ranks)
accelerator.end_training()
