import torch
from sweep_values import sweep


def measure(millions, repeats=10):
    """An optimizer's step, between two events."""
    parameters = [torch.nn.Parameter(torch.zeros(1 << 20, device="cuda")) for _ in range(millions)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW(parameters)
    for _ in range(10):
        optimizer.step()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        optimizer.step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / repeats


sweep(measure, 8, 32, 128, 512)
