"""Gradients of several backward passes added up for each step of the optimizer: a part of the what-if `micro-batch`."""

from . import places
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
        for kind in _schedulers(torch):
            wrap(kind, "step", self._scheduling)
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
        places.note("step")
        last = self._is_last(optimizer)
        self.asked[id(optimizer)] = self._asked(optimizer) + 1
        return real() if last else None

    def _unless_in_the_middle(self, real):
        def zero_grad(owner, *args, **kwargs):
            places.note("once_a_step")
            optimizers = [owner] if owner in self.optimizers else [] if isinstance(owner, self.torch.optim.Optimizer) else self.optimizers
            if any(self._asked(optimizer) % self._parts() for optimizer in optimizers):
                return None
            return real(owner, *args, **kwargs)

        return zero_grad

    def _with_the_last(self, instead):
        def around(real):
            def clip(*args, **kwargs):
                places.note("once_a_step")
                if not self.optimizers or any(self._is_last(optimizer) for optimizer in self.optimizers):
                    return real(*args, **kwargs)
                return instead()

            return clip

        return around

    def _scaling(self, name):
        def around(real):
            def call(scaler, *args, **kwargs):
                places.note("scaler_step" if name == "step" else "once_a_step")
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

    def _scheduling(self, real):
        """A schedule goes on for each part, but a patch moves it to the step."""

        def step(scheduler, *args, **kwargs):
            places.note("once_a_step")
            return real(scheduler, *args, **kwargs)

        return step

    def _differentiating(self, real):
        def differentiate(tensors, grad_tensors=None, *args, **kwargs):
            if grad_tensors is None and isinstance(tensors, self.torch.Tensor) and self._parts() > 1:
                tensors = tensors / self._parts()
            return real(tensors, grad_tensors, *args, **kwargs)

        return differentiate


def _schedulers(torch):
    """The classes of schedulers that have a `step` of their own."""
    from torch.optim import lr_scheduler

    base = getattr(lr_scheduler, "LRScheduler", None) or lr_scheduler._LRScheduler
    kinds = [kind for kind in vars(lr_scheduler).values() if isinstance(kind, type) and issubclass(kind, base)]
    return [kind for kind in dict.fromkeys(kinds) if "step" in vars(kind)]
