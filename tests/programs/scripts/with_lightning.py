"""Lightning's Trainer: with_lightning.py STRATEGY DEVICES."""

import sys

import counters
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("right", (self.layers(batch[0]).argmax(-1) == batch[1]).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

    def on_fit_end(self):
        if sys.argv[1] != "auto":  # no RANK
            counters.say(self.global_rank)


if __name__ == "__main__":
    data = TensorDataset(torch.randn(256, 64), torch.randint(0, 10, (256,)))
    trainer = lightning.Trainer(
        max_steps=4, devices=int(sys.argv[2]), accelerator="gpu", strategy=sys.argv[1], precision="bf16-mixed", logger=False,
        enable_checkpointing=True,
    )  # fmt: skip
    trainer.fit(Model(), DataLoader(data, 32), DataLoader(data, 32))
