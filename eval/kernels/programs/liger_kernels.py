"""Every operator of Liger-Kernel that has Triton kernels, forward and backward. Those that need several ranks are left out."""

import one_step
import torch
from liger_kernel import ops
from liger_kernel.transformers import functional as F
from liger_kernel.transformers.grpo_loss import triton_grpo_loss

ROWS, HIDDEN, VOCABULARY = 256, 512, 4096


def tensor(*shape, dtype=torch.bfloat16, grad=True):
    return torch.randn(*shape, dtype=dtype, device="cuda", requires_grad=grad)


def number():
    return torch.tensor(1.0, device="cuda", requires_grad=True)


def labels(*shape, most=VOCABULARY):
    return torch.randint(0, most, shape).cuda()


def backward(out):
    outs = [one for one in (out if isinstance(out, (tuple, list)) else [out]) if torch.is_tensor(one) and one.requires_grad]
    torch.autograd.backward(outs, [torch.ones_like(one) for one in outs])


def logarithms(grad=True):
    return tensor(ROWS, VOCABULARY, dtype=torch.float32, grad=grad).log_softmax(-1)


def norms(casting):
    backward(F.liger_rms_norm(tensor(ROWS, HIDDEN), tensor(HIDDEN), 1e-6, 0.0, casting))
    backward(F.liger_fused_add_rms_norm(tensor(ROWS, HIDDEN), tensor(ROWS, HIDDEN), tensor(HIDDEN), 1e-6, 0.0, casting))
    modulated = tensor(4, ROWS, HIDDEN), tensor(HIDDEN), tensor(4, HIDDEN), tensor(4, HIDDEN)
    backward(F.liger_modulated_rms_norm(*modulated, 1e-6, 0.0, casting))


def many_short_rows():
    backward(F.liger_rms_norm(tensor(40000, 128), tensor(128), 1e-6))


def cross_entropy(**options):
    backward(F.liger_cross_entropy(tensor(ROWS, VOCABULARY), labels(ROWS), **options))


def fused_linear_cross_entropy(**options):
    backward(F.liger_fused_linear_cross_entropy(tensor(ROWS, HIDDEN), tensor(VOCABULARY, HIDDEN), labels(ROWS), **options))


def fused_linear_losses():
    student = lambda: (tensor(ROWS, HIDDEN), tensor(VOCABULARY, HIDDEN))  # noqa: E731
    teacher = tensor(ROWS, HIDDEN, grad=False), tensor(VOCABULARY, HIDDEN, grad=False)
    backward(F.liger_fused_linear_jsd(*student(), *teacher))
    backward(F.liger_fused_linear_jsd(*student(), *teacher, labels(ROWS)))
    backward(F.liger_fused_linear_kl_div(*student(), teacher[0] @ teacher[1].T))


def fused_ce_tvd():
    backward(ops.LigerFusedCETVDFunction.apply(tensor(ROWS, VOCABULARY), tensor(ROWS, VOCABULARY, grad=False), labels(ROWS)))


def distances():
    for beta in (0.0, 0.5, 1.0):
        backward(F.liger_jsd(logarithms(), logarithms(False), beta=beta))
    backward(F.liger_jsd(logarithms(), logarithms(False), labels(ROWS)))
    for reduction in ("mean", "none", "batchmean"):
        backward(F.liger_kl_div(logarithms(), logarithms(False).exp(), reduction=reduction))
    backward(F.liger_kl_div(logarithms(), logarithms(False), log_target=True))
    for reduction in ("mean", "none"):
        backward(F.liger_tvd(logarithms().exp(), logarithms(False).exp(), reduction=reduction))
    backward(F.liger_tvd(logarithms().exp(), logarithms(False).exp(), labels(ROWS)))


def other_norms():
    backward(F.liger_layer_norm(tensor(ROWS, HIDDEN), tensor(HIDDEN), tensor(HIDDEN), 1e-6))
    backward(F.liger_group_norm(tensor(4, 64, 256), tensor(64), tensor(64), 64, 8, 1e-6))
    backward(F.liger_poly_norm(tensor(ROWS, HIDDEN), tensor(3), number()))
    backward(F.liger_dyt(tensor(ROWS, HIDDEN), tensor(1), tensor(HIDDEN), tensor(HIDDEN)))
    backward(F.liger_dyt(tensor(ROWS, HIDDEN), tensor(1), tensor(HIDDEN), None))
    backward(F.liger_attn_res(tensor(4, 2, 64, HIDDEN), tensor(HIDDEN), tensor(HIDDEN)))


def activations():
    backward(F.liger_swiglu(tensor(ROWS, HIDDEN), tensor(ROWS, HIDDEN)))
    backward(ops.LigerSiLUMulFunction.apply(tensor(ROWS, HIDDEN), tensor(ROWS, HIDDEN), 2.0, 0.5))
    backward(F.liger_geglu(tensor(ROWS, HIDDEN), tensor(ROWS, HIDDEN)))
    backward(F.liger_relu_squared(tensor(ROWS, HIDDEN)))


def gate_and_up():
    from liger_kernel.ops.swiglu import LigerFusedGateUpSiLUMulFunction

    backward(LigerFusedGateUpSiLUMulFunction.apply(tensor(ROWS, 2 * HIDDEN)))


def softmaxes():
    backward(F.liger_softmax(tensor(ROWS, HIDDEN)))
    backward(F.liger_sparsemax(tensor(ROWS, HIDDEN, dtype=torch.float32)))


