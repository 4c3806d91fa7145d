import torch
from sweep_values import sweep


class Product(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


@torch.no_grad()
def measure(size, repeats=100):
    """Between two events."""
    product = Product().eval()
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(10):
        product(a, b)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(repeats):
        product(a, b)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / repeats


sweep(measure, 256, 512, 1024, 2048, 4096, 8192)
