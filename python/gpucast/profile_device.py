"""The script's CUDA device, played by the CPU: `.cuda()`, `device="cuda"` and the like work on CPU tensors under `gpucast profile`.

A move to the device is a real copy on the CPU, so the trace has the allocation that a GPU would make. For this, each storage
has a place, host or device, in a table of weak references. A storage that is not in the table:
- made inside a module's forward, a backward or an optimizer's step: on the device;
- made by the script's own code in between: a mode for torch functions watches, and the result of an operator on device tensors is on
  the device. (Inside forward, backward and steps the mode is off: it would slow them down and fill the trace.)
None of this is active before the script asks for a CUDA device: a script for the CPU runs unchanged.
"""

import ctypes
import functools
import sys
import threading

from . import patching, process, tensors

_torch = None
_start = None  # called when the job makes, or may make, its first tensor: the profile begins
_asked = False
_local = threading.local()
_mode = None
_cpu = _cuda = None
_real = {}  # name -> PyTorch's own method or attribute of Tensor
_replaced = {}  # our method, or our property's getter -> PyTorch's own
_originals = frozenset()  # the original factory functions, which `with torch.device(...)` affects


def asked_device():
    return "cuda" if _asked else "cpu"


# ---- out of the trace --------------------------------------------------------------------------------------------------------------

_thread_state = ctypes.pythonapi.PyThreadState_Get
_thread_state.restype = ctypes.c_void_p
# Python 3.11 and later have these. In earlier versions our functions are in the trace too, which makes it larger.
_pause = getattr(ctypes.pythonapi, "PyThreadState_EnterTracing", lambda state: None)
_resume = getattr(ctypes.pythonapi, "PyThreadState_LeaveTracing", lambda state: None)
if isinstance(_pause, ctypes._CFuncPtr):
    for _function in (_pause, _resume):
        _function.argtypes, _function.restype = [ctypes.c_void_p], None


def unseen(function):
    """Calls made by `function` are not in the trace's Python stacks, and modes and classes that watch torch functions do not see them."""

    @functools.wraps(function)
    def unseen(*args, **kwargs):
        state = _thread_state()
        _pause(state)
        try:
            with _torch._C.DisableTorchFunction():
                return function(*args, **kwargs)
        finally:
            _resume(state)

    return unseen


def mark(text):
    """A range in the trace."""
    return _torch.autograd.profiler.record_function("gpucast." + text)


# ---- places ----------------------------------------------------------------------------------------------------------------------


class _Places:
    """Storages known to be on the device or on the host. Keeps no memory alive: a weak reference to a storage lets PyTorch free its
    memory, but keeps its object's address (`_cdata`) from being used again, so that address is a safe key."""

    def __init__(self):
        self._on_device = {}  # _cdata -> bool
        self._limit = 4096
        self._lock = threading.Lock()

    def put(self, tensor, on_device):
        storage = tensor.untyped_storage()
        key = storage._cdata
        with self._lock:
            if key not in self._on_device:
                if len(self._on_device) >= self._limit:
                    self._forget_dead()
                storage._weak_ref()
            self._on_device[key] = on_device

    def get(self, tensor):
        return self._on_device.get(tensor.untyped_storage()._cdata)

    def _forget_dead(self):
        storages = _torch.UntypedStorage
        for key in [key for key in self._on_device if storages._expired(key)]:
            storages._free_weak_ref(key)
            del self._on_device[key]
        self._limit = max(4096, 2 * len(self._on_device))


_places = _Places()


@unseen
def _put(tensor, on_device):
    try:
        _places.put(tensor, on_device)
    except Exception:  # a tensor without a storage: sparse, a wrapper
        return


@unseen
def _known_place(tensor):
    try:
        return _places.get(tensor)
    except Exception:
        return None


@unseen
def on_device(tensor):
    if not _asked or _real["device"].__get__(tensor).type != "cpu":
        return False
    place = _known_place(tensor)
    if place is not None:
        return place
    default = getattr(_local, "default", None)
    return default if default is not None else tensor.grad_fn is not None


class zone:
    """For code with all results on the device (`where` True: a forward, a backward, a step) or all on the host (a data loader)."""

    __slots__ = ("where", "before", "slept")

    def __init__(self, where=True):
        self.where = where

    def __enter__(self):
        self.before = getattr(_local, "default", None)
        _local.default = self.where
        self.slept = _take_mode_away()

    def __exit__(self, *error):
        _local.default = self.before
        if self.slept:
            _put_mode_back()


# ---- the mode that watches the script's own code -----------------------------------------------------------------------------------


