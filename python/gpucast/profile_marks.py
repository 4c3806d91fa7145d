"""Additions of `gpucast profile` to the profiler's own trace: marks of steps, forward, backward and modules, and tables of modules and
of named tensors.

A mark is a range named `gpucast.KIND#VALUE` among the trace's user annotations; the tables go into the record `gpucast` of the trace.
"""

import functools
import sys
import threading

from . import ending, patching, process, profile_device, steps, tensors
from .profile_device import mark

_torch = None
_start = _end = _check_deadline = None  # of profile_capture
_local = threading.local()
_modules = None  # recorder.Modules: numbered from 1, as in captures
_tables = []
_roots_of_step = set()  # ids of the root modules whose table this step has
_parameter_names = {}  # id(parameter) -> name, number of its module
_optimizers = {}  # id(optimizer) -> description
_summary = {"autocast": None, "grad_scaler": False, "batch_size": None, "zero_grad_set_to_none": None, "compiled": False}
_ran = False


def record():
    return {
        "steps": steps.counter.rounds,
        **_summary,
        "optimizers": list(_optimizers.values()),
        "modules": list(map(list, zip(_modules.names, _modules.types, _modules.parents))),
        "tables": _tables,
    }


def anything_ran():
    return _ran or profile_device.asked_device() == "cuda"


def install(torch, start, end, check_deadline):
    """The three callbacks: the job begins, enough was seen, and a regular check."""
    global _torch, _modules, _start, _end, _check_deadline
    _torch, _modules = torch, process.recorder.modules
    _start, _end, _check_deadline = start, end, check_deadline
    module, optimizer = torch.nn.Module, torch.optim.Optimizer
    patching.wrap(module, "__init__", _making_module)
    patching.wrap(module, "_call_impl", _forwarding)
    for name in ("to", "cuda"):
        patching.wrap(module, name, _moving)
    patching.wrap(torch.autograd, "backward", _differentiating)
    patching.wrap(torch.autograd, "grad", _differentiating)
    patching.wrap(optimizer, "__init__", steps.constructing)
    optimizer.profile_hook_step = staticmethod(_stepping(optimizer.profile_hook_step))
    for owner in (module, optimizer):
        patching.wrap(owner, "zero_grad", _zeroing)
    patching.wrap(torch.amp.autocast_mode.autocast, "__enter__", _entering_autocast)
    patching.wrap(torch.amp.autocast_mode.autocast, "__exit__", _leaving_autocast)
    if hasattr(torch.amp, "GradScaler"):
        patching.wrap(torch.amp.GradScaler, "scale", _scaling)
    patching.wrap(torch, "compile", _compiling)


def _armed():
    return process.state == process.ARMED


def _making_module(real):
    def __init__(self, *args, **kwargs):
        _start()
        if process.state != process.WATCHING:
            _torch.nn.Module.__init__ = real
        real(self, *args, **kwargs)

    return __init__


# ---- forward and backward --------------------------------------------------------------------------------------------------------


def _forwarding(real):
    def _call_impl(self, *args, **kwargs):
        if not _armed():
            return real(self, *args, **kwargs)
        if getattr(_local, "in_module", False) or getattr(_local, "in_backward", False):
            _name_module(self)
            return real(self, *args, **kwargs)
        _local.in_module = True
        try:
            _before_forward(self, args, kwargs)
            with profile_device.zone(), mark(f"forward#{steps.counter.rounds + 1}"):
                _name_module(self)
                return real(self, *args, **kwargs)
        finally:
            _local.in_module = False

    return _call_impl


def _moving(real):
    def move(self, *args, **kwargs):
        result = real(self, *args, **kwargs)
        if _armed():
            _register_tree(self)
        return result

    return move


