"""Where a step ends, for scripts without an optimizer."""

import torch


class StepEnd:
    """gpucast counts steps of optimizers. This one's only parameter never has a gradient, so that its step launches nothing."""

    def __init__(self):
        self._optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.0, foreach=False)

    def __call__(self):
        self._optimizer.step()
