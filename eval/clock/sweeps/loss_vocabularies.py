import torch
from sweep_values import by_wall, sweep


def measure(vocabulary):
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
    return by_wall(step)


sweep(measure, 8_000, 32_000, 50_257, 128_256)
