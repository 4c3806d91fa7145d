"""The what-if `chunked-loss`: the cross entropy of a language model's logits in chunks, so that the logits never exist as a whole."""

import math

from . import places, process
from .what_if_base import WhatIf, wrap

_MANY_OUTPUTS = 4  # times its inputs: a Linear with more outputs may make logits; modules inside a model make fewer


class ChunkedLoss(WhatIf):
    """checkpoint(cross_entropy of a Linear's output) for each of K chunks of tokens, added up and divided by the number of targets.

    The Linear's output stays lazy until something needs it. cross_entropy does not: it computes the logits of one chunk at a time."""

    def __init__(self, name, argument):
        super().__init__(name, argument)
        self._chunks = int(argument)
        self._made = False  # whether a Linear made lazy logits
        self._why_whole = ""

    def at_cuda_start(self):
        lazy_logits = _lazy_logits(self.torch)

        def around(real):
            def forward(module, inputs):
                if not process.job_is_captured() or process.is_compiling() or not self.safely(self._wants, module, inputs):
                    return real(module, inputs)
                self._made = True
                places.note("head")
                return lazy_logits(_Head(self, module), inputs)

            return forward

        wrap(self.torch.nn.Linear, "forward", around)

    def _wants(self, module, inputs):
        torch = self.torch
        if type(module) is not torch.nn.Linear or module.out_features <= _MANY_OUTPUTS * module.in_features:
            return False
        plain = type(module.weight) is torch.nn.Parameter and type(inputs) is torch.Tensor
        return plain and inputs.is_cuda and torch.is_grad_enabled() and (inputs.requires_grad or module.weight.requires_grad)

    def loss(self, logits, target, ignore_index, reduction, label_smoothing):
        from torch.utils.checkpoint import checkpoint

        functional, head, upcast = self.torch.nn.functional, logits.head, logits.upcast

        def loss_of(inputs, target):
            values = functional.linear(inputs, head.weight, head.bias)
            if upcast:
                values = values.float()
            return functional.cross_entropy(values, target, ignore_index=ignore_index, reduction="sum", label_smoothing=label_smoothing)

        chunks = zip(logits.inputs.chunk(self._chunks), target.chunk(self._chunks))
        total = sum(checkpoint(loss_of, inputs, some, use_reentrant=False) for inputs, some in chunks)
        self.count += 1
        places.note(self.name, called="cross_entropy")
        return total if reduction == "sum" else total / (target != ignore_index).sum()

    def needs_whole(self, what):
        self._why_whole = self._why_whole or what

    def did(self):
        if self.count:
            whole = f"; {self._why_whole} needed all logits too" if self._why_whole else ""
            return f"the logits and cross entropy of {self.count} steps in {self._chunks} chunks, recomputed in backward{whole}"
        if self._made:
            return f"the logits are not only used by cross_entropy: {self._why_whole or 'nothing'} used them"
        return "no Linear with many more outputs than inputs ran with gradients"


class _Head:
    """The Linear of lazy logits, and how it was called."""

    def __init__(self, what_if, module):
        torch = what_if.torch
        self.what_if, self.weight, self.bias = what_if, module.weight, module.bias
        self.autocast = torch.is_autocast_enabled()
        self.autocast_dtype = torch.get_autocast_gpu_dtype()
        self.dtype = self.autocast_dtype if self.autocast else module.weight.dtype