def _differentiating(real):
    def run(*args, **kwargs):
        global _ran
        if getattr(_local, "in_backward", False) or not _armed():
            return real(*args, **kwargs)
        _local.in_backward = _ran = True
        try:
            with profile_device.zone(), mark(f"backward#{steps.counter.rounds + 1}"):
                result = real(*args, **kwargs)
        finally:
            _local.in_backward = False
        _count_rounds(steps.counter.rounds_after_backward())
        return result

    return run


def _guarded(function):
    """A table that fails is left out, with a warning; the script goes on."""

    @profile_device.unseen
    @functools.wraps(function)
    def guarded(*args):
        try:
            function(*args)
        except Exception as error:
            patching.fail(function.__name__.strip("_"), error)

    return guarded


@_guarded
def _register_tree(module):
    _modules.register_tree(module)


@_guarded
def _name_module(module):
    """A range inside the profiler's own frame of this call; that frame has only the class and a number. The number counts the modules of one
    class in the order of their first calls. Two classes with the same name have separate counts, and a new module at a freed module's
    address gets its number."""
    if _torch._C._get_tracing_state() is not None:  # it would become a part of the graph that torch.jit.trace makes
        return
    number = _modules.number(module) or _register(module)
    with mark(f"module#{number}"):
        pass


def _register(module):
    """A module that is in no tree was made inside the forward of another."""
    frame = sys._getframe()
    while frame is not None:
        caller = frame.f_locals.get("self") if frame.f_code.co_name == "_call_impl" else None
        number = _modules.number(caller) if caller is not None else 0
        if number:
            return _modules.register_in(module, number)
        frame = frame.f_back
    return _modules.register_tree(module)


@_guarded
def _before_forward(module, args, kwargs):
    global _ran
    _ran = True
    ending.leave_if_alone()
    _check_deadline()
    if id(module) in _roots_of_step:
        return
    _roots_of_step.add(id(module))
    if not _modules.number(module):
        _modules.register_tree(module)
    rows = []
    with _torch._C.DisableTorchFunction():
        rows += _rows_of_model(module)
        for name, tensor in (*tensors.tensors_in(args, "", 0), *tensors.tensors_in(kwargs, "", 0)):
            if _summary["batch_size"] is None and tensor.dim() > 0:
                _summary["batch_size"] = tensor.shape[0]
            if not tensor.requires_grad:  # otherwise it is the output of another module
                rows += _rows("input", name, tensor)
    _add_table("forward", rows)


# ---- tables ----------------------------------------------------------------------------------------------------------------------


def _rows_of_model(root):
    parameters, buffers, seen = [], [], set()  # a shared tensor belongs to the first module, as in named_parameters()
    for path, owner in root.named_modules():
        number = _modules.number(owner) or -1
        dot = path + "." if path else ""
        for name, parameter in owner._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                _parameter_names[id(parameter)] = (dot + name, number)
                parameters += _rows("parameter", dot + name, parameter, number)
        for name, buffer in owner._buffers.items():
            if buffer is not None and id(buffer) not in seen:
                seen.add(id(buffer))
                buffers += _rows("buffer", dot + name, buffer, number)
    return parameters + buffers


def _rows(kind, name, tensor, module=-1):
    try:
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
    except Exception:  # a tensor without memory of its own
        return []
    if not address or not size:
        return []
    return [[kind, name, address, size, str(tensor.dtype).rpartition(".")[2], list(tensor.shape), tensor.requires_grad, module]]


def _add_table(when, rows):
    with mark(f"tensors#{len(_tables)}"):
        pass
    _tables.append({"id": len(_tables), "when": when, "step": steps.counter.rounds + 1, "rows": rows})


def _parameters_of(optimizer):
    for group_index, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            yield parameter, *_parameter_names.get(id(parameter), (f"group{group_index}.parameter{index}", -1))


@_guarded
def _gradient_table(optimizer):
    rows = []
    with _torch._C.DisableTorchFunction():
        for parameter, name, module in _parameters_of(optimizer):
            if parameter.grad is not None:
                rows += _rows("gradient", name, parameter.grad, module)
    _add_table("backward", rows)


