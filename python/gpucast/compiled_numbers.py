"""What ATen operators inside compiled code do with whole numbers. Most of such code is compiled kernels, and the virtual GPU's core knows
what these store (src/kernels/stored_numbers.h). The operators between them are repeated on the host, with the numbers that the core knows."""

import ctypes
import pathlib
import re
import sys

from . import patching, shadow_values

_MOST_BYTES = 1 << 22  # of a tensor
_CALLED = re.compile(r"^[^#\n]*\baten\.(\w+)", re.MULTILINE)

_torch = None


def _names(text):
    return frozenset(text.split())


_OF_NUMBERS = _names(
    "argmax argmin bincount bucketize cat cummax cummin cumprod cumsum flip gather histc index index_add index_add_ index_copy index_copy_ "
    "index_fill index_fill_ index_put index_put_ index_select kthvalue masked_fill masked_fill_ masked_scatter masked_scatter_ max median "
    "min mode nonzero_static prod put put_ roll scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ searchsorted sort "
    "sum take topk"
)


class _Unknown(Exception):
    pass


class _Instead:
    """Another object with some attributes replaced."""

    def __init__(self, of, **attributes):
        self.__dict__.update(attributes, _of=of)

    def __getattr__(self, name):
        return getattr(self._of, name)


class _Repeated(_Instead):
    """An operator, or all of a name: torch.ops.aten.sort, torch.ops.aten.sort.stable."""

    def __getattr__(self, name):
        found = getattr(self._of, name)
        return _Repeated(found, _core=self._core) if isinstance(found, _torch._ops.OpOverload) else found

    def __call__(self, *args, **kwargs):
        began_ns = shadow_values.now_ns()
        on_host = patching.safely(lambda: _on_host(self._of, args, kwargs, self._core))
        shadow_values.spent_since(began_ns)
        result = self._of(*args, **kwargs)
        began_ns = shadow_values.now_ns()
        patching.safely(lambda: _note(self._of, args, result, on_host, self._core))
        shadow_values.spent_since(began_ns)
        return result


def patch(module, core):
    """`module`: torch._inductor.codecache."""
    global _torch
    _torch = sys.modules["torch"]  # may still be in the middle of its own import
    patching.wrap(module.PyCodeCache, "load_by_key_path", lambda real: _loading(real, core))


def _loading(real, core):
    def load_by_key_path(*args, **kwargs):
        module = real(*args, **kwargs)
        patching.safely(lambda: _repeat_in(module, core))
        return module

    return load_by_key_path


def _repeat_in(module, core):
    """Code names operators as aten.sort and as torch.ops.aten.sort."""
    ops = _torch.ops
    if getattr(module, "aten", None) is not ops.aten:  # a kernel, or seen before
        return
    names = _OF_NUMBERS.intersection(_CALLED.findall(pathlib.Path(module.__file__).read_text()))
    if names:
        module.aten = _Instead(ops.aten, **{name: _Repeated(getattr(ops.aten, name), _core=core) for name in names})
        module.torch = _Instead(_torch, ops=_Instead(ops, aten=module.aten))


# ---- one call --------------------------------------------------------------------------------------------------------------------


def _on_host(function, args, kwargs, core):
    """(the first argument, the result) of the same call on the host; None: something that it reads is not known."""
    try:
        with _torch._C.DisableTorchFunction(), _torch.no_grad():
            host_args = [_known(one, core) for one in args]
            return host_args[0], function(*host_args, **{name: _known(one, core) for name, one in kwargs.items()})
    except _Unknown:
        return None


def _known(one, core):
    if isinstance(one, (list, tuple)):
        return [_known(inner, core) for inner in one]
    if not isinstance(one, _torch.Tensor) or not one.is_cuda:
        return one
    size = _bytes(one)
    if one.dtype.is_floating_point or one.dtype.is_complex or size > _MOST_BYTES:
        raise _Unknown
    memory = _torch.empty(size // one.element_size(), dtype=one.dtype, device="cpu")
    found = core.gpucast_vgpu_known_values(ctypes.c_uint64(one.data_ptr()), ctypes.c_void_p(memory.data_ptr()), ctypes.c_uint64(size))
    if found != size:
        raise _Unknown
    return memory.as_strided(one.shape, one.stride())


def _bytes(tensor):
    """From its first element to the end of its last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size() if tensor.numel() else 0


def _note(function, args, result, on_host, core):
    first, values = on_host or (None, None)
    if function.__name__.split(".")[0].endswith("_"):
        return _note_memory(args[0], first, core)
    results = result if isinstance(result, (list, tuple)) else (result,)
    values = values if isinstance(values, (list, tuple)) else (values,) * len(results)
    for one, value in zip(results, values):
        if isinstance(one, _torch.Tensor) and one.is_cuda:
            _note_memory(one, _laid_out(value, one), core)
    return None


def _laid_out(value, tensor):
    """The values in memory as the tensor's are; None: not known."""
    if (
        value is None
        or value.shape != tensor.shape
        or value.dtype != tensor.dtype
        or _bytes(tensor) != value.numel() * value.element_size()
    ):
        return None
    return _torch.empty(value.numel(), dtype=value.dtype, device="cpu").as_strided(tensor.shape, tensor.stride()).copy_(value)


def _note_memory(tensor, value, core):
    """`value`: its memory on the host; None: it is not known."""
    core.gpucast_vgpu_note_values(tensor.data_ptr(), None if value is None else value.data_ptr(), _bytes(tensor))
