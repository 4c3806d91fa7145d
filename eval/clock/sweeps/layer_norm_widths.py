import torch
from sweep_values import sweep
from triton.testing import do_bench


@torch.no_grad()
def measure(width):
    norm = torch.nn.LayerNorm(width).cuda().half().eval()
    x = torch.randn(16384, width, device="cuda", dtype=torch.float16)
    for _ in range(10):
        norm(x)
    return do_bench(lambda: norm(x), return_mode="median")


sweep(measure, 512, 1024, 2048, 4096, 8192)