@_guarded
def _state_table(optimizer):
    rows = []
    with _torch._C.DisableTorchFunction():
        for parameter, name, module in _parameters_of(optimizer):
            for key, tensor in tensors.tensors_in(optimizer.state.get(parameter) or {}, "", 1):
                rows += _rows("optimizer_state", f"{name}.{key}", tensor, module)
    _add_table("step", rows)


# ---- optimizers ------------------------------------------------------------------------------------------------------------------


def _stepping(real):
    """PyTorch wraps each optimizer class's step by profile_hook_step; ours goes around that."""

    def profile_hook_step(function):
        profiled = real(function)

        @functools.wraps(function)
        def step(self, *args, **kwargs):
            if getattr(_local, "in_step", False) or not _armed():
                return profiled(self, *args, **kwargs)
            _local.in_step = True
            try:
                _before_step(self)
                with profile_device.zone():
                    result = profiled(self, *args, **kwargs)
                _after_step(self)
                return result
            finally:
                _local.in_step = False

        return step

    return profile_hook_step


def _before_step(optimizer):
    global _ran
    _ran = True
    if steps.counter.far_ahead(optimizer):
        _end("steps")
    _gradient_table(optimizer)
    _describe(optimizer)


def _after_step(optimizer):
    _state_table(optimizer)
    counter = steps.counter
    _count_rounds(counter.rounds_after(counter.taken(optimizer)))


def _count_rounds(rounds):
    counter = steps.counter
    if rounds > counter.rounds:
        counter.rounds = rounds
        _roots_of_step.clear()
    if counter.rounds >= steps.wanted():
        _end("steps")


@_guarded
def _describe(optimizer):
    if id(optimizer) in _optimizers:
        return
    groups = []
    for group in optimizer.param_groups:
        options = {key: _plain(value) for key, value in group.items() if key not in ("params", "param_names")}
        groups.append({**{key: value for key, value in options.items() if value is not Ellipsis}, "params": len(group["params"])})
    _optimizers[id(optimizer)] = {"name": type(optimizer).__name__, "param_groups": groups}


def _plain(value):
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)) and all(isinstance(inner, (bool, int, float)) for inner in value):
        return list(value)
    if isinstance(value, _torch.Tensor) and value.numel() == 1:
        return "tensor"
    return ...


def _zeroing(real):
    def zero_grad(self, set_to_none=True):
        _summary["zero_grad_set_to_none"] = bool(set_to_none)
        return real(self, set_to_none)

    return zero_grad


# ---- mixed precision -------------------------------------------------------------------------------------------------------------


def _entering_autocast(real):
    def __enter__(self):
        # CUDA's autocast leaves CPU tensors as they are, so the run stays in the script's own precision: only a mark is made.
        if _armed() and getattr(self, "device", None) == "cuda":
            if self._enabled:
                dtype = str(self.fast_dtype).rpartition(".")[2]
                _summary["autocast"] = _summary["autocast"] or dtype
                region = mark(f"autocast#{dtype}")
            else:
                region = mark("autocast#off")
            region.__enter__()
            _regions().append((id(self), region))
        return real(self)

    return __enter__


def _leaving_autocast(real):
    def __exit__(self, *args):
        result = real(self, *args)
        regions = _regions()
        if regions and regions[-1][0] == id(self):
            regions.pop()[1].__exit__(None, None, None)
        return result

    return __exit__


def _regions():
    if not hasattr(_local, "regions"):
        _local.regions = []
    return _local.regions


def _scaling(real):
    def scale(self, *args, **kwargs):
        if self._enabled:
            _summary["grad_scaler"] = True
        return real(self, *args, **kwargs)

    return scale


def _compiling(real):
    def compile(*args, **kwargs):
        _summary["compiled"] = True
        return real(*args, **kwargs)

    return compile
