import torch
from clock_models import cnn
from measure import measure

model = cnn().cuda().eval()
x = torch.randn(128, 3, 224, 224, device="cuda")


@torch.no_grad()
def step():
    model(x)


measure(step)
