import torch
from measure import measure
from models import cnn

model = cnn().cuda().eval()
x = torch.randn(128, 3, 224, 224, device="cuda")


@torch.no_grad()
def step():
    model(x)


measure(step)
