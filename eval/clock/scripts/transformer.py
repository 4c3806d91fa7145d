import torch
from measure import measure

layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 4).cuda()
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(8, 512, 1024, device="cuda")


def step():
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


measure(step)
