"""Weights that a model draws at random on the host: the memory of large ones stays untouched.

Their values decide nothing (the virtual GPU has none). Drawing them is most of the time of a large model's run, and all of its host
memory: unwritten pages need none. They then hold zeros. The random number generator advances as if they had been drawn, so
every later number is the same. Small tensors are drawn as usual, and so are all cases that this module does not know exactly.
"""

import ctypes
import functools
import math
import os
import sys
import threading

from . import loops, patching, process

_MIN_BYTES = 1 << 20
_NAMES = ("init_weights", "reset_parameters", "reset_params", "initialize")  # a caller with this in its name initialises weights
_MOST_ROUNDS = 100  # of repeated draws
_BLOCK = 16  # normal numbers are drawn in blocks of this size (aten/src/ATen/native/cpu/DistributionTemplates.h, normal_fill)

_torch = None
_skip_random = None
_MADV_DONTNEED = 4

_known = {}  # (name of the function, type): 32-bit random numbers for each element; None: not known
_madvise = ctypes.CDLL(None).madvise
_drawing = threading.local()  # .on: inside a function that really draws
# (tensor, its version, generator state before, the function that draws it). Empty once CUDA is in use: from then on nothing is saved.
_left_out = []


def install(torch, skip_random):
    """`skip_random`: the core's gpucast_vgpu_skip_random."""
    global _torch, _skip_random
    _torch, _skip_random = torch, skip_random
    for name in ("normal_", "uniform_"):
        patching.wrap(torch.Tensor, name, lambda real, name=name: _filling(name, real))
    _madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    patching.wrap(torch.nn.init, "_no_grad_trunc_normal_", _truncated)
    patching.wrap(torch.Tensor, "erfinv_", _inverse_error)


def draw():
    """Draws the weights that were left out and are unchanged, because the program is about to save them."""
    left_out, _left_out[:] = list(_left_out), []
    for tensor, version, state, fill in left_out:
        if tensor._version == version:
            generator = _torch.Generator()
            generator.set_state(state)
            with _torch.no_grad():
                _really(fill, tensor, generator=generator)


def forget():
    """At the first CUDA call: see `_left_out`."""
    _left_out.clear()


# ---- which tensors -----------------------------------------------------------------------------------------------------------------


