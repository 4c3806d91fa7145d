"""torchao's Triton kernels, by the functions that launch them. Those for several ranks and for cards with FP4 are left out."""

import importlib

import one_step
import torch

ROWS, INNER, COLUMNS, EXPERTS = 256, 512, 1024, 4
FP8 = torch.float8_e4m3fn


def function(module, name):
    return getattr(importlib.import_module(f"torchao.{module}"), name)


def tensor(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda").to(dtype)


def numbers(*shape, dtype=torch.int8, least=-8, most=8):
    return torch.randint(least, most, shape, dtype=dtype).cuda()


def ends():
    return torch.arange(1, EXPERTS + 1, dtype=torch.int32).mul(ROWS // EXPERTS).cuda()


def attention(name, *rotated, **options):
    module = {"triton_fp8_sdpa_quantize": "triton_qkv_quantization", "triton_fp8_rope_sdpa_quantize": "triton_rope_qkv_quantization"}
    module = module.get(name) or name.replace("fp8_hadamard_", "hadamard_").replace("sdpa_quantize", "qkv_quantization")
    heads = [tensor(2, ROWS, 8, 64) if rotated else tensor(2, 8, ROWS, 64) for _ in range(3)]
    function(f"prototype.attention.quantization.{module}", name)(*heads, *rotated, **options)


def angles():
    return tensor(ROWS, 64, dtype=torch.float32), tensor(ROWS, 64, dtype=torch.float32)


def inverse_hadamard():
    function("prototype.attention.quantization.triton_hadamard_utils", "inverse_hadamard_transform")(tensor(2, 8, ROWS, 64))


def inference_attention():
    heads = [tensor(2, 8, ROWS, 64) for _ in range(3)]
    function("prototype.fp8_sdpa_inference.fp8_sdpa_quantization", "fp8_sdpa_quantize_func")(*heads)
    other = tensor(2, 8, 2 * ROWS, 64), tensor(2, 8, 2 * ROWS, 64)
    function("prototype.fp8_sdpa_inference.fp8_sdpa_quantization", "fp8_sdpa_quantize_func")(heads[0], *other)


def mxfp8(name, **options):
    function("prototype.mx_formats.kernels", name)(tensor(ROWS, INNER), **options)


def mxfp8_back():
    scales = numbers(ROWS, INNER // 32, dtype=torch.uint8, least=120, most=130).view(torch.float8_e8m0fnu)
    function("prototype.mx_formats.kernels", "triton_mxfp8_dequant_dim0")(tensor(ROWS, INNER, dtype=FP8), scales, torch.bfloat16)


def scales(*shape):
    return numbers(*shape, dtype=torch.uint8, least=120, most=130).view(torch.float8_e8m0fnu)


def rearrange():
    function("prototype.mx_formats.kernels", "triton_mx_block_rearrange")(scales(ROWS, 16))


def rearrange_groups():
    quant = "prototype.moe_training.kernels.mxfp8.quant"
    function(quant, "triton_mx_block_rearrange_2d_M_groups")(scales(ROWS, 16), ends())
    function(quant, "triton_mx_block_rearrange_per_group_3d")(scales(EXPERTS, ROWS, 16))
    function(quant, "triton_mx_block_rearrange_2d_K_groups")(scales(ROWS, 16), torch.arange(4, 17, 4, dtype=torch.int32).cuda())


def blockwise(name, *shape):
    return function("prototype.blockwise_fp8_training.kernels", f"triton_fp8_blockwise_{name}")(tensor(*shape))


def blockwise_activations():
    for name in ("act_quant_lhs", "act_quant_rhs", "act_quant_transposed_lhs"):
        blockwise(name, ROWS, INNER)


def blockwise_weights():
    for name in ("weight_quant_rhs", "weight_quant_transposed_rhs"):
        blockwise(name, INNER, COLUMNS)


def columns(rows, inner):
    return tensor(inner, rows, dtype=FP8).t()


def blockwise_products():
    kernels = "prototype.blockwise_fp8_training.kernels"
    a, a_scales, b = tensor(ROWS, INNER, dtype=FP8), torch.rand(INNER // 128, ROWS).cuda().t(), columns(INNER, COLUMNS)
    function(kernels, "triton_fp8_gemm_1x128_128x128")(a, b, a_scales, torch.rand(COLUMNS // 128, INNER // 128).cuda().t())
    function(kernels, "triton_fp8_gemm_1x128_128x1")(a, b, a_scales, torch.rand(INNER // 128, COLUMNS).cuda())


def deepgemm():
    quant, weights = "prototype.blockwise_fp8_training.deepgemm_quant", tensor(EXPERTS, COLUMNS, INNER).transpose(1, 2)
    function(quant, "triton_fp8_blockwise_weight_quant_grouped_transposed_rhs_deepgemm")(weights)
    function(quant, "triton_fp8_blockwise_weight_quant_grouped_rhs_deepgemm")(weights)


def deepgemm_groups():
    quant = "prototype.blockwise_fp8_training.deepgemm_quant"
    function(quant, "triton_fp8_blockwise_act_quant_k_grouped_deepgemm")(tensor(4 * ROWS, INNER), ends() * 4)


def inference_blockwise():
    quant = "kernel.blockwise_quantization"
    a, a_scales = function(quant, "fp8_blockwise_act_quant")(tensor(ROWS, INNER))
    b, b_scales = function(quant, "fp8_blockwise_weight_quant")(tensor(COLUMNS, INNER))
    function(quant, "fp8_blockwise_weight_dequant")(b, b_scales)
    function(quant, "blockwise_fp8_gemm")(a, a_scales, b, b_scales)


def half_quadratic():
    from torchao.prototype.hqq.mixed_mm import triton_mixed_mm

    packed = numbers(INNER // 2, COLUMNS, dtype=torch.uint8, least=0, most=256)
    sizes = INNER // 128, COLUMNS
    for kernel_type in ("max_autotune", "compute_bound"):
        a = tensor(ROWS, INNER)
        triton_mixed_mm(a, packed, tensor(*sizes), tensor(*sizes), transposed=False, group_size=128, kernel_type=kernel_type)


def int8_training():
    scaled = function("prototype.quantized_training.int8_mm", "scaled_int8_mm")
    scaled(numbers(ROWS, INNER), numbers(INNER, COLUMNS), tensor(ROWS), tensor(COLUMNS))


def int8_products():
    from torchao.kernel import intmm_triton

    a, b = numbers(ROWS, INNER), numbers(INNER, COLUMNS)
    for config in intmm_triton.int8_mm_kernel_configs[:8]:
        intmm_triton.int_matmul_kernel(a, b, torch.empty(ROWS, COLUMNS, dtype=torch.int32, device="cuda"), config)
        scaled = torch.empty(ROWS, COLUMNS, dtype=torch.bfloat16, device="cuda")
        intmm_triton.int_scaled_matmul_kernel(a, b, tensor(ROWS, 1), scaled, config)


def blocks_of_rows():
    # 128 blocks of 32 x 32, four in each row of blocks: made of its parts, because their places are values.
    places = torch.arange(4, dtype=torch.int32).mul(4).repeat(32).cuda()
    starts = torch.arange(0, 129, 4, dtype=torch.int32).cuda()
    sparse = torch.sparse_bsr_tensor(starts, places, tensor(128, 32, 32), size=(1024, INNER))
    function("kernel.bsr_triton_ops", "bsr_dense_addmm")(tensor(1024, ROWS), sparse, tensor(INNER, ROWS))


def permuted():
    counts = torch.full((EXPERTS,), ROWS // EXPERTS, dtype=torch.int32).cuda()
    function("prototype.moe_training.ep.kernels", "generate_permute_indices")(counts, EXPERTS, 1, 2 * ROWS, 32)
    rows = tensor(ROWS, INNER).requires_grad_()
    out = function("prototype.moe_training.ep.permute", "permute_and_pad")(rows, counts, 1, EXPERTS, 32)
    made = [one for one in out if torch.is_tensor(one) and one.requires_grad]
    torch.autograd.backward(made, [torch.ones_like(one) for one in made])


def jagged():
    module, rows = "prototype.moe_training.kernels.jagged_float8_scales", tensor(ROWS, INNER)
    for power in (False, True):
        for name in ("rowwise", "colwise"):
            function(module, f"triton_fp8_per_group_{name}_scales")(rows, ends(), round_scales_to_power_of_2=power)
        function(module, "triton_fp8_per_group_colwise_scales_dual")(rows, tensor(ROWS, COLUMNS), ends(), round_scales_to_power_of_2=power)


def rowwise():
    module, weights = "prototype.moe_training.kernels.float8_rowwise", tensor(EXPERTS, INNER, COLUMNS)
    for power in (False, True):
        for name in ("rowwise_3d_transpose_rhs", "rowwise_3d_transpose_rhs_fused_reduction", "colwise_3d_scale_and_cast"):
            function(module, f"triton_fp8_{name}")(weights, round_scales_to_power_of_2=power)
        function(module, "triton_fp8_rowwise_2d_scale_and_cast")(tensor(ROWS, INNER), round_scales_to_power_of_2=power)


def without_compile(name):
    from torchao.float8.float8_training_tensor import LinearMMConfig

    module = "prototype.float8nocompile.kernels.fp8_dynamic_tensorwise"
    for algorithm in function(module, "KernelAlgorithm"):
        function(module, name)(tensor(ROWS, INNER), FP8, LinearMMConfig(), algo=algorithm)


CASES = {
    "attention": lambda: attention("triton_fp8_sdpa_quantize"),
    "attention_rope": lambda: attention("triton_fp8_rope_sdpa_quantize", *angles()),
    "attention_rope_interleaved": lambda: attention("triton_fp8_rope_sdpa_quantize", *angles(), rope_interleaved=True),
    "attention_hadamard": lambda: attention("triton_fp8_hadamard_sdpa_quantize"),
    "attention_hadamard_values": lambda: attention("triton_fp8_hadamard_sdpa_quantize", v_only=True),
    "attention_hadamard_rope": lambda: attention("triton_fp8_hadamard_rope_sdpa_quantize", *angles()),
    "inverse_hadamard": inverse_hadamard,
    "inference_attention": inference_attention,
    **{
        f"mxfp8_dim{i}_{mode}": lambda i=i, mode=mode: mxfp8(f"triton_to_mxfp8_dim{i}", scaling_mode=mode)
        for i in (0, 1)
        for mode in ("rceil", "floor")
    },
    "mxfp8_back": mxfp8_back,
    "rearrange": rearrange,
    "rearrange_groups": rearrange_groups,
    "blockwise_activations": blockwise_activations,
    "blockwise_weights": blockwise_weights,
    "blockwise_products": blockwise_products,
    "deepgemm": deepgemm,
    "deepgemm_groups": deepgemm_groups,
    "inference_blockwise": inference_blockwise,
    "half_quadratic": half_quadratic,
    "int8_training": int8_training,
    "int8_products": int8_products,
    "blocks_of_rows": blocks_of_rows,
    "permuted": permuted,
    "jagged": jagged,
    "rowwise": rowwise,
    **{
        f"without_compile_{name}": lambda name=name: without_compile(f"hp_to_fp8_{name}")
        for name in (
            "row_major",
            "row_major_t",
            "col_major",
            "col_major_t",
            "row_and_col_major",
            "row_major_t_and_non_t",
            "col_major_t_and_non_t",
        )
    },
}

if __name__ == "__main__":
    one_step.run(CASES)
