import torch
from measure import measure

layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0)
model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(8, 512, 1024, device="cuda")
graphed = torch.cuda.make_graphed_callables(model, (torch.randn_like(x),))


def step():
    optimizer.zero_grad()
    graphed(x).square().mean().backward()
    optimizer.step()


measure(step)
