import torch
from clock_models import GPT
from measure import measure

model = GPT().cuda()
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randint(0, 32000, (8, 512), device="cuda")


def step():
    optimizer.zero_grad()
    for part in x.chunk(4):
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(part).flatten(0, 1), part.flatten())
        loss.backward()
    optimizer.step()


measure(step)
