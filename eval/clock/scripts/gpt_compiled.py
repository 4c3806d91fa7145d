import torch
from clock_models import GPT
from measure import measure

model = torch.compile(GPT().cuda())
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randint(0, 32000, (8, 512), device="cuda")


def step():
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
    loss.backward()
    optimizer.step()


measure(step)
