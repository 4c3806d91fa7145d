"""flash_attn for an environment without a CUDA compiler: PyTorch's own build of the same kernels (FlashAttention 2)."""

import sys
import types

import torch


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), deterministic=False):
    left, right = (None if size < 0 else size for size in window_size)
    return torch.ops.aten._flash_attention_forward(
        q, k, v, None, None, q.shape[1], k.shape[1], dropout_p, causal, False, scale=softmax_scale, window_size_left=left, window_size_right=right
    )[0]


def missing(*_, **__):
    raise NotImplementedError("the benchmark's sequences have no padding")


flash_attn_varlen_func = missing
__path__ = []
bert_padding = sys.modules[__name__ + ".bert_padding"] = types.ModuleType(__name__ + ".bert_padding")
bert_padding.index_first_axis = bert_padding.pad_input = bert_padding.unpad_input = missing
