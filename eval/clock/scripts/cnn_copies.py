import torch
from clock_models import cnn
from measure import measure

model = cnn().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
host, y = torch.randn(64, 3, 224, 224), torch.randint(0, 1000, (64,))


def step():
    """The host waits for copies from memory that is not pinned."""
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(host.cuda()), y.cuda()).backward()
    optimizer.step()


measure(step)