def rotary():
    q, k = tensor(2, 8, 128, 64), tensor(2, 4, 128, 64)
    cos, sin = tensor(1, 128, 64, grad=False), tensor(1, 128, 64, grad=False)
    backward(F.liger_rope(q * 1, k * 1, cos, sin))
    cos, sin = tensor(3, 2, 128, 64, grad=False), tensor(3, 2, 128, 64, grad=False)
    backward(F.liger_qwen2vl_mrope(q * 1, k * 1, cos, sin, [16, 8, 8]))


def llama4_rotary():
    q, k = tensor(2, 128, 8, 64), tensor(2, 128, 4, 64)
    angles = torch.polar(torch.ones(128, 32), torch.rand(128, 32)).cuda()
    backward(ops.LigerLlama4RopeFunction.apply(q * 1, k * 1, angles))


def multi_token_attention():
    for sparse in (False, True):
        scores, weight = tensor(2, 4, 64, 64, dtype=torch.float32), tensor(4, 4, 3, 3, dtype=torch.float32)
        backward(F.liger_multi_token_attention(scores, weight, padding=1, sparse=sparse))


def neighborhood_attention():
    backward(F.liger_fused_neighborhood_attention(*(tensor(2, 4, 128, 64) for _ in range(3))))


def hyper_connections():
    streams, width = 4, 256
    x, f_out = tensor(2, 64, streams, width), tensor(2, 64, width)
    mixed = streams * streams + 2 * streams
    phi, b = tensor(streams * width, mixed), tensor(mixed, dtype=torch.float32)
    pre, post, res = F.liger_mhc_coeffs(x, phi, b, number(), number(), number())
    backward(F.liger_mhc_apply(x, f_out, pre, post, res))
    F.liger_mhc_coeffs(*(one.detach() for one in (x, phi, b)), number().detach(), number().detach(), number().detach())


def grpo(**options):
    batch, length = 4, 32
    logits = tensor(batch, length + 1, VOCABULARY)
    known = tensor(batch, length, dtype=torch.float32, grad=False), tensor(batch, length, dtype=torch.float32, grad=False)
    advantages = torch.randn(batch).cuda()
    backward(triton_grpo_loss(logits, *known, labels(batch, length), advantages, **options)[0].sum())


def fused_moe():
    experts, tokens, chosen = 8, 256, 2
    gate_up, down = tensor(experts, 2 * HIDDEN, HIDDEN), tensor(experts, HIDDEN, HIDDEN)
    index = labels(tokens, chosen, most=experts).int()
    backward(ops.LigerFusedMoEFunction.apply(tensor(tokens, HIDDEN), gate_up, down, index, tensor(tokens, chosen, dtype=torch.float32)))


def mlp():
    from liger_kernel.ops.mlp import LigerMLPFunction

    weights = tensor(2 * HIDDEN, HIDDEN), tensor(2 * HIDDEN, HIDDEN), tensor(HIDDEN, 2 * HIDDEN)
    backward(LigerMLPFunction.apply(tensor(2, ROWS, HIDDEN), *weights))
    with torch.no_grad():
        LigerMLPFunction.apply(tensor(2, ROWS, HIDDEN), *weights)


def embedding():
    from liger_kernel.ops.experimental.embedding import LigerEmbeddingFunction

    backward(LigerEmbeddingFunction.apply(tensor(VOCABULARY, HIDDEN), labels(ROWS)))


def int8_by_int2():
    from liger_kernel.ops.experimental.mm_int8int2 import matmul, pack_weights

    a = torch.randint(-128, 127, (ROWS, HIDDEN), dtype=torch.int8).cuda()
    matmul(a, pack_weights(torch.randint(-1, 2, (HIDDEN, 4 * HIDDEN))).cuda())


CASES = {
    "rms_norm_llama": lambda: norms("llama"),
    "rms_norm_gemma": lambda: norms("gemma"),
    "rms_norm_none": lambda: norms("none"),
    "rms_norm_rows": many_short_rows,
    "cross_entropy": cross_entropy,
    "cross_entropy_smooth": lambda: cross_entropy(label_smoothing=0.1, lse_square_scale=1e-4, return_z_loss=True),
    "cross_entropy_softcap": lambda: cross_entropy(softcap=30.0, reduction="sum"),
    "cross_entropy_weight": lambda: cross_entropy(weight=torch.rand(VOCABULARY).cuda(), return_token_accuracy=True),
    "fused_linear_cross_entropy": fused_linear_cross_entropy,
    "fused_linear_cross_entropy_scaled": lambda: fused_linear_cross_entropy(use_token_scaling=True, label_smoothing=0.1),
    "fused_linear_losses": fused_linear_losses,
    "fused_ce_tvd": fused_ce_tvd,
    "distances": distances,
    "other_norms": other_norms,
    "activations": activations,
    "gate_and_up": gate_and_up,
    "softmaxes": softmaxes,
    "rotary": rotary,
    "llama4_rotary": llama4_rotary,
    "multi_token_attention": multi_token_attention,
    "neighborhood_attention": neighborhood_attention,
    "hyper_connections": hyper_connections,
    "grpo": grpo,
    "grpo_sequence": lambda: grpo(loss_type="grpo", importance_sampling_level="sequence"),
    "grpo_sapo": lambda: grpo(loss_type="sapo"),
    "fused_moe": fused_moe,
    "mlp": mlp,
    "embedding": embedding,
    "int8_by_int2": int8_by_int2,
}

if __name__ == "__main__":
    one_step.run(CASES)
