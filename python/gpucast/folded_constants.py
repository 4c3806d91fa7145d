"""While torch.compile compiles, it computes tensors on the card whose elements are all equal, one element of each, and reads it. The same
element is computed on the host, and read there."""

import sys

from . import patching

_HOST = "_gpucast_on_host"  # of a tensor on the card: the same one on the host


class _Unknown(Exception):
    pass


def patch(module):
    """`module`: torch._inductor.fx_passes.joint_graph."""
    torch = sys.modules["torch"]
    from torch.overrides import TorchFunctionMode

    def on_host(one):
        if isinstance(one, torch.Tensor) and one.is_cuda:
            if not hasattr(one, _HOST):
                raise _Unknown
            return getattr(one, _HOST)
        return torch.device("cpu") if isinstance(one, torch.device) else one

    class OnHost(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*map(on_host, args), **{name: on_host(one) for name, one in (kwargs or {}).items()})

    def compute(real, folder, node, on_card):
        try:
            with OnHost():
                made = real(folder, node)
        except _Unknown:
            return
        if isinstance(made, torch.Tensor) and not made.is_cuda:
            setattr(on_card, _HOST, made)

    def deducing(real):
        def _deduce_value(self, node):
            out = real(self, node)
            if isinstance(out, torch.Tensor) and out.is_cuda and not hasattr(out, _HOST):
                patching.safely(lambda: compute(real, self, node, out))
            return out

        return _deduce_value

    def replacing(real):
        def add_node_replacement(self, node, tensor):
            return real(self, node, getattr(tensor, _HOST, tensor))

        return add_node_replacement

    patching.wrap(module.UniformValueConstantFolder, "_deduce_value", deducing)
    patching.wrap(module.UniformValueConstantFolder, "add_node_replacement", replacing)
