#!/usr/bin/env python3
"""Train a small GPT in plain PyTorch on synthetic text: bf16 autocast, scaled dot product attention, AdamW.

    python train_gpt.py --batch 16 --sequence 1024 --layers 12 --width 768 --heads 12
    python train_gpt.py --accumulate 4 --checkpoint

Needs PyTorch and a CUDA GPU, nothing else.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return self.projection(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, sequence: int, layers: int, width: int, heads: int, dropout: float, checkpointing: bool):
        super().__init__()
        self.checkpointing = checkpointing
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight  # tied

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        return self.head(self.norm(x))


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8, help="sequences a forward pass (default %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="optimizer steps (default %(default)s)")
    parser.add_argument("--lr", type=float, default=3e-4, help="learning rate (default %(default)s)")
    parser.add_argument("--sequence", type=int, default=512, help="tokens a sequence (default %(default)s)")
    parser.add_argument("--layers", type=int, default=6, help="transformer blocks (default %(default)s)")
    parser.add_argument("--width", type=int, default=512, help="model width (default %(default)s)")
    parser.add_argument("--heads", type=int, default=8, help="attention heads (default %(default)s)")
    parser.add_argument("--vocabulary", type=int, default=50304, help="tokens in the vocabulary (default %(default)s)")
    parser.add_argument("--dropout", type=float, default=0.0, help="dropout probability (default %(default)s)")
    parser.add_argument("--accumulate", type=int, default=1, help="forward passes an optimizer step (default %(default)s)")
    parser.add_argument(
        "--checkpoint", action="store_true", help="recompute the blocks in the backward pass instead of keeping their activations"
    )
    args = parser.parse_args()
    if args.width % args.heads != 0:
        parser.error(f"--width {args.width} is not a multiple of --heads {args.heads}")
    return args


def main():
    args = parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("train_gpt.py: this example needs a CUDA GPU, and PyTorch finds none")
    device = torch.device("cuda")
    torch.manual_seed(0)

    model = GPT(args.vocabulary, args.sequence, args.layers, args.width, args.heads, args.dropout, args.checkpoint).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)

    for step in range(1, args.steps + 1):
        for _ in range(args.accumulate):
            ids = torch.randint(args.vocabulary, (args.batch, args.sequence + 1)).to(device)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(ids[:, :-1])
                loss = F.cross_entropy(logits.view(-1, args.vocabulary), ids[:, 1:].reshape(-1)) / args.accumulate
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step:3d}  loss {loss.item() * args.accumulate:.4f}", flush=True)

    mib = 2**20
    print(
        f"peak memory: {torch.cuda.max_memory_allocated() / mib:.1f} MiB allocated, {torch.cuda.max_memory_reserved() / mib:.1f} MiB reserved"
    )


if __name__ == "__main__":
    main()
