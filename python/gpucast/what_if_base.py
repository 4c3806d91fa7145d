"""What all what-ifs have in common: a name, what they changed, and care that the user's program goes on when our code fails."""

import functools
import inspect
import weakref


def wrap(owner, name, around):
    real = getattr(owner, name)
    setattr(owner, name, functools.wraps(real)(around(real)))


def listed(names):
    names = list(dict.fromkeys(names))
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def class_name(module):
    """Of a module that fully_shard has given a class of its own: the class before."""
    kind = type(module)
    if kind.__name__.startswith("FSDP") and any(base.__name__ == "FSDPModule" for base in kind.__bases__):
        kind = kind.__bases__[-1]
    return kind.__name__


class WhatIf:
    torch = None  # set at its import

    def __init__(self, name, argument):
        self.name, self.argument = name, argument
        self.count = 0
        self.subjects = []  # the names of changed things, for the report
        self._failure = ""

    def install(self, at):
        if self._failure:
            return
        try:
            at()
        except Exception as error:
            self.failed(f"gpucast could not put it in place: {type(error).__name__}: {error}")

    def safely(self, function, *args):
        """Returns False instead of raising: the user's program goes on unchanged."""
        try:
            return function(*args)
        except Exception as error:
            self.failed(f"gpucast's own code failed: {type(error).__name__}: {error}")
            return False

    def failed(self, why):
        """The what-if counts as one that changed nothing."""
        self._failure = self._failure or why

    def at_import(self):
        pass

    def at_cuda_start(self):
        pass

    def acted(self, subject):
        self.count += 1
        if subject not in self.subjects:
            self.subjects.append(subject)

    def outcome(self):
        return {"name": self.name, "count": 0 if self._failure else self.count, "did": self._failure or self.did()}


class OfOptimizers(WhatIf):
    """A what-if that acts on each optimizer of the script: `made(optimizer)` after it was made, `step(optimizer, real)` for each step."""

    making = False  # one of them makes an optimizer of its own

    def at_import(self):
        self.optimizers = weakref.WeakSet()
        wrap(self.torch.optim.Optimizer, "__init__", self._initializing)

    def _initializing(self, real):
        def initialize(optimizer, *args, **kwargs):
            real(optimizer, *args, **kwargs)
            if not OfOptimizers.making:
                self.safely(self._made, optimizer)

        return initialize

    def _made(self, optimizer):
        kind = type(optimizer)
        around = getattr(kind.step, "what_ifs", ())
        if self not in around:
            wrap(kind, "step", self._stepping)  # PyTorch has put its hooks around it by now, and they stay inside
            kind.step.what_ifs = (*around, self)
        self.optimizers.add(optimizer)

    def _stepping(self, real):
        def step(optimizer, *args, **kwargs):
            if optimizer not in self.optimizers:
                return real(optimizer, *args, **kwargs)
            return self.step(optimizer, functools.partial(real, optimizer, *args, **kwargs))

        return step

    def step(self, optimizer, real):
        raise NotImplementedError


def constructors_with(torch, argument):
    """The optimizers of torch.optim whose constructor takes this argument."""
    for kind in list(vars(torch.optim).values()):
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and argument in inspect.signature(kind.__init__).parameters:
            yield kind