def _take_mode_away():
    if _mode is None:
        return False
    others = []
    found = False
    for _ in range(_torch._C._len_torch_function_stack()):
        mode = _torch._C._pop_torch_function_stack()
        if mode is _mode:
            found = True
        else:
            others.append(mode)
    for mode in reversed(others):
        _torch._C._push_on_torch_function_stack(mode)
    return found


def _put_mode_back():
    """At the bottom, except that the mode of `with torch.device(...)` must be the lowest."""
    stack = [_torch._C._pop_torch_function_stack() for _ in range(_torch._C._len_torch_function_stack())][::-1]
    lowest = [mode for mode in stack if isinstance(mode, _torch.utils._device.DeviceContext)]
    for mode in (*lowest, _mode, *(mode for mode in stack if mode not in lowest)):
        _torch._C._push_on_torch_function_stack(mode)


def _make_mode():
    class Watching(_torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            # PyTorch looks the method up on Tensor and finds ours; this call came from ours.
            function = _replaced.get(function, function)
            result = function(*args, **(kwargs or {}))
            if type(result) in followed or isinstance(result, _torch.Tensor):
                _follow(result, args, kwargs)
            return result

    followed = (_torch.Tensor, tuple, list)

    return Watching()


@unseen
def _follow(result, args, kwargs):
    tensor_type = _torch.Tensor
    results = (result,) if isinstance(result, tensor_type) else result if isinstance(result, (tuple, list)) else ()
    new = [tensor for tensor in results if isinstance(tensor, tensor_type) and _known_place(tensor) is None]
    if not new or (kwargs and kwargs.get("device") is not None):  # a named device: our replacement of the call handles it
        return
    sources = []
    for value in (*args, *(kwargs or {}).values()):
        for tensor in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(tensor, tensor_type):
                sources.append(tensor)
    if sources:
        # A zero-dimensional CPU tensor may be mixed with device tensors, and the result is on the device.
        where = any(on_device(tensor) for tensor in sources)
        for tensor in new:
            _put(tensor, where)


def _ask():
    """The script names a CUDA device: from now on it has one."""
    global _asked, _mode
    if _asked:
        return
    _asked = True
    tensor = _torch.Tensor
    for name in ("device", "is_cuda", "is_cpu"):
        setattr(tensor, name, property(unseen(_PROPERTIES[name])))
        _replaced[getattr(tensor, name).__get__] = _real[name].__get__
    tensor.get_device = _get_device
    _replaced[_get_device] = _real["get_device"]
    patching.wrap(_torch._C, "_group_tensors_by_device_and_dtype", _grouping)
    if process.state == process.ARMED:
        watch_this_thread()


def watch_this_thread():
    global _mode
    if _mode is None and _asked:
        _mode = _make_mode()
        if getattr(_local, "default", None) is None:
            _put_mode_back()


# ---- how a script names the device ------------------------------------------------------------------------------------------------


def is_cuda(device):
    """Also an index; not None, and not True."""
    if device is None or isinstance(device, bool):
        return False
    if isinstance(device, str):
        return device.split(":")[0] == "cuda"
    if isinstance(device, int):
        return True
    return getattr(device, "type", None) == "cuda"


def _is_cpu(device):
    return device == "cpu" or getattr(device, "type", None) == "cpu"


class _nothing:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def _marked(text):
    return mark(text) if process.state == process.ARMED else _nothing()


# ---- moves -----------------------------------------------------------------------------------------------------------------------


def _move(tensor, dtype, copy, memory_format):
    """tensor.to("cuda", ...)"""
    _ask()
    if process.state == process.WATCHING:
        _start()
    kwargs = {} if memory_format is None else {"memory_format": memory_format}
    to = _real["to"]
    if _real["device"].__get__(tensor).type != "cpu":
        return to(tensor, _cuda, dtype, copy=copy, **kwargs)  # a meta tensor: PyTorch's own error
    if on_device(tensor):
        result = to(tensor, _cpu, dtype, copy=copy, **kwargs)
    elif getattr(_local, "moving_module", False):
        result = to(tensor, _cpu, dtype, copy=True, **kwargs)
    else:
        with _marked("to_device#tensor"):
            result = to(tensor, _cpu, dtype, copy=True, **kwargs)
    _put(result, True)
    return result


def _bring_home(tensor, dtype, copy, memory_format):
    """tensor.to("cpu", ...)"""
    kwargs = {} if memory_format is None else {"memory_format": memory_format}
    if not on_device(tensor):
        return _real["to"](tensor, _cpu, dtype, copy=copy, **kwargs)
    with _marked("to_host"):
        result = _real["to"](tensor, _cpu, dtype, copy=True, **kwargs)
    _put(result, False)
    return result


def _to(self, *args, **kwargs):
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    other = kwargs.get("other")
    rest = args
    if args:
        first = args[0]
        if isinstance(first, _torch.Tensor):
            other, rest = first, args[1:]
        elif isinstance(first, _torch.dtype):
            dtype, rest = first, args[1:]
        else:
            device, rest = first, args[1:]
            if rest and (rest[0] is None or isinstance(rest[0], _torch.dtype)):
                dtype, rest = rest[0], rest[1:]
    if other is not None:
        dtype = other.dtype
        device = _cuda if on_device(other) else _real["device"].__get__(other)
    copy = rest[1] if len(rest) > 1 else kwargs.get("copy", False)
    if is_cuda(device):
        return _move(self, dtype, copy, kwargs.get("memory_format"))
    if _asked and _is_cpu(device):
        return _bring_home(self, dtype, copy, kwargs.get("memory_format"))
    return _real["to"](self, *args, **kwargs)


def _tensor_cuda(self, device=None, non_blocking=False, memory_format=None):
    return _move(self, None, False, memory_format)


def _tensor_cpu(self, memory_format=None):
    return _bring_home(self, None, False, memory_format)


def _type(self, dtype=None, non_blocking=False, **kwargs):
    if dtype is None:
        name = _real["type"](self)
        return name.replace("torch.", "torch.cuda.", 1) if on_device(self) else name
    cuda_type = getattr(dtype, "_gpucast_type", None) or (dtype if isinstance(dtype, str) and dtype.startswith("torch.cuda.") else None)
    if cuda_type is not None:
        return _move(self, getattr(_torch, cuda_type.rpartition(".")[2]).dtype, False, None)
    if isinstance(dtype, (str, type(_torch.FloatTensor))):  # "torch.FloatTensor" names the CPU too
        name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
        return _bring_home(self, getattr(_torch, name.rpartition(".")[2]).dtype, False, None)
    return _real["type"](self, dtype, non_blocking, **kwargs)


@unseen
def _get_device(self):
    return 0 if on_device(self) else _real["get_device"](self)


def _grouping(real):
    """Optimizers and gradient clipping choose the implementation by the device that PyTorch's C++ code reports."""

    def group(lists, *args, **kwargs):
        groups = real(lists, *args, **kwargs)

        def device_of(key, entry):
            first = next((tensor for tensor in entry[0][0] if tensor is not None), None)
            return (_cuda, *key[1:]) if first is not None and key[0] is not None and on_device(first) else key

        return {device_of(key, entry): entry for key, entry in groups.items()}

    return group


_PROPERTIES = {
    "device": lambda self: _cuda if on_device(self) else _real["device"].__get__(self),
    "is_cuda": lambda self: on_device(self) or _real["is_cuda"].__get__(self),
    "is_cpu": lambda self: not on_device(self) and _real["is_cpu"].__get__(self),
}


def _moving_module(real, asks):
    def move(self, *args, **kwargs):
        if getattr(_local, "moving_module", False) or not asks(args, kwargs):
            return real(self, *args, **kwargs)
        args, kwargs = _without_index(args, kwargs)
        _ask()
        if process.state == process.WATCHING:
            _start()
        _place_gradients(self)
        _local.moving_module = True
        try:
            with zone(False), _marked("to_device#module"):
                return real(self, *args, **kwargs)
        finally:
            _local.moving_module = False

    return move


def _without_index(args, kwargs):
    """A CPU-only PyTorch does not understand a number as a device."""
    if args and isinstance(args[0], int):
        args = (_cuda, *args[1:])
    if isinstance(kwargs.get("device"), int):
        kwargs = {**kwargs, "device": _cuda}
    return args, kwargs


@unseen
def _place_gradients(module):
    """A gradient made by a backward is on its parameter's device."""
    for parameter in module.parameters():
        if parameter.grad is not None and on_device(parameter):
            _put(parameter.grad, True)


def _names_cuda(args, kwargs):
    for value in (*args[:1], kwargs.get("device"), kwargs.get("tensor")):
        if isinstance(value, _torch.Tensor):
            if on_device(value):
                return True
        elif is_cuda(value):
            return True
    return False


# ---- factories -------------------------------------------------------------------------------------------------------------------

_LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")
_NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros", "new")
_WRAPPING = ("as_tensor", "asarray")  # they copy only if necessary


def _make_on_device(real, args, kwargs, always_marked):
    if always_marked or getattr(_local, "default", None) is None:
        with _marked("on_device"):
            result = real(*args, **kwargs)
    else:
        result = real(*args, **kwargs)
    if isinstance(result, _torch.Tensor):
        _put(result, True)
    return result


@unseen
def _made_on_host(result):
    if _asked and isinstance(result, _torch.Tensor) and _known_place(result) is None:
        _put(result, False)
    return result


def _making(real):
    def make(*args, **kwargs):
        if kwargs and "pin_memory" in kwargs:
            del kwargs["pin_memory"]
        if kwargs and is_cuda(kwargs.get("device")):
            _ask()
            if process.state == process.WATCHING:
                _start()
            kwargs["device"] = _cpu
            return _make_on_device(real, args, kwargs, True)
        if process.state == process.WATCHING:
            _start()
        result = real(*args, **kwargs)
        return _made_on_host(result) if _asked else result

    return make


def _making_like(real):
    """On the device of the tensor given, unless a device is named."""

    def make(source, *args, **kwargs):
        kwargs.pop("pin_memory", None)
        device = kwargs.get("device")
        if is_cuda(device):
            _ask()
            if process.state == process.WATCHING:
                _start()
        elif not _asked:
            return real(source, *args, **kwargs)
        if is_cuda(device) or device is None and on_device(source):
            if device is not None:
                kwargs["device"] = _cpu
            return _make_on_device(real, (source, *args), kwargs, device is not None)
        return _made_on_host(real(source, *args, **kwargs))

    return make


def _making_around(real):
    """as_tensor(data, device="cuda"): a tensor of the data on the host, then a move."""

    def make(data, *args, **kwargs):
        device = kwargs.get("device")
        if len(args) > 1:  # as_tensor(data, dtype, device)
            device, args = args[1], args[:1]
        if not is_cuda(device):
            if device is not None:
                kwargs["device"] = device
            if process.state == process.WATCHING:
                _start()
            result = real(data, *args, **kwargs)
            return result if isinstance(data, _torch.Tensor) or not _asked else _made_on_host(result)
        kwargs.pop("device", None)
        _ask()
        if isinstance(data, _torch.Tensor):
            dtype = args[0] if args else kwargs.get("dtype")
            return _move(data, dtype, bool(kwargs.get("copy")), None)
        return _move(real(data, *args, device=_cpu, **kwargs), None, False, None)

    return make


def _in_device_context(real):
    """The mode of torch.set_default_device and `with torch.device(...)`: gives factory functions their device."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if self.device.type != "cuda" or function not in _originals:
            return real(self, function, types, args, kwargs or {})
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            return function(*args, **kwargs)
        _ask()
        if process.state == process.WATCHING:
            _start()
        if function in (_torch.as_tensor.__wrapped__, _torch.asarray.__wrapped__):
            return _move(function(*args, **kwargs), None, False, None)
        return _make_on_device(function, args, kwargs, True)

    return __torch_function__


def _setting_default_type(real):
    def set_default_tensor_type(kind):
        name = getattr(kind, "_gpucast_type", kind)
        if isinstance(name, str) and name.startswith("torch.cuda."):
            _torch.set_default_dtype(getattr(_torch, name.rpartition(".")[2]).dtype)
            return _torch.set_default_device("cuda")
        return real(kind)

    return set_default_tensor_type


def _loading(real):
    def load(*args, **kwargs):
        where = args[1] if len(args) > 1 else kwargs.get("map_location")
        args, kwargs = args[:1] + args[2:], {**kwargs}
        kwargs.pop("map_location", None)
        if process.state == process.WATCHING:
            _start()
        if is_cuda(where) or isinstance(where, dict) and any(is_cuda(target) for target in where.values()):
            _ask()
        if is_cuda(where):
            with _marked("on_device"), zone():
                result = real(*args, map_location=_cpu, **kwargs)
            _put_all(result, True)
            return result

        def restore(storage, location):
            target = where.get(location, location) if isinstance(where, dict) else where(storage, location) if callable(where) else location
            if target is None:
                target = location
            if isinstance(target, (str, _torch.device)) and is_cuda(target):
                _ask()
                restored_on_device.append(storage)
                return storage
            return None if isinstance(target, (str, _torch.device)) else target

        restored_on_device = []
        if where is None or isinstance(where, dict) or callable(where):
            result = real(*args, map_location=restore, **kwargs)
            for storage in restored_on_device:
                _put_storage(storage)
            return result
        return real(*args, map_location=where, **kwargs)

    return load


def _put_storage(storage):
    try:
        _places.put(_torch.empty(0, dtype=_torch.uint8).set_(getattr(storage, "_untyped_storage", storage)), True)
    except Exception:
        return


@unseen
def _put_all(value, where, depth=0):
    if isinstance(value, _torch.Tensor):
        _put(value, where)
    elif depth < 8:
        inner = value.values() if hasattr(value, "values") and hasattr(value, "keys") else value if isinstance(value, (tuple, list)) else ()
        for entry in inner:
            _put_all(entry, where, depth + 1)


# ---- data loaders and others ----------------------------------------------------------------------------------------------------------


def _next_batch(real):
    def __next__(self):
        if not _asked:
            return real(self)
        with zone(False):
            batch = real(self)
        for _, tensor in tensors.tensors_in(batch, "", 0):
            if _known_place(tensor) is None:
                _put(tensor, False)
        return batch

    return __next__


def _loader_without_pinning(real):
    def __init__(self, *args, **kwargs):
        if len(args) > 7:
            args = (*args[:7], False, *args[8:])
        kwargs.pop("pin_memory", None)
        kwargs.pop("pin_memory_device", None)
        return real(self, *args, **kwargs)

    return __init__


def _without_devices(real):
    def __init__(self, module, device_ids=None, output_device=None, *args, **kwargs):
        return real(self, module, None, None, *args, **kwargs)

    return __init__


def _gloo_for_nccl(real):
    def init_process_group(backend=None, *args, **kwargs):
        kwargs.pop("device_id", None)
        if backend is None or "nccl" in str(backend):
            backend = "gloo"
        return real(backend, *args, **kwargs)

    return init_process_group


def _barrier_of_all(real):
    def barrier(*args, **kwargs):
        kwargs.pop("device_ids", None)
        return real(*args, **kwargs)

    return barrier


def _make_generator(torch):
    real = torch.Generator

    class Kind(type(real)):
        def __instancecheck__(cls, instance):
            return isinstance(instance, real)

        def __call__(cls, device=None):
            return real("cpu" if is_cuda(device) else device or "cpu")

    return Kind("Generator", (), {"__module__": "torch"})


# ---- replacing PyTorch's own -----------------------------------------------------------------------------------------------------


def _replace_method(name, around):
    real = getattr(_torch.Tensor, name)
    patching.wrap(_torch.Tensor, name, around)
    _replaced[getattr(_torch.Tensor, name)] = real


def install(torch, start):
    global _torch, _start, _cpu, _cuda, _originals
    _torch, _start = torch, start
    _cpu, _cuda = torch.device("cpu"), torch.device("cuda", 0)
    import torch.utils._device as contexts
    import torch.utils.data.dataloader as dataloader

    _originals = frozenset(contexts._device_constructors())
    tensor = torch.Tensor
    for name in ("device", "is_cuda", "is_cpu", "to", "type", "get_device"):
        _real[name] = getattr(tensor, name)
    for name, replacement in (("to", _to), ("cuda", _tensor_cuda), ("cpu", _tensor_cpu), ("type", _type)):
        _replace_method(name, lambda real, replacement=replacement: replacement)
    tensor.pin_memory = lambda self, device=None: self
    tensor.is_pinned = lambda self, device=None: False
    tensor.record_stream = lambda self, stream: None
    for name in _NEW:
        _replace_method(name, _making_like)
    names = {function.__name__ for function in _originals}
    factories = [name for name in names if getattr(torch, name, None) in _originals and name not in _WRAPPING]
    for names, around in ((factories, _making), (_LIKE, _making_like), (_WRAPPING, _making_around)):
        for name in names:
            patching.wrap(torch, name, around)
    patching.wrap(torch, "load", _loading)
    patching.wrap(torch, "set_default_tensor_type", _setting_default_type)
    patching.wrap(contexts.DeviceContext, "__torch_function__", _in_device_context)
    torch.Generator = _make_generator(torch)
    module = torch.nn.Module
    patching.wrap(module, "to", lambda real: _moving_module(real, _names_cuda))
    patching.wrap(module, "cuda", lambda real: _moving_module(real, lambda args, kwargs: True))
    patching.wrap(module, "to_empty", lambda real: _moving_module(real, _names_cuda))
    patching.wrap(dataloader._BaseDataLoaderIter, "__next__", _next_batch)
    patching.wrap(dataloader.DataLoader, "__init__", _loader_without_pinning)
    patching.wrap(torch.nn.parallel.DistributedDataParallel, "__init__", _without_devices)
    data_parallel = sys.modules["torch.nn.parallel.data_parallel"]  # the package's attribute of this name is a function
    data_parallel._get_available_device_type = lambda: None  # one card: the module itself is called
    if torch.distributed.is_available():
        patching.wrap(torch.distributed, "init_process_group", _gloo_for_nccl)
        patching.wrap(torch.distributed, "barrier", _barrier_of_all)
    torch.backends.cudnn.is_acceptable = lambda tensor: False
