import torch
from sweep_values import sweep
from torch.utils import benchmark


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


@torch.no_grad()
def measure(length):
    attention = Attention().eval()
    q, k, v = (torch.randn(4, 16, length, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    for _ in range(10):
        attention(q, k, v)
    timer = benchmark.Timer("attention(q, k, v)", globals={"attention": attention, "q": q, "k": k, "v": v})
    return 1e3 * timer.blocked_autorange(min_run_time=0.1).median


sweep(measure, 256, 512, 1024, 2048, 4096, 8192)
