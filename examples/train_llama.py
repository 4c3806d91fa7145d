#!/usr/bin/env python3
"""Train a Llama on random tokens with PyTorch's own parallelism: FSDP2, tensor and pipeline parallel; bf16, AdamW.

    torchrun --nproc-per-node 8 train_llama.py --tp 2 --pp 1
    torchrun --nproc-per-node 8 train_llama.py --tp 1 --pp 4 --micro-batches 8 --batch 1 --checkpoint

The ranks that are left share the data: dp = world / (tp * pp). Needs PyTorch 2.6 or newer.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.head_width = width // heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, rotation):
        q, k, v = (f(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rotate(q, rotation), rotate(k, rotation), v, is_causal=True)
        return self.o(y.transpose(1, 2).flatten(2))


def rotate(x, rotation):
    cosine, sine = rotation
    a, b = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-b, a), dim=-1) * sine


class Block(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.gate, self.up, self.down = (nn.Linear(*sizes, bias=False) for sizes in ((width, hidden), (width, hidden), (hidden, width)))

    def forward(self, x, rotation):
        x = x + self.attention(self.norm1(x), rotation)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Stage(nn.Module):
    """The layers of one pipeline stage; the first has the embedding, the last the head."""

    def __init__(self, options, stage):
        super().__init__()
        layers = options.layers // options.pp
        self.checkpoint, self.sequence, self.head_width = options.checkpoint, options.sequence, options.width // options.heads
        self.tokens = nn.Embedding(options.vocabulary, options.width) if stage == 0 else None
        self.blocks = nn.ModuleList(Block(options.width, options.heads, options.hidden) for _ in range(layers))
        last = stage == options.pp - 1
        self.norm = nn.RMSNorm(options.width) if last else None
        self.head = nn.Linear(options.width, options.vocabulary, bias=False) if last else None

    def rotation(self, x):
        angles = torch.outer(
            torch.arange(self.sequence, device=x.device, dtype=torch.float32),
            10000 ** (-torch.arange(0, self.head_width, 2, device=x.device, dtype=torch.float32) / self.head_width),
        ).repeat(1, 2)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def forward(self, x):
        x = self.tokens(x) if self.tokens else x
        rotation = self.rotation(x)
        for block in self.blocks:
            x = checkpoint(block, x, rotation, use_reentrant=False) if self.checkpoint else block(x, rotation)
        return self.head(self.norm(x)) if self.head else x


def parallel(model, mesh, options):
    split = {"attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(), "attention.v": ColwiseParallel()}
    split |= {"attention.o": RowwiseParallel(), "gate": ColwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
    if options.tp > 1:
        for block in model.blocks:
            parallelize_module(block, mesh["tp"], split)
        ends = {"tokens": ColwiseParallel(output_layouts=Replicate())} if model.tokens else {}
        ends |= {"head": ColwiseParallel(output_layouts=Replicate())} if model.head else {}
        parallelize_module(model, mesh["tp"], ends)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh["dp"], mp_policy=policy)
    return fully_shard(model, mesh=mesh["dp"], mp_policy=policy)


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    parser = argparse.ArgumentParser()
    for name, default in {
        "tp": 1, "pp": 1, "batch": 1, "micro-batches": 1, "sequence": 4096, "layers": 32, "width": 4096, "heads": 32, "hidden": 11008,
        "vocabulary": 32000, "steps": 10,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--checkpoint", action="store_true")
    options = parser.parse_args()

    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        os.environ.setdefault(name, value)  # without torchrun: one rank
    world = int(os.environ["WORLD_SIZE"])
    if world % (options.tp * options.pp) or options.heads % options.tp or options.layers % options.pp:
        raise SystemExit(
            f"tp {options.tp} and pp {options.pp} do not divide {world} ranks, {options.heads} heads and {options.layers} layers"
        )
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (options.pp, world // (options.tp * options.pp), options.tp), mesh_dim_names=("pp", "dp", "tp"))
    place = mesh["pp"].get_local_rank()
    with torch.device("meta"):
        model = Stage(options, place)
    model = parallel(model, mesh, options)
    model.to_empty(device=device)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    if options.pp > 1:
        stage = PipelineStage(model, place, options.pp, device, group=mesh["pp"].get_group())
        pipeline = Schedule1F1B(stage, n_microbatches=options.micro_batches, loss_fn=loss_of)
    batch = options.batch * options.micro_batches
    for _ in range(options.steps):
        tokens = torch.randint(options.vocabulary, (batch, options.sequence), device=device)
        if options.pp > 1:
            pipeline.step(*[tokens] if place == 0 else [], target=tokens if place == options.pp - 1 else None)
        else:
            for micro_batch in tokens.chunk(options.micro_batches):
                (loss_of(model(micro_batch), micro_batch) / options.micro_batches).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
