import torch
from clock_models import GPT
from measure import measure

model = GPT().cuda().eval().half()
x = torch.randint(0, 32000, (16, 512), device="cuda")


@torch.no_grad()
def step():
    model(x)


measure(step)
