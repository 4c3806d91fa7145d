import torch
from measure import measure

model = torch.nn.Sequential(
    torch.nn.Embedding(1_000_000, 128), torch.nn.Flatten(), torch.nn.Linear(128 * 32, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1)
).cuda()
optimizer = torch.optim.Adam(model.parameters())
x = torch.randint(0, 1_000_000, (4096, 32), device="cuda")


def step():
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


measure(step)
