"""Compiles one matrix product with torch.compile, which measures the kernels that it can choose among and prints their times. Runs under
`gpucast run --warp`.

python compile_product.py M K N DTYPE [--a-transposed] [--row-stride ELEMENTS]
"""

import argparse


def main():
    import torch
    import torch._inductor.config

    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", type=int, nargs=3, metavar="M K N")
    parser.add_argument("dtype")
    parser.add_argument("--a-transposed", action="store_true")
    parser.add_argument("--row-stride", type=int, help="of the second matrix")
    options = parser.parse_args()
    m, k, n = options.sizes
    config = torch._inductor.config
    config.max_autotune = True
    config.max_autotune_gemm_backends = "ATEN,TRITON"
    config.triton.enable_persistent_tma_matmul = True
    config.autotune_num_choices_displayed = None
    config.force_disable_caches = True  # a choice that is kept is not measured
    made = {"device": "cuda", "dtype": getattr(torch, options.dtype)}
    a = torch.randn(k, m, **made).t() if options.a_transposed else torch.randn(m, k, **made)
    b = torch.randn(k, options.row_stride or n, **made)[:, :n]
    torch.compile(torch.matmul)(a, b)


if __name__ == "__main__":
    main()
