"""Values that the script reads from the card and cannot go on without. The virtual GPU has no values and would give zero. This module handles
the effects of zeros in PyTorch and transformers, and gives the values of a successful training. Each gives a warning in the report."""

import inspect
import sys
import threading
import time
import weakref

from . import libraries, loops, patching, process, session, shadow_values, unwritten_files

_torch = None
_core = None
_on_count = None  # the callback of the core: kept alive
_unknown_was_read = False
_checking = threading.RLock()
_ones = []  # weak references to the gradients with which backward passes begin
_reading = threading.local()  # .length_reached: by the last call of the stopping criteria


def install_at_import(torch, core):
    global _core
    _core = core
    if _how() == "on":
        shadow_values.install(torch, core)


def _how():
    """on, off or auto. A run with a clock cannot begin again, because its files and its output are the script's: there auto is on."""
    how = session.settings().get("values")
    return "on" if how == "auto" and session.mode() == "clock" else how


def install_at_cuda_start(torch):
    global _torch, _on_count
    _torch = torch
    loops.install(torch, _core)
    how = _how()
    if how == "auto" and "transformers.modeling_utils" in sys.modules:  # its models ask whether their masks are all ones
        shadow_values.install_in_run(torch, _core)
        how = "on" if shadow_values.on() else how
    _leave_time_out()
    if how == "auto":
        _on_count = libraries.UNKNOWN_COUNT(_start_again)
        _core.gpucast_vgpu_on_unknown_count(_on_count)
        patching.wrap(torch.Tensor, "__index__", _as_size)
        for name in loops.READS:
            patching.wrap(torch.Tensor, name, _following_from_here)
    elif how == "off":
        loops.watch_numbers()
    if how != "off" and hasattr(torch.autograd, "_make_grads"):
        patching.wrap(torch.autograd, "_make_grads", _first_gradients)
        patching.wrap(torch, "equal", _equal)
    patching.wrap(_scaler_class(torch), "get_scale", _unchanged_scale)
    distribution = torch.distributions.Distribution
    patching.wrap(distribution, "__init__", _valid)
    patching.wrap(distribution, "_validate_sample", _valid)
    patching.wrap(torch, "normal", _normal)


def _leave_time_out():
    """The time that following takes is not the script's. A clock leaves it out in its own way (clock.py)."""
    if session.mode() != "clock":
        yardstick = _core.gpucast_vgpu_yardstick_ns
        shadow_values.leave_time_out(
            lambda measured_ns, usual_ns: patching.count_as_ours(measured_ns + usual_ns), time.thread_time_ns, yardstick
        )


def patch_generation(name, module):
    """A module of transformers.generation, right after it was imported."""
    if name.endswith(".stopping_criteria"):
        limit = getattr(module, "MaxLengthCriteria", None)
        if limit is not None:
            patching.wrap(module.StoppingCriteriaList, "__call__", lambda real: _watching_length(real, limit))
    else:
        patching.wrap(module.GenerationMixin, "_has_unfinished_sequences", _until_length)
        if isinstance(vars(module.GenerationMixin).get("_beam_search_has_unfinished_sequences"), staticmethod):
            patching.wrap(module.GenerationMixin, "_beam_search_has_unfinished_sequences", _beams_until_length)


def _assume(what):
    process.recorder.warn("value_assumed", what)


# ---- whole numbers and conditions ----------------------------------------------------------------------------------------------------


def _start_again():
    """Starts the run again, with values followed, because this run cannot match a card. Does not return."""
    if process.state != process.ARMED:
        return
    patching.safely(session.remove_torch_folder)
    patching.safely(unwritten_files.remove)
    session.write("again")
    _core.gpucast_vgpu_hold(session.settings()["supervisor_pid"])


def after_exception(kind, text):
    """The exception may be caused by an unknown value that the script read: then the run starts again."""
    if _unknown_was_read and "out of memory" not in text:
        _start_again()


def _is_unknown(tensor):
    """Whether the value just read from the tensor is unknown."""
    return tensor.is_cuda and process.state == process.ARMED and not _core.gpucast_vgpu_read_known()


def _following_from_here(real):
    """A script that reads whole numbers will read more of them, so the numbers of later steps are followed."""

    def reading(tensor, *args, **kwargs):
        global _unknown_was_read
        whole = not tensor.dtype.is_floating_point
        if not tensor.is_cuda or (process.is_compiling() and not whole):
            return real(tensor, *args, **kwargs)
        if whole:
            shadow_values.answer(_core, [0])
        try:
            value = real(tensor, *args, **kwargs)
        finally:
            if whole:
                shadow_values.answer(_core, [])
        if shadow_values.on() or not _is_unknown(tensor):
            return value
        if whole:
            _unknown_was_read = True
            shadow_values.install_in_run(_torch, _core, _start_again)
            _leave_time_out()
        return loops.given(value) if type(value) in loops.NUMBERS else value

    return reading


def _as_size(real):
    def __index__(tensor):
        value = real(tensor)
        if _is_unknown(tensor) and not tensor.dtype.is_floating_point:
            _start_again()
        return value

    return __index__


# ---- gradients of the last layer -----------------------------------------------------------------------------------------------------


def _first_gradients(real):
    """A backward pass begins with ones, unless the caller gives gradients. It holds them until its end."""

    def _make_grads(outputs, grads, *args, **kwargs):
        made = real(outputs, grads, *args, **kwargs)
        _ones[:] = [reference for reference in _ones if reference() is not None]
        _ones.extend(weakref.ref(one) for one, given in zip(made, grads) if given is None and one is not None and one.is_cuda)
        return made

    return _make_grads


