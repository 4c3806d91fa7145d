"""What-ifs about optimizers: how they compute, what state they keep and where, and when they step."""

import inspect

from . import places
from .what_if_base import OfOptimizers, WhatIf, constructors_with, listed, wrap

_SWITCHES = {
    "no-foreach": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": None, "fused": True},
}


class Switches(WhatIf):
    """foreach and fused in the constructor of each optimizer that takes them."""

    def __init__(self, name, argument):
        super().__init__(name, argument)
        self._values = _SWITCHES[name]
        self._decides = "fused" if name == "fused" else "foreach"  # an optimizer must take it
        self._refused = ""

    def at_import(self):
        for kind in constructors_with(self.torch, self._decides):
            wrap(kind, "__init__", self._constructing)
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        if self.name == "no-foreach":
            register_optimizer_step_pre_hook(self._before_step)

    def _constructing(self, real):
        signature = inspect.signature(real)
        values = {name: value for name, value in self._values.items() if name in signature.parameters}

        def construct(*args, **kwargs):
            try:
                given = signature.bind(*args, **kwargs)
            except TypeError:
                return real(*args, **kwargs)  # raises the right error
            changes = self._changes(given.arguments, values)
            given.arguments.update(values)
            try:
                result = real(*given.args, **given.kwargs)
            except RuntimeError as error:  # fused: parameters of another device or type
                self._refused = f"{type(args[0]).__name__} refuses it: {error}"
                return real(*args, **kwargs)
            if changes:
                self.acted(type(args[0]).__name__)
                places.note(self.name, called=type(args[0]).__name__)
            return result

        return construct

    def _changes(self, given, values):
        if self.name == "foreach":  # PyTorch's own choice on a GPU
            return given.get("foreach") is False or given.get("fused") is True
        return any(given.get(name) is not value for name, value in values.items() if value is not None)

    def _before_step(self, optimizer, args, kwargs):
        """Optimizers from elsewhere, groups with other settings, and loaded states."""
        for group in optimizer.param_groups:
            for name in ("foreach", "fused"):
                if name in group and group[name] is not False:
                    group[name] = False
                    self.acted(type(optimizer).__name__)

    def did(self):
        if self.count:
            values = [f"{name}={value}" for name, value in self._values.items() if value is not None]
            return f"{listed(self.subjects)} with {' and '.join(values if self.name != 'foreach' else values[:1])}"
        if self.name == "no-foreach":
            return "no optimizer was made that takes foreach or fused, or all have them off"
        return self._refused or f"no optimizer was made that takes {self.name}, or all have it on"


# ---- other optimizers ------------------------------------------------------------------------------------------------------------


class _Replacing(WhatIf):
    """Adam and AdamW replaced by another optimizer, with those arguments that both take."""

    def at_import(self):
        optim = self.torch.optim
        for kind in (optim.Adam, optim.AdamW):
            kind.__new__ = staticmethod(self._making(kind))

    def _making(self, replaced):
        signature = inspect.signature(replaced.__init__)

        def make(kind, *args, **kwargs):
            if kind is not replaced:
                return object.__new__(kind)
            try:
                other = self.other()
                self._note_place(replaced, other, signature)
                given = signature.bind(None, *args, **kwargs).arguments
                taken = inspect.signature(other.__init__).parameters
                optimizer = other(
                    **{name: value for name, value in given.items() if name in taken and name not in ("self", "foreach", "fused")}
                )
            except Exception as error:
                self.failed(f"{replaced.__name__} could not be replaced: {type(error).__name__}: {error}")
                return object.__new__(kind)
            self.acted(f"{replaced.__name__} became {other.__name__}")
            return optimizer  # of another class, so Python does not call replaced.__init__

        return make

    def _note_place(self, replaced, other, signature):
        taken = set(inspect.signature(other.__init__).parameters) - {"self", "foreach", "fused"}
        places.note("optimizer", called=replaced.__name__)
        names = {"called": replaced.__name__, "other": other.__name__}
        places.note(self.name, **names, taken=sorted(taken), parameters=list(signature.parameters)[1:])

    def did(self):
        return listed(self.subjects) if self.count else "the script makes no Adam and no AdamW of torch.optim"


