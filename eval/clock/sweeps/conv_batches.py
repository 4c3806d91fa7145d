import torch
from sweep_values import sweep


@torch.no_grad()
def measure(batch, repeats=100):
    """Between two events."""
    conv = torch.nn.Conv2d(128, 128, 3, padding=1).cuda().eval()
    x = torch.randn(batch, 128, 56, 56, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(10):
        conv(x)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(repeats):
        conv(x)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / repeats


sweep(measure, 1, 4, 16, 64, 256)
