"""unsloth's Triton kernels, forward and backward. Only its folder `kernels` is imported: its `__init__` patches PyTorch and asks for a card.

PYTHONPATH has the folder that contains `unsloth`. Of unsloth_zoo, a few names are given here: what uses them is not run.
"""

import importlib.metadata
import importlib.util
import sys
import types

import one_step
import packaging.version
import torch

ROWS, HIDDEN, VOCABULARY = 128, 512, 4096
FP8 = torch.float8_e4m3fn


def module(name, **names):
    sys.modules[name] = made = types.ModuleType(name)
    made.__dict__.update(names)
    return made


def unsloth():
    """The package without its `__init__`."""
    package = module("unsloth", __path__=list(importlib.util.find_spec("unsloth").submodule_search_locations))
    nothing = lambda *_, **__: None  # noqa: E731
    module("unsloth_zoo", __path__=[])
    module("unsloth_zoo.utils", Version=lambda version: packaging.version.Version(str(version)))
    module("unsloth_zoo.loss_utils", patch_loss_functions=nothing, post_patch_loss_function=nothing)
    module("unsloth_zoo.patching_utils", patch_layernorm=nothing)
    module("unsloth_zoo.log", logger=types.SimpleNamespace(info=nothing, warning=nothing, warning_once=nothing))
    module("unsloth_zoo.temporary_patches", __path__=[])
    module("unsloth_zoo.temporary_patches.common", torch_compile=lambda *_, **__: lambda function: function)
    package.DEVICE_TYPE = "cuda"


unsloth()
from unsloth import kernels  # noqa: E402
from unsloth.kernels import fp8, rope_embedding  # noqa: E402


def tensor(*shape, dtype=torch.bfloat16, grad=True):
    return torch.randn(*shape, dtype=dtype, device="cuda", requires_grad=grad)


def backward(out):
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    torch.autograd.backward(outs, [torch.ones_like(one) for one in outs])


def cross_entropy(vocabulary, **options):
    labels = torch.randint(0, vocabulary, (2, ROWS)).cuda()
    backward(kernels.fast_cross_entropy_loss(tensor(2, ROWS, vocabulary) * 1, labels, **options))


def norm(gemma, dtype=torch.bfloat16):
    layer = types.SimpleNamespace(weight=tensor(HIDDEN, dtype=dtype), variance_epsilon=1e-6)
    backward(kernels.fast_rms_layernorm(layer, tensor(2, ROWS, HIDDEN, dtype=dtype), gemma=gemma))


def layer_norm():
    backward(kernels.fast_layernorm(torch.nn.LayerNorm(HIDDEN).cuda(), tensor(2, ROWS, HIDDEN)))


def rotary(indices):
    q, k = tensor(2, 8, ROWS, 64), tensor(2, 4, ROWS, 64)
    cos, sin = tensor(ROWS, 64, grad=False), tensor(ROWS, 64, grad=False)
    backward(rope_embedding.fast_rope_embedding(q * 1, k * 1, cos, sin, indices))


def rotary_at_places():
    rotary(torch.arange(ROWS, dtype=torch.int32).repeat(2, 1).cuda())


def activations():
    gate, up, gradient = (tensor(1, 2 * ROWS, HIDDEN, grad=False) for _ in range(3))
    flat = [one.view(-1, HIDDEN) for one in (gradient, gate, up)]
    kernels.swiglu_fg_kernel(gate, up)
    kernels.swiglu_DWf_DW_dfg_kernel(*flat)
    kernels.geglu_exact_forward_kernel(gate, up)
    kernels.geglu_exact_backward_kernel(*flat)
    kernels.geglu_approx_forward_kernel(gate, up)
    kernels.geglu_approx_backward_kernel(*flat)


def fp8_weights():
    fp8.weight_dequant(tensor(HIDDEN, 2 * HIDDEN, grad=False).to(FP8), torch.rand(HIDDEN // 128, 2 * HIDDEN // 128).cuda())


def fp8_products():
    a, a_scales = fp8.act_quant(tensor(2 * ROWS, HIDDEN, grad=False))
    b, b_scales = tensor(2 * HIDDEN, HIDDEN, grad=False).to(FP8), torch.rand(2 * HIDDEN // 128, HIDDEN // 128).cuda()
    fp8.w8a8_block_fp8_matmul_triton(a, b, a_scales, b_scales, [128, 128], torch.bfloat16)


def grouped(**options):
    from unsloth.kernels.moe.grouped_gemm.interface import grouped_gemm
    from unsloth.kernels.moe.grouped_gemm.kernels import tuning

    experts, tokens, chosen = 4, 256, 2
    sizes = torch.full((experts,), tokens * chosen // experts, dtype=torch.int32).cuda()
    places = torch.arange(tokens * chosen).view(tokens, chosen).T.reshape(-1).cuda()
    for stages, tile in ((2, 64), (3, 128)):
        blocks = {"BLOCK_SIZE_M": tile, "BLOCK_SIZE_N": tile, "BLOCK_SIZE_K": 32, "num_warps": 4, "num_stages": stages}
        configs = {
            "kernel_config_fwd": tuning.KernelConfigForward(**blocks),
            "kernel_config_bwd_dX": tuning.KernelConfigBackward_dX(**blocks),
            "kernel_config_bwd_dW": tuning.KernelConfigBackward_dW(**blocks),
        }
        rows = tokens if options.get("permute_x") else tokens * chosen
        made = grouped_gemm(tensor(rows, HIDDEN), tensor(experts, HIDDEN, HIDDEN), sizes, chosen, places, **options, **configs)
        backward(made)


CASES = {
    "cross_entropy": lambda: cross_entropy(VOCABULARY),
    "cross_entropy_chunks": lambda: cross_entropy(2 * 65536 + 1000),
    "cross_entropy_softcap": lambda: cross_entropy(VOCABULARY, logit_softcapping=30.0),
    "cross_entropy_scale": lambda: cross_entropy(VOCABULARY, logit_scaling=0.5),
    "rms_norm": lambda: norm(False),
    "rms_norm_fp32": lambda: norm(False, torch.float32),
    "rms_norm_gemma": lambda: norm(True),
    "layer_norm": layer_norm,
    "rotary": lambda: rotary(None),
    "rotary_at_places": rotary_at_places,
    "activations": activations,
    "fp8_weights": fp8_weights,
    "fp8_products": fp8_products,
    "grouped_products": grouped,
    "grouped_products_first": lambda: grouped(permute_x=True),
    "grouped_products_second": lambda: grouped(permute_y=True, is_first_gemm=False),
}

if __name__ == "__main__":
    one_step.run(CASES)