class EightBit(_Replacing):
    """bitsandbytes.optim.AdamW8bit: state of 8 bits."""

    def other(self):
        from bitsandbytes.optim import AdamW8bit

        return AdamW8bit


class Factored(_Replacing):
    """torch.optim.Adafactor: the second moment as a row and a column."""

    def other(self):
        return self.torch.optim.Adafactor


# ---- an optimizer for each parameter ---------------------------------------------------------------------------------------------


class _OneEach(OfOptimizers):
    """Makes an optimizer like the script's for one parameter."""

    def one_for(self, optimizer, group, parameter):
        OfOptimizers.making = places.making_own = True
        try:
            settings = {name: value for name, value in group.items() if name != "params"}
            required = {"lr": group["lr"]} if "lr" in group else {}
            return type(optimizer)([{**settings, "params": [parameter]}], **required)
        finally:
            OfOptimizers.making = places.making_own = False


class InBackward(_OneEach):
    """Each parameter's own optimizer steps as soon as its gradient is complete, and the gradient is dropped."""

    def at_import(self):
        super().at_import()
        self._own = {}  # id(parameter) -> its optimizer
        self._passes = 0
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            wrap(self.torch.nn.utils, name, self._needs_all_gradients(f"{name} needs all gradients at once"))
        wrap(self.torch.amp.GradScaler, "unscale_", self._needs_all_gradients("GradScaler checks all gradients before a step"))

    def at_cuda_start(self):
        wrap(self.torch.autograd, "backward", self._differentiating)

    def _needs_all_gradients(self, why):
        def around(real):
            def call(*args, **kwargs):
                self.failed(f"the script cannot do it: {why}")
                return real(*args, **kwargs)

            return call

        return around

    def _differentiating(self, real):
        def differentiate(*args, **kwargs):
            for optimizer in list(self.optimizers):
                self.safely(self._hook, optimizer)
            self._passes += 1
            return real(*args, **kwargs)

        return differentiate

    def _hook(self, optimizer):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in self._own or not parameter.requires_grad:
                    continue
                self._own[id(parameter)] = self.one_for(optimizer, group, parameter)
                parameter.register_post_accumulate_grad_hook(self._step_one)
                self.acted(type(optimizer).__name__)

    def _step_one(self, parameter):
        own = self._own[id(parameter)]
        own.step()
        own.zero_grad()

    def step(self, optimizer, real):
        if self._passes > 1:
            self.failed("the script cannot do it: it adds up the gradients of several backward passes")
        self._passes = 0
        return real()  # no parameter has a gradient any more

    def did(self):
        if self.count:
            return f"{self.count} parameters of {listed(self.subjects)} stepped in backward, each with an optimizer of its own"
        return "no optimizer was made before a backward pass"


class Offload(_OneEach):
    """The optimizer's state in pinned memory of the host; each parameter's is on the card only while it steps."""

    def at_import(self):
        super().at_import()
        self._own = {}

    def step(self, optimizer, real):
        if not self.safely(self._step_each, optimizer):
            return real()
        return None

    def _step_each(self, optimizer):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if id(parameter) not in self._own:
                    self._own[id(parameter)] = self.one_for(optimizer, group, parameter)
                    self.acted(type(optimizer).__name__)
                self._step_one(self._own[id(parameter)], parameter)
        return True

    def _step_one(self, own, parameter):
        host = dict(own.state[parameter])
        moved = {name: value for name, value in host.items() if isinstance(value, self.torch.Tensor) and value.dim() > 0}
        for name, value in moved.items():
            own.state[parameter][name] = value.to(parameter.device, non_blocking=True)
        own.step()
        for name, value in own.state[parameter].items():
            if isinstance(value, self.torch.Tensor) and value.dim() > 0:
                kept = moved.get(name)
                if kept is None:
                    kept = self.torch.empty_like(value, device="cpu", pin_memory=True)
                own.state[parameter][name] = kept.copy_(value, non_blocking=True)

    def did(self):
        if self.count:
            return f"the state of {self.count} parameters of {listed(self.subjects)} stayed in the host's memory between steps"
        return "no optimizer stepped"