def _is_ones(tensor):
    """Whether it is a view of such a gradient: sums, sums of losses and views pass it on."""
    if not tensor.is_cuda or tensor.numel() == 0:
        return False
    address = tensor.untyped_storage().data_ptr()
    return any(one is not None and one.untyped_storage().data_ptr() == address for one in [reference() for reference in _ones])


def _equal(real):
    """`torch.equal(grad_output, torch.tensor(1.0))` in a backward pass: fused losses leave out a multiplication by one."""

    def equal(first, second):
        if not _ones or not process.job_runs() or process.is_compiling():
            return real(first, second)
        if first.shape != second.shape:
            return real(first, second)
        ones = [patching.safely(_is_ones, one) for one in (first, second)]
        other = second if ones[0] else first
        # Read first: a kernel might change what it is given, so the core then forgets it.
        number = _known_number(other) if any(ones) and not all(ones) and other.numel() == 1 else None
        return real(first, second) or all(ones) or number == 1

    return equal


def _known_number(tensor):
    with loops.expecting():
        number = tensor.item()
    return number if not tensor.is_cuda or _core.gpucast_vgpu_read_known() else None


# ---- GradScaler --------------------------------------------------------------------------------------------------------------------


def _scaler_class(torch):
    amp = getattr(torch, "amp", None)
    return getattr(amp, "GradScaler", None) or torch.cuda.amp.GradScaler


def _unchanged_scale(real):
    """The scale stays the same. On a card it grows after 2000 steps, and shrinks if gradients are not finite."""

    def get_scale(self):
        scale = getattr(self, "_scale", None)
        if scale is None or not self._enabled or not process.job_runs():
            return real(self)
        _assume(f"GradScaler's scale is assumed to stay {self._init_scale}: gradients on the virtual GPU have no values")
        return self._init_scale

    return get_scale


# ---- torch.distributions -----------------------------------------------------------------------------------------------------------


def _valid(real):
    """Its checks run and allocate as usual. Values on the card are assumed to be valid."""

    def checking(self, *args, **kwargs):
        if not process.job_runs() or process.is_compiling():
            return real(self, *args, **kwargs)
        with _AllTrue():
            return real(self, *args, **kwargs)

    return checking


class _AllTrue:
    """Inside this context, `all()` of a tensor on the card is true in this thread: the checks end with it."""

    _PLACES = ("Tensor", "all"), (None, "_is_all_true")

    def __enter__(self):
        _checking.acquire()
        thread = threading.get_ident()
        self._real = []
        for owner, name in self._PLACES:
            owner = getattr(_torch, owner) if owner else _torch
            real = getattr(owner, name, None)
            if real is not None:
                self._real.append((owner, name, owner.__dict__.get(name)))
                setattr(owner, name, self._yes(real, thread))

    def __exit__(self, *_):
        for owner, name, own in self._real:
            if own is None:  # inherited
                delattr(owner, name)
            else:
                setattr(owner, name, own)
        _checking.release()

    @staticmethod
    def _yes(real, thread):
        def all_true(tensor, *args, **kwargs):
            found = real(tensor, *args, **kwargs)
            if args or kwargs or threading.get_ident() != thread or not getattr(tensor, "is_cuda", False):
                return found
            _assume("torch.distributions checks values on the card: assumed to be valid")
            return True

        return all_true


def _normal(real):
    """torch.normal refuses standard deviations below zero. On the card: the same without the refusal (aten/src/ATen/native/
    DistributionTemplates.h, normal_impl; it checks twice)."""

    def normal(mean, std=1.0, *args, generator=None, **kwargs):
        tensors = [each for each in (mean, std) if isinstance(each, _torch.Tensor)]
        if (
            args
            or kwargs
            or not tensors
            or not isinstance(std, _torch.Tensor)
            or not all(type(each) is _torch.Tensor and each.is_cuda and not each.requires_grad for each in tensors)
            or not process.job_runs()
            or process.is_compiling()
        ):
            return real(mean, std, *args, generator=generator, **kwargs)
        _assume("torch.normal's standard deviations on the card are assumed to be valid")
        for _ in range(2):
            std.min().ge(0)
        shape = _torch.broadcast_shapes(*(each.shape for each in tensors))
        drawn = _torch.empty(shape, dtype=tensors[0].dtype, device=std.device)
        return drawn.normal_(generator=generator).mul_(std).add_(mean)

    return normal


# ---- transformers' generate() --------------------------------------------------------------------------------------------------------


def _watching_length(real, limit):
    def __call__(self, input_ids, *args, **kwargs):
        reached = input_ids.is_cuda and any(isinstance(one, limit) and input_ids.shape[-1] >= one.max_length for one in self)
        _reading.length_reached = reached and process.job_runs()
        return real(self, input_ids, *args, **kwargs)

    return __call__


_TO_LENGTH = "generate() is assumed to continue to its length limit: the tokens, and so the end of a text, are not known"


def _beams_until_length(real):
    places = inspect.signature(real)

    def _beam_search_has_unfinished_sequences(self, *args, **kwargs):
        unfinished = real(*args, **kwargs)
        given = places.bind(*args, **kwargs).arguments
        if not process.job_runs() or not {"cur_len", "max_length"} <= given.keys() or not getattr(unfinished, "is_cuda", False):
            return unfinished
        _assume(_TO_LENGTH)
        return given["cur_len"] < given["max_length"]

    return _beam_search_has_unfinished_sequences


def _until_length(real):
    def _has_unfinished_sequences(self, *args, **kwargs):
        with loops.expecting():  # a text may be long
            unfinished = real(self, *args, **kwargs)
        if not getattr(_reading, "length_reached", False):
            return unfinished
        _reading.length_reached = False
        _assume(_TO_LENGTH)
        return False

    return _has_unfinished_sequences
