"""The addresses of the job's named tensors: parameters, buffers, inputs, gradients and optimizer states."""

import weakref
from collections.abc import Mapping

from . import patching, process, steps

_MAX_INPUT_DEPTH = 4

_parameter_names = {}  # id(parameter) -> (weak reference, name, module number)
_marked = {}  # (kind, name, module, address) -> id(tensor): entries written already
listed_roots = set()  # numbers of root modules whose parameters were marked on the GPU
_known = {}  # (kind, id(parameter)) -> ((id(tensor), address), entries): of the step before
_known_states = {}  # (id(optimizer), id(parameter)) -> ids of the state's values


def _shape(tensor):
    """The shape as numbers. Under torch.jit.trace sizes are tensors, and reading them would be traced."""
    core = process.torch._C
    tracing = core._get_tracing_state()
    if tracing is None:
        return list(tensor.shape)
    core._set_tracing_state(None)
    try:
        return list(tensor.shape)
    finally:
        core._set_tracing_state(tracing)


def storages(tensor, depth=0):
    """(device, address, storage_bytes, dtype, shape) of the CUDA storage under a tensor; of each one under a wrapper subclass."""
    tensor = getattr(tensor, "_local_tensor", tensor)  # DTensor
    try:
        if tensor.device.type != "cuda":
            return []
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        size = storage.nbytes()
        if address and size:
            return [(tensor.device.index or 0, address, size, str(tensor.dtype).rpartition(".")[2], _shape(tensor))]
    except Exception:
        if depth > 2 or not hasattr(tensor, "__tensor_flatten__"):
            return []
    if depth > 2 or not hasattr(tensor, "__tensor_flatten__"):
        return []
    inner = []
    for name in tensor.__tensor_flatten__()[0]:
        inner += storages(getattr(tensor, name), depth + 1)
    return inner


def entries_of(kind, tensor, name, module=-1, always=False):
    """The entries to write for one tensor; none if the same tensor already has this name at this address."""
    entries = []
    for device, address, size, dtype, shape in storages(tensor):
        key = (kind, name, module, address)
        if always or _marked.get(key) != id(tensor):
            _marked[key] = id(tensor)
            entries.append((device, kind, address, size, name, module, dtype, shape))
    return entries


def mark_parameters(root, position=None):
    """Parameters and buffers of a root module."""
    modules = process.recorder.modules
    entries = []
    _known.clear()  # names may change
    seen = set()  # a parameter that two modules share has the name of the first, as in named_parameters()
    with process.torch._C.DisableTorchFunction():
        for prefix, module in root.named_modules():
            number = modules.number(module) or -1
            dot = prefix + "." if prefix else ""
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    if id(parameter) not in seen and (number != -1 or id(parameter) not in _parameter_names):
                        _parameter_names[id(parameter)] = (weakref.ref(parameter), dot + name, number)
                    seen.add(id(parameter))
                    entries += entries_of("parameter", parameter, dot + name, number)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    entries += entries_of("buffer", buffer, dot + name, number)
    if entries:
        listed_roots.add(modules.number(root))
    process.recorder.mark_tensors(entries, position)


def mark_inputs(args, kwargs, position=None):
    entries = []
    with process.torch._C.DisableTorchFunction():
        for name, tensor in (*tensors_in(args, "", 0), *tensors_in(kwargs, "", 0)):
            if not tensor.requires_grad and tensor.grad_fn is None:
                entries += entries_of("input", tensor, name, -1, always=True)
    process.recorder.mark_tensors(entries, position)


def tensors_in(value, name, depth):
    if isinstance(value, process.torch.Tensor):
        yield name, value
    elif depth < _MAX_INPUT_DEPTH:
        if isinstance(value, Mapping) or hasattr(value, "items") and hasattr(value, "keys"):
            pairs = value.items()
        elif isinstance(value, (tuple, list)):
            pairs = enumerate(value)
        else:
            pairs = vars(value).items() if hasattr(value, "__dataclass_fields__") else ()
        for key, inner in pairs:
            yield from tensors_in(inner, f"{name}.{key}" if name else str(key), depth + 1)


def _name_of(parameter, fallback):
    reference, name, number = _parameter_names.get(id(parameter), (None, fallback, -1))
    if reference is not None and reference() is not parameter:
        return fallback, -1
    return name, number


def _parameters_of(optimizer):
    for group_index, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            yield parameter, *_name_of(parameter, f"group{group_index}.parameter{index}")


def _entries_of_step(kind, parameter, tensor, name, number, always=False):
    """Like entries_of, but fast for a tensor that is the same and at the same address as one step ago."""
    key = (kind, id(parameter))
    try:
        place = (id(tensor), tensor.data_ptr())
    except Exception:  # a wrapper without memory of its own
        return entries_of(kind, tensor, name, number, always)
    known = _known.get(key)
    if known is not None and (known[0] == place or always and known[0][1] == place[1]):
        return known[1] if always else ()
    entries = entries_of(kind, tensor, name, number, always)
    _known[key] = (place, entries)
    return entries


def gradient_entries(optimizer):
    entries = []
    with process.torch._C.DisableTorchFunction():
        for parameter, name, number in _parameters_of(optimizer):
            entries += _entries_of_step("parameter", parameter, parameter, name, number)
            gradient = parameter.grad
            if gradient is not None:
                # Always: a new gradient often lies where the old one was.
                entries += _entries_of_step("gradient", parameter, gradient, name, number, always=True)
    return entries


def state_entries(optimizer):
    entries = []
    with process.torch._C.DisableTorchFunction():
        for parameter, name, number in _parameters_of(optimizer):
            state = optimizer.state.get(parameter)
            if not state:
                continue
            values = tuple(map(id, state.values()))
            if _known_states.get((id(optimizer), id(parameter))) == values:
                continue
            _known_states[(id(optimizer), id(parameter))] = values
            for key, tensor in tensors_in(state, "", 1):
                entries += entries_of("optimizer_state", tensor, f"{name}.{key}", number)
    return entries


def mark_gradients():
    """At an end in the middle of a step: the gradients so far."""
    entries = []
    try:
        for optimizer in steps.counter.alive():
            entries += gradient_entries(optimizer)
        process.recorder.mark_tensors(entries)
    except Exception as error:
        patching.fail("gradient", error)
