import torch
from sweep_values import sweep
from triton.testing import do_bench


class Chain(torch.nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.gelu(x * y + 1).sigmoid() * (x - y).tanh()


@torch.no_grad()
def measure(millions):
    torch.compiler.reset()  # or sizes after the first share one kernel of any size
    chain = torch.compile(Chain().eval())
    x, y = torch.randn(2, millions << 20, device="cuda")
    for _ in range(10):
        chain(x, y)
    return do_bench(lambda: chain(x, y), return_mode="median")


sweep(measure, 1, 4, 16, 64, 256)
