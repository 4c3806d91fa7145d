import time

import torch
from sweep_values import sweep


def measure(vocabulary, repeats=10):
    """A language model's head and its loss, forward and backward, by the wall clock."""
    head = torch.nn.Linear(1024, vocabulary, bias=False).cuda().bfloat16()
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    x = torch.randn(4096, 1024, device="cuda", dtype=torch.bfloat16)
    y = torch.randint(0, vocabulary, (4096,), device="cuda")

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(x), y).backward()
        optimizer.step()

    for _ in range(10):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repeats):
        step()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin) / repeats


sweep(measure, 8_000, 32_000, 50_257, 128_256)