def _is_left_out(tensor):
    if tensor.is_cuda or process.state not in (process.WATCHING, process.ARMED) or getattr(_drawing, "on", False):
        return False
    plain = type(tensor) is _torch.Tensor
    return (
        (plain or type(tensor) is _torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout is _torch.strided
        and tensor.numel() * tensor.element_size() >= _MIN_BYTES
        and tensor.numel() % _BLOCK == 0
        and tensor.is_contiguous()
        and not (tensor.requires_grad and _torch.is_grad_enabled())  # an error of the script's
        and (not plain or _initialises(sys._getframe(2)))
        and not process.is_data_worker()
    )


def _initialises(frame):
    """torch.nn.init, or a function with such a name: it fills weights, not the script's data."""
    code = frame.f_code
    return code.co_filename.endswith(os.path.join("torch", "nn", "init.py")) or any(name in code.co_name for name in _NAMES)


def _really(function, *args, **kwargs):
    before, _drawing.on = getattr(_drawing, "on", False), True
    try:
        return function(*args, **kwargs)
    finally:
        _drawing.on = before


def _draws_per_element(name, fill, dtype):
    """Found by drawing a few numbers and comparing the generator's state with an advanced one."""
    key = name, dtype
    if key not in _known:
        _known[key] = None
        for count in (1, 2) if dtype.is_floating_point else ():
            drawn, moved = _torch.Generator(), _torch.Generator()
            moved.set_state(drawn.get_state())
            many = 50 * _BLOCK
            _really(fill, _torch.empty(many, dtype=dtype), generator=drawn)
            if _move_on(moved, many * count) and _torch.equal(drawn.get_state(), moved.get_state()):
                _known[key] = count
                break
    return _known[key]


def _move_on(generator, draws):
    state = generator.get_state()
    if _skip_random(state.data_ptr(), state.numel(), draws) != 0:
        return False
    generator.set_state(state)
    return True


# ---- what replaces the draws ---------------------------------------------------------------------------------------------------------


def _filling(name, real):
    def fill(self, *args, generator=None, **kwargs):
        if _is_left_out(self) and _leave_out(name, functools.partial(_swapped, real, args, kwargs), self, generator):
            return self
        return real(self, *args, generator=generator, **kwargs)

    return fill


def _truncated(real):
    """With `torch.nn.init.trunc_normal_`'s own arithmetic on one uniform number an element; later releases draw until all fit."""

    probe = functools.partial(_swapped, real, (0.0, 1.0, -0.5, 0.5), {})  # one number in three would fit

    def truncated(tensor, mean, std, a, b, generator=None):
        fill = functools.partial(_swapped, real, (mean, std, a, b), {})
        with _torch.no_grad():
            if _is_left_out(tensor) and _leave_out("trunc_normal_", fill, tensor, generator, probe):
                return tensor
        if not tensor.is_cuda:
            return _really(fill, tensor, generator)
        rounds = patching.safely(_rounds, tensor.numel(), mean, std, a, b) or 1
        with loops.expecting(*[True] * (rounds - 1), False):
            return real(tensor, mean, std, a, b, generator=generator)

    return truncated


def _inverse_error(real):
    """Only truncated normal numbers need it: the caller may be a copy of PyTorch 1's function, as timm, Swin and many others have."""

    def inverse_error(self):
        patching.safely(_know_copy, sys._getframe(1))
        return real(self)

    return inverse_error


def _know_copy(frame):
    """From now on the copy leaves out what it would draw."""
    code, names = frame.f_code, frame.f_globals
    takes = code.co_varnames[: code.co_argcount]
    if takes == ("tensor", "mean", "std", "a", "b") and getattr(names.get(code.co_name), "__code__", None) is code:
        patching.wrap(sys.modules[names["__name__"]], code.co_name, functools.partial(_truncated_copy, code.co_name))


def _truncated_copy(name, real):
    def truncated(tensor, mean, std, a, b):
        fill = functools.partial(_with_default, real, (mean, std, a, b))
        if _is_left_out(tensor) and _leave_out(f"{real.__module__}.{name}", fill, tensor, None):
            return tensor
        return real(tensor, mean, std, a, b)

    return truncated


def _with_default(real, args, tensor, generator):
    """A function that takes no generator, with the numbers of `generator`."""
    if generator is None:
        return real(tensor, *args)
    default = _torch.default_generator
    before = default.get_state()
    default.set_state(generator.get_state())
    try:
        return real(tensor, *args)
    finally:
        generator.set_state(default.get_state())
        default.set_state(before)


def _rounds(count, mean, std, a, b):
    """The fewest rounds after which, in half of all runs, all numbers lie within the bounds. torch.nn.init.trunc_normal_ of PyTorch 2.12
    and later draws numbers outside of them again, and reads in each round whether there are any."""

    def below(x):
        return (1.0 + math.erf((x - mean) / std / math.sqrt(2.0))) / 2.0

    accepted = below(b) - below(a)
    if accepted <= 0.3:  # then it draws uniformly between the bounds, and accepts with the density divided by the highest density
        nearest = (max(a, min(mean, b)) - mean) / std
        accepted *= std * math.sqrt(2.0 * math.pi) / (b - a) / math.exp(-0.5 * nearest**2)
    rounds, outside = 1, 1.0 - accepted
    while count * outside**rounds > math.log(2.0) and rounds < _MOST_ROUNDS:
        rounds += 1
    return rounds


def _swapped(real, args, kwargs, tensor, generator):
    return real(tensor, *args, generator=generator, **kwargs)


def _leave_out(name, fill, tensor, generator, probe=None):
    """Advances the generator instead of `fill(tensor, generator=generator)`. `probe`: the same with arguments that show more."""
    count = _draws_per_element(name, probe or fill, tensor.dtype)
    if count is None:
        return False
    own = generator or _torch.default_generator
    before = own.get_state()
    try:
        _really(fill, _torch.empty(_BLOCK, dtype=tensor.dtype), generator=generator)
        if not _move_on(own, (tensor.numel() - _BLOCK) * count):
            raise ValueError("not a state that is known")
        _forget_pages(tensor)
    except Exception:  # an error in the script's arguments: the call on its own tensor will fail in the same way
        own.set_state(before)
        return False
    if process.state == process.WATCHING:
        _left_out.append((tensor.detach(), tensor._version, before, fill))
    return True


def _forget_pages(tensor):
    """Clears the tensor's memory: its whole pages become zeros that need no memory, the rest is filled."""
    begin, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    page = os.sysconf("SC_PAGESIZE")
    first, last = -(-begin // page) * page, (begin + size) // page * page
    flat = tensor.detach().view(-1)
    flat[: (first - begin) // tensor.element_size() + 1] = 0
    flat[(last - begin) // tensor.element_size() :] = 0
    if _madvise(first, last - first, _MADV_DONTNEED) != 0:
        flat.zero_()
