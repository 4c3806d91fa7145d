import torch
from clock_models import GPT
from measure import measure
from torch.utils.checkpoint import checkpoint

model = GPT().cuda()
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randint(0, 32000, (8, 512), device="cuda")


def step():
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        hidden = model.tokens(x) + model.places
        for block in model.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False)
        loss = torch.nn.functional.cross_entropy(model.head(model.norm(hidden)).flatten(0, 1), x.flatten())
    loss.backward()
    optimizer.step()


measure(step)
