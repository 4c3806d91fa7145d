import torch
from sweep_values import by_wall, sweep


class Residual(torch.nn.Module):
    """As a block of ResNet-50."""

    def __init__(self, channels=256, inner=64):
        super().__init__()
        self.inside = torch.nn.Sequential(
            torch.nn.Conv2d(channels, inner, 1, bias=False),
            torch.nn.BatchNorm2d(inner),
            torch.nn.ReLU(inplace=True),
            torch.nn.Conv2d(inner, inner, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(inner),
            torch.nn.ReLU(inplace=True),
            torch.nn.Conv2d(inner, channels, 1, bias=False),
            torch.nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return torch.relu(x + self.inside(x))


def measure(image):
    """A training step by the wall clock."""
    model = torch.nn.Sequential(Residual(), Residual(), Residual()).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(32, 256, image // 4, image // 4, device="cuda")

    def step():
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()

    for _ in range(10):
        step()
    return by_wall(step)


sweep(measure, 64, 128, 224, 320, 448)
