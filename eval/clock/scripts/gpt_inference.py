import torch
from measure import measure
from models import GPT

model = GPT().cuda().eval().half()
x = torch.randint(0, 32000, (16, 512), device="cuda")


@torch.no_grad()
def step():
    model(x)


measure(step)