def _lazy_logits(torch):
    """The class of lazy logits."""
    functional = torch.nn.functional

    class LazyLogits(torch.Tensor):
        """The output of a Linear that is not computed yet: its inputs, with the last dimension of the outputs."""

        @staticmethod
        def __new__(cls, head, inputs, upcast=False):
            dtype = torch.float32 if upcast else head.dtype
            shape = (*inputs.shape[:-1], head.weight.shape[0])
            return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=inputs.device, requires_grad=True)

        def __init__(self, head, inputs, upcast=False):
            self.head, self.inputs, self.upcast = head, inputs, upcast
            self.whole = None

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            name = getattr(function, "__name__", "")
            if name in ("__get__", "__set__") and getattr(function.__self__, "__name__", "") not in _NEED_VALUES or name in _KNOWN:
                with torch._C.DisableTorchFunctionSubclass():
                    return function(*args, **kwargs)
            rule = _RULES.get(name)
            if rule is not None and args and isinstance(args[0], cls) and args[0].whole is None:
                result = rule(*args, **kwargs)
                if result is not None:
                    return result
            return function(*_computed(args, name), **_computed(kwargs, name))

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            """C++ asks for values past __torch_function__ and past autograd: the result would have no gradient."""
            for value in args:
                if isinstance(value, cls):
                    value.head.what_if.failed(f"the logits are used by {function} in a way that gpucast cannot follow")
            return function(*_computed(args, str(function)), **_computed(kwargs or {}, str(function)))

        def compute(self, why):
            """The logits as the Linear would have made them."""
            if self.whole is None:
                head = self.head
                head.what_if.needs_whole(why)
                with torch.autocast("cuda", dtype=head.autocast_dtype, enabled=head.autocast):
                    whole = functional.linear(self.inputs, head.weight, head.bias)
                self.whole = whole.float() if self.upcast else whole
            return self.whole

        def __repr__(self):
            return repr(self.compute("repr"))

    def _computed(value, why):
        if isinstance(value, LazyLogits):
            return value.compute(why)
        if type(value) in (tuple, list):
            return type(value)(_computed(each, why) for each in value)
        if type(value) is dict:
            return {key: _computed(each, why) for key, each in value.items()}
        return value

    def same_width(logits, inputs):
        """None: the operator changed the last dimension, which only the outputs have."""
        if inputs.dim() == 0 or inputs.shape[-1] != logits.inputs.shape[-1]:
            return None
        return LazyLogits(logits.head, inputs, logits.upcast)

    def viewed(operator):
        def view(logits, *sizes):
            sizes = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
            outputs, width = logits.head.weight.shape[0], logits.inputs.shape[-1]
            if not sizes or not all(isinstance(size, int) for size in sizes) or sizes[-1] not in (-1, outputs):
                return None
            if sizes[-1] == -1 and (-1 in sizes[:-1] or math.prod(sizes[:-1]) * width != logits.inputs.numel()):
                return None
            return same_width(logits, operator(logits.inputs, (*sizes[:-1], width)))

        return view

    def flatten(logits, start_dim=0, end_dim=-1):
        rank = logits.inputs.dim()
        return same_width(logits, logits.inputs.flatten(start_dim, end_dim)) if end_dim % rank < rank - 1 else None

    def indexed(logits, index):
        index = index if isinstance(index, tuple) else (index,)
        if not all(isinstance(part, slice) or part is Ellipsis for part in index):
            return None
        reaches_last = len(index) == logits.inputs.dim() or (Ellipsis in index and index[-1] is not Ellipsis)
        return None if reaches_last and index[-1] != slice(None) else same_width(logits, logits.inputs[index])

    def contiguous(logits, **kwargs):
        return None if kwargs else same_width(logits, logits.inputs.contiguous())

    def upcast(logits, **kwargs):
        return None if kwargs else LazyLogits(logits.head, logits.inputs, True)

    def moved(logits, *target, **kwargs):
        if kwargs or len(target) != 1 or target[0] not in (torch.float32, logits.dtype, logits.device):
            return None
        return logits if target[0] in (logits.dtype, logits.device) else upcast(logits)

    def cross_entropy(
        logits, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0
    ):
        if (weight, size_average, reduce) != (None, None, None) or reduction not in ("mean", "sum"):
            return None
        if logits.inputs.dim() != 2 or target.dim() != 1 or target.is_floating_point():
            return None
        return logits.head.what_if.loss(logits, target, ignore_index, reduction, label_smoothing)

    _RULES = {
        "view": viewed(torch.Tensor.view),
        "reshape": viewed(torch.Tensor.reshape),
        "flatten": flatten,
        "__getitem__": indexed,
        "contiguous": contiguous,
        "float": upcast,
        "to": moved,
        "cross_entropy": cross_entropy,
    }
    return LazyLogits


# What a tensor knows without its values, and attributes that need them.
_KNOWN = (
    "size",
    "dim",
    "ndimension",
    "numel",
    "nelement",
    "is_floating_point",
    "get_device",
    "__len__",
    "__hash__",
    "stride",
    "is_contiguous",
)
_NEED_VALUES = ("data", "T", "mT", "H", "mH", "real", "imag", "grad", "grad_fn")
