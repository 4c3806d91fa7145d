"""flash_attn for an environment without CUDA's compiler: PyTorch's own build of the same kernels (FlashAttention 2).

flash_attn also keeps two numbers of its random state on the card for the backward pass, with or without dropout.
"""

import sys
import types

import torch


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(context, q, k, v, dropout_p, causal, options):
        context.sizes = q.shape[1], k.shape[1], dropout_p, causal
        context.options = options
        out, sums, seed, offset, _ = torch.ops.aten._flash_attention_forward(q, k, v, None, None, *context.sizes, False, **options)
        state = torch.empty(2, dtype=torch.int64, device=q.device)
        context.save_for_backward(q, k, v, out, sums, seed, offset, state)
        return out

    @staticmethod
    def backward(context, gradient):
        q, k, v, out, sums, seed, offset, _ = context.saved_tensors
        backward = torch.ops.aten._flash_attention_backward
        gradients = backward(gradient, q, k, v, out, sums, None, None, *context.sizes, seed, offset, **context.options)
        return *gradients, None, None, None


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), deterministic=False):
    left, right = (None if size < 0 else size for size in window_size)
    options = {"scale": softmax_scale, "window_size_left": left, "window_size_right": right}
    return Attention.apply(q, k, v, dropout_p, causal, options)


def missing(*_, **__):
    raise NotImplementedError("the benchmark's sequences have no padding")


flash_attn_varlen_func = missing
__path__ = []
bert_padding = sys.modules[__name__ + ".bert_padding"] = types.ModuleType(__name__ + ".bert_padding")
bert_padding.index_first_axis = bert_padding.pad_input = bert_padding.unpad_input = missing
