import torch
from sweep_values import sweep
from torch.utils import benchmark


@torch.no_grad()
def measure(vocabulary):
    embedding = torch.nn.Embedding(vocabulary, 512).cuda().eval()
    tokens = torch.randint(0, vocabulary, (64, 1024), device="cuda")
    for _ in range(10):
        embedding(tokens)
    return 1e3 * benchmark.Timer("embedding(tokens)", globals={"embedding": embedding, "tokens": tokens}).timeit(50).mean


sweep(measure, 1_000, 10_000, 32_000, 128_000, 1_000_000)
