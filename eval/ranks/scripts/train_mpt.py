"""An MPT model as llm-foundry's benchmark trains it: one rank of PyTorch's FSDP1 with Composer's settings and optimizer. Composer is not needed."""

import argparse
import functools
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as checkpoints
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

VOCABULARY = 50368


def triton_attention(qkv):
    """llm-foundry's attn_impl triton: flash-attn's kernels in Triton, on PYTHONPATH."""
    from flash_attn_triton import flash_attn_func

    return flash_attn_func(*qkv.unbind(2), None, True, None)


def flash_attention(qkv):
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


class Block(nn.Module):
    """MPTBlock without biases: norms in low precision, as its low_precision_layernorm."""

    def __init__(self, width, heads, attention):
        super().__init__()
        self.heads, self.attention = heads, attention
        self.norm_1, self.norm_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.wqkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        mixed = self.attention(self.wqkv(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads))
        x = x + self.out(mixed.reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class MPT(nn.Module):
    def __init__(self, width, heads, layers, length, attention):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, attention) for _ in range(layers))
        self.norm_f = nn.LayerNorm(width, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm_f(x), self.wte.weight)


class DecoupledAdamW(torch.optim.Optimizer):
    """Composer's: a few operators for each parameter, one parameter after another."""

    def __init__(self, parameters, lr=1e-4):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, self.state[parameter], group["lr"])

    def update(self, parameter, state, lr):
        if not state:
            step = torch.zeros((), device=parameter.device)
            state |= {"step": step, "mean": torch.zeros_like(parameter), "square": torch.zeros_like(parameter)}
        state["step"] += 1
        step = max(1, state["step"].item())  # the host waits for the card
        parameter.mul_(1 - lr * 1e-5)
        state["mean"].mul_(0.9).add_(parameter.grad, alpha=0.1)
        state["square"].mul_(0.95).addcmul_(parameter.grad, parameter.grad, value=0.05)
        denominator = (state["square"].sqrt() / (1 - 0.95**step) ** 0.5).add_(1e-8)
        parameter.addcdiv_(state["mean"], denominator, value=-lr / (1 - 0.9**step))


def sharded(model, options):
    """Composer's mixed_precision PURE, limit_all_gathers, backward_prefetch BACKWARD_POST; a unit for each block."""
    low = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
    is_block = functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda module: isinstance(module, Block))
    model = FullyShardedDataParallel(
        model,
        sharding_strategy=ShardingStrategy[options.sharding],
        auto_wrap_policy=is_block,
        mixed_precision=low,
        backward_prefetch=BackwardPrefetch.BACKWARD_POST,
        limit_all_gathers=True,
        use_orig_params=True,
        device_id=torch.cuda.current_device(),
        param_init_fn=lambda module: module.to_empty(device="cuda", recurse=False),
    )
    if options.checkpoint:
        wrapper = functools.partial(checkpoints.checkpoint_wrapper, checkpoint_impl=checkpoints.CheckpointImpl.REENTRANT)
        checkpoints.apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrapper, check_fn=lambda module: isinstance(module, Block))
    return model


@torch.no_grad()
def train_metrics(logits, tokens):
    """LanguageCrossEntropy and LanguagePerplexity, which Composer updates after each micro batch: the same loss in fp32, twice."""
    with torch.autocast("cuda", torch.bfloat16):
        for _ in range(2):
            F.cross_entropy(logits.view(-1, VOCABULARY), tokens.roll(-1, 1).view(-1), reduction="sum")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--attention", choices=("flash", "triton"), default="flash")
    for name in ("width", "heads", "layers", "length", "micro-batch", "micro-batches"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--sharding", default="FULL_SHARD")
    parser.add_argument("--checkpoint", action="store_true")
    options = parser.parse_args()
    attention = triton_attention if options.attention == "triton" else flash_attention
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    with torch.device("meta"):
        model = MPT(options.width, options.heads, options.layers, options.length, attention)
    model = sharded(model, options)
    optimizer = DecoupledAdamW(model.parameters())
    for _ in range(3):
        for _ in range(options.micro_batches):
            tokens = torch.randint(VOCABULARY, (options.micro_batch, options.length)).cuda(non_blocking=True)
            logits = model(tokens)
            loss = F.cross_entropy(logits.view(-1, VOCABULARY), tokens.roll(-1, 1).view(-1)) / options.micro_batches
            loss.backward()
            train_metrics(logits, tokens)
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
