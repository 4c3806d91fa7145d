import torch
from measure import measure

model = torch.nn.LSTM(1024, 1024, 2, batch_first=True).cuda()
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(64, 256, 1024, device="cuda")


def step():
    optimizer.zero_grad()
    model(x)[0].square().mean().backward()
    optimizer.step()


measure(step)
