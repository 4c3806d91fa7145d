import torch
from measure import measure

model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.ReLU()) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
x = torch.randn(1024, 4096, device="cuda")


def step():
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


measure(step)
