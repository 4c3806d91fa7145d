"""Gradients of several backward passes added up for each step of the optimizer: a part of the what-if `micro-batch`."""

from .what_if_base import OfOptimizers, wrap


class Accumulate(OfOptimizers):
    """Of each `parts()` steps that the script asks for, only the last happens, and the others' zero_grad, clipping and scaling do not.

    A loss is divided by the number of parts, as a person would write it: (loss / parts).backward()."""

    def __init__(self, name, parts):
        super().__init__(name, "")
        self._parts = parts
        self.asked = {}  # id(optimizer) -> steps that the script asked for

    def at_import(self):
        super().at_import()
        torch = self.torch
        for owner in (torch.nn.Module, torch.optim.Optimizer):
            wrap(owner, "zero_grad", self._unless_in_the_middle)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            wrap(torch.nn.utils, name, self._with_the_last(lambda: torch.zeros(())))
        for name in ("unscale_", "step", "update"):
            wrap(torch.amp.GradScaler, name, self._scaling(name))

    def at_cuda_start(self):
        wrap(self.torch.autograd, "backward", self._differentiating)

    def _asked(self, optimizer):
        return self.asked.get(id(optimizer), 0)

    def _is_last(self, optimizer):
        """Whether the next step that the script asks for happens."""
        return (self._asked(optimizer) + 1) % self._parts() == 0

    def step(self, optimizer, real):
        last = self._is_last(optimizer)
        self.asked[id(optimizer)] = self._asked(optimizer) + 1
        return real() if last else None

    def _unless_in_the_middle(self, real):
        def zero_grad(owner, *args, **kwargs):
            optimizers = [owner] if owner in self.optimizers else [] if isinstance(owner, self.torch.optim.Optimizer) else self.optimizers
            if any(self._asked(optimizer) % self._parts() for optimizer in optimizers):
                return None
            return real(owner, *args, **kwargs)

        return zero_grad

    def _with_the_last(self, instead):
        def around(real):
            def clip(*args, **kwargs):
                if not self.optimizers or any(self._is_last(optimizer) for optimizer in self.optimizers):
                    return real(*args, **kwargs)
                return instead()

            return clip

        return around

    def _scaling(self, name):
        def around(real):
            def call(scaler, *args, **kwargs):
                optimizer = args[0] if args and name != "update" else None
                if optimizer in self.optimizers and not self._is_last(optimizer):
                    if name == "step":
                        self.asked[id(optimizer)] = self._asked(optimizer) + 1
                    return None
                if name == "update" and any(self._asked(one) % self._parts() for one in self.optimizers):
                    return None
                return real(scaler, *args, **kwargs)

            return call

        return around

    def _differentiating(self, real):
        def differentiate(tensors, grad_tensors=None, *args, **kwargs):
            if grad_tensors is None and isinstance(tensors, self.torch.Tensor) and self._parts() > 1:
                tensors = tensors / self._parts()
            return real(tensors, grad_tensors, *args, **kwargs)

        return differentiate
