"""What is hooked and patched in PyTorch, and what each hook records. Every body is guarded: one that fails is switched off."""

import functools
import os
import sys
import threading
import weakref
from bisect import bisect_right
from collections.abc import Mapping

from . import capture, session

_LAST_SEQUENCE_NUMBER = 2**64 - 1  # autograd gives it to AccumulateGrad nodes
_MAX_GRAPH_NODES = 1_000_000
_MAX_INPUT_DEPTH = 4

_torch = None
_disabled = set()  # names of hooks that failed
_local = threading.local()
_sequence_number = None  # of the autograd node that this thread makes next


def _fail(name, error):
    if name not in _disabled:
        _disabled.add(name)
        capture.recorder.warn(
            "hook_failed", f"gpucast's own {name} hook failed ({type(error).__name__}: {error}); what it records is incomplete"
        )
        if os.environ.get("GPUCAST_DEBUG"):
            import traceback

            traceback.print_exc()


def _guard(name):
    """The hook runs only while the capture is on, and never raises into the user's program."""

    def decorate(function):
        @functools.wraps(function)
        def hook(*args, **kwargs):
            if capture.state != capture.ARMED or name in _disabled:
                return None
            try:
                return function(*args, **kwargs)
            except Exception as error:
                return _fail(name, error)

        return hook

    return decorate


def _wrap(owner, name, around):
    """Replaces owner.name by a function that looks like it; `around(real)` returns the replacement."""
    real = getattr(owner, name, None)
    if real is None:
        return
    setattr(owner, name, functools.wraps(real)(around(real)))


# ---- what to hook, and when ------------------------------------------------------------------------------------------------------


def install_at_import(torch):
    """Right after `import torch`. What must be seen before the first CUDA call."""
    global _torch, _sequence_number
    _torch = torch
    _sequence_number = getattr(torch.autograd, "_get_sequence_nr", None)
    module, optimizer = torch.nn.Module, torch.optim.Optimizer
    _wrap(module, "to", lambda real: _moving(real, _asks_for_cuda))
    _wrap(module, "cuda", lambda real: _moving(real, lambda args, kwargs: True))
    _wrap(optimizer, "__init__", _constructing)
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    register_optimizer_step_pre_hook(_before_optimizer_step)
    register_optimizer_step_post_hook(_after_optimizer_step)
    for owner, name in ((torch, "save"), (torch.jit, "save")):
        _wrap(owner, name, _not_saving)


def install_at_cuda_start(torch):
    """At the first CUDA call: in a process that never makes one, PyTorch stays as it is."""
    _wrap(torch.autograd, "backward", lambda real: _differentiating(real, "tensors"))
    _wrap(torch.autograd, "grad", lambda real: _differentiating(real, "outputs"))
    for owner in (torch.nn.Module, torch.optim.Optimizer):
        _wrap(owner, "zero_grad", _zeroing)
    from torch.nn.modules import module

    module.register_module_forward_pre_hook(_before_forward)
    try:
        module.register_module_forward_hook(_after_forward, always_call=True)
    except TypeError:  # older than 2.1
        module.register_module_forward_hook(_after_forward)
    for name in ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy"):
        _wrap(torch._C, name, _not_recording)
    _wrap(torch._C, "_cuda_resetAccumulatedMemoryStats", _resetting_counters)
    _wrap(torch._C, "_cuda_resetPeakMemoryStats", _resetting_peaks)


def patch_checkpoint_writer(name, module):
    if name == "safetensors.torch":
        _wrap(module, "save_file", _not_saving)
        _wrap(module, "save_model", _not_saving)
    elif name.startswith("torch.distributed.checkpoint"):
        _wrap(module, "save", _not_saving_distributed)
        _wrap(module, "save_state_dict", _not_saving_distributed)
        _wrap(module, "async_save", lambda real: _not_saving_distributed(real, returns_future=True))
    elif name == "transformers.modeling_utils":
        _wrap(module.PreTrainedModel, "save_pretrained", _not_saving)
    elif name == "transformers.trainer":
        # It writes many files, and removes older checkpoints.
        _wrap(module.Trainer, "_save_checkpoint", _not_saving_trainer)
        _wrap(module.Trainer, "save_model", _not_saving_trainer)
    else:  # Lightning writes through a buffer
        _wrap(module, "_atomic_save", _not_saving)


# ---- phases ----------------------------------------------------------------------------------------------------------------------


@_guard("phase")
def _begin(phase):
    capture.recorder.mark("phase_begin", phase)


@_guard("phase")
def _end(phase):
    capture.recorder.mark("phase_end", phase)


def _asks_for_cuda(args, kwargs):
    for value in (*args, *kwargs.values()):
        if isinstance(value, str):
            if value.startswith("cuda"):
                return True
        elif isinstance(value, bool):
            continue
        elif isinstance(value, int) or getattr(value, "type", None) == "cuda" or getattr(value, "is_cuda", False) is True:
            return True
    return False


def _moving(real, to_cuda):
    def move(self, *args, **kwargs):
        if capture.state not in (capture.WATCHING, capture.ARMED) or getattr(_local, "moving", False) or not _safely(to_cuda, args, kwargs):
            return real(self, *args, **kwargs)
        _local.moving = True
        # The first CUDA call may well be this one: the mark is at the very start of the history then.
        _safely(capture.recorder.mark, "phase_begin", "model_to_device")
        try:
            result = real(self, *args, **kwargs)
            _moved(self)
            return result
        finally:
            _local.moving = False
            _safely(capture.recorder.mark, "phase_end", "model_to_device")

    return move


def _safely(function, *args):
    try:
        return function(*args)
    except Exception:
        return False


@_guard("model_to_device")
def _moved(module):
    capture.recorder.modules.register_tree(module)
    _mark_parameters(module)


def _zeroing(real):
    def zero_grad(self, *args, **kwargs):
        if getattr(_local, "zeroing", False):
            return real(self, *args, **kwargs)
        _local.zeroing = True
        _begin("zero_grad")
        try:
            return real(self, *args, **kwargs)
        finally:
            _local.zeroing = False
            _end("zero_grad")

    return zero_grad


def _differentiating(real, name_of_roots):
    def run(*args, **kwargs):
        handles = _before_backward(args[0] if args else kwargs.get(name_of_roots)) or ()
        try:
            return real(*args, **kwargs)
        finally:
            for handle in handles:  # a graph that is retained would be hooked twice
                handle.remove()
            _end("backward")

    return run


# ---- forward ---------------------------------------------------------------------------------------------------------------------


class _Thread:
    """The modules this thread is in, and which module each autograd node was made in: nodes numbered from starts[i] on belong to modules[i]."""

    def __init__(self):
        self.stack = []
        self.starts = []
        self.modules = []

    def now_in(self, number):
        if _sequence_number is not None:
            self.starts.append(_sequence_number())
            self.modules.append(number)


def _thread():
    try:
        return _local.thread
    except AttributeError:
        _local.thread = _Thread()
        return _local.thread


def _is_compiling():
    # Dynamo knows this call and traces `True`: our hooks vanish from compiled code.
    return _torch.compiler.is_compiling()


def _before_forward(module, args):
    if _is_compiling() or capture.state != capture.ARMED or "forward" in _disabled:
        return
    try:
        recorder = capture.recorder
        thread = _thread()
        number = recorder.modules.number(module)
        if not number:
            number = _register(module, thread.stack)
        position = recorder.position()
        if not thread.stack:
            capture.leave_if_alone()
            recorder.mark("phase_begin", "forward", position)
            if number not in _listed_roots:
                _mark_parameters(module, position)
            _mark_inputs(args, _keyword_arguments(), position)
        recorder.mark("module_begin", number, position)
        thread.stack.append(number)
        thread.now_in(number)
    except Exception as error:
        _fail("forward", error)


def _keyword_arguments():
    """PyTorch hands global forward hooks the positional arguments only; the others are in the frame that calls the hook."""
    frame = sys._getframe(2)
    if frame.f_code.co_name not in ("inner", "_call_impl"):
        return {}
    kwargs = frame.f_locals.get("kwargs")
    return kwargs if isinstance(kwargs, dict) else {}


def _register(module, stack):
    modules = capture.recorder.modules
    if stack:
        return modules.register_in(module, stack[-1])
    return modules.register_tree(module)


def _after_forward(module, args, output):
    if _is_compiling() or capture.state != capture.ARMED or "forward" in _disabled:
        return
    try:
        recorder = capture.recorder
        thread = _thread()
        number = recorder.modules.number(module)
        if number not in thread.stack:  # CUDA came up inside this module's forward
            return
        position = recorder.position()
        while thread.stack:
            ended = thread.stack.pop()
            recorder.mark("module_end", ended, position)
            if ended == number:
                break
        thread.now_in(thread.stack[-1] if thread.stack else -1)
        if not thread.stack:
            recorder.mark("phase_end", "forward", position)
    except Exception as error:
        _fail("forward", error)


# ---- backward --------------------------------------------------------------------------------------------------------------------


@_guard("backward")
def _before_backward(roots):
    capture.recorder.mark("phase_begin", "backward")
    if "module_backward" not in _disabled:
        try:
            return _hook_graph(roots)
        except Exception as error:
            _fail("module_backward", error)
    return ()


def _hook_graph(roots):
    """A hook before every node says which operator works, and for which module: a node's sequence number tells in which module's
    forward it was made. The graph itself is left as it is. Returns the hooks' handles."""
    thread = _thread()
    if not thread.starts or roots is None:
        return ()
    if isinstance(roots, _torch.Tensor):
        roots = (roots,)
    waiting = [getattr(root, "grad_fn", None) or getattr(root, "node", None) for root in roots]
    seen = {}
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        number = node._sequence_nr()
        seen[id(node)] = (number, node)  # holding the node keeps its id unique
        if number >= _LAST_SEQUENCE_NUMBER:
            continue
        if len(seen) > _MAX_GRAPH_NODES:
            break
        waiting.extend(following for following, _ in node.next_functions)
    starts, modules = thread.starts, thread.modules
    handles = []
    for number, node in seen.values():
        if number < _LAST_SEQUENCE_NUMBER:  # AccumulateGrad runs right behind the node that made the gradient, and belongs to it
            place = bisect_right(starts, number) - 1
            handles.append(node.register_prehook(_backward_hook(modules[place] if place >= 0 else -1, node.name())))
    return handles


def _backward_hook(module, operator):
    def hook(gradients):
        if capture.state == capture.ARMED:
            try:
                capture.recorder.mark("module_backward", module, detail=operator)
            except Exception as error:
                _fail("module_backward", error)

    return hook


# ---- tensors ---------------------------------------------------------------------------------------------------------------------

_parameter_names = {}  # id(parameter) -> (weak reference, name, module number)
_marked = {}  # (kind, name, module, address) -> id(tensor): what need not be said again
_listed_roots = set()  # numbers of root modules whose parameters were marked on the GPU
_known = {}  # (kind, id(parameter)) -> ((id(tensor), address), entries): of the step before
_known_states = {}  # (id(optimizer), id(parameter)) -> ids of the state's values


def _storages(tensor, depth=0):
    """(address, storage_bytes, dtype, shape) of the CUDA storage under a tensor; of each one under a wrapper subclass."""
    tensor = getattr(tensor, "_local_tensor", tensor)  # DTensor
    try:
        if tensor.device.type != "cuda" or (tensor.device.index or 0) != capture.recorder.device:
            return []
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        size = storage.nbytes()
        if address and size:
            return [(address, size, str(tensor.dtype).rpartition(".")[2], list(tensor.shape))]
    except Exception:
        if depth > 2 or not hasattr(tensor, "__tensor_flatten__"):
            return []
    if depth > 2 or not hasattr(tensor, "__tensor_flatten__"):
        return []
    inner = []
    for name in tensor.__tensor_flatten__()[0]:
        inner += _storages(getattr(tensor, name), depth + 1)
    return inner


def _entries(kind, tensor, name, module, always=False):
    """The entries to write for one tensor; none when the same tensor was already named so at this address."""
    entries = []
    for address, size, dtype, shape in _storages(tensor):
        key = (kind, name, module, address)
        if always or _marked.get(key) != id(tensor):
            _marked[key] = id(tensor)
            entries.append((kind, address, size, name, module, dtype, shape))
    return entries


def _mark_parameters(root, position=None):
    """Parameters and buffers of a root module."""
    modules = capture.recorder.modules
    entries = []
    _known.clear()  # names may change
    seen = set()  # a parameter that two modules share has the name of the first, as in named_parameters()
    with _torch._C.DisableTorchFunction():
        for prefix, module in root.named_modules():
            number = modules.number(module) or -1
            dot = prefix + "." if prefix else ""
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    if id(parameter) not in seen and (number != -1 or id(parameter) not in _parameter_names):
                        _parameter_names[id(parameter)] = (weakref.ref(parameter), dot + name, number)
                    seen.add(id(parameter))
                    entries += _entries("parameter", parameter, dot + name, number)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    entries += _entries("buffer", buffer, dot + name, number)
    if entries:
        _listed_roots.add(modules.number(root))
    capture.recorder.mark_tensors(entries, position)


def _mark_inputs(args, kwargs, position=None):
    entries = []
    with _torch._C.DisableTorchFunction():
        for name, tensor in (*_tensors_in(args, "", 0), *_tensors_in(kwargs, "", 0)):
            if not tensor.requires_grad and tensor.grad_fn is None:
                entries += _entries("input", tensor, name, -1, always=True)
    capture.recorder.mark_tensors(entries, position)


def _tensors_in(value, name, depth):
    if isinstance(value, _torch.Tensor):
        yield name, value
    elif depth < _MAX_INPUT_DEPTH:
        if isinstance(value, Mapping) or hasattr(value, "items") and hasattr(value, "keys"):
            pairs = value.items()
        elif isinstance(value, (tuple, list)):
            pairs = enumerate(value)
        else:
            pairs = vars(value).items() if hasattr(value, "__dataclass_fields__") else ()
        for key, inner in pairs:
            yield from _tensors_in(inner, f"{name}.{key}" if name else str(key), depth + 1)


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
    """As _entries, quick for a tensor that is what and where it was one step ago."""
    key = (kind, id(parameter))
    try:
        place = (id(tensor), tensor.data_ptr())
    except Exception:  # a wrapper without memory of its own
        return _entries(kind, tensor, name, number, always)
    known = _known.get(key)
    if known is not None and (known[0] == place or always and known[0][1] == place[1]):
        return known[1] if always else ()
    entries = _entries(kind, tensor, name, number, always)
    _known[key] = (place, entries)
    return entries


def _gradient_entries(optimizer):
    entries = []
    with _torch._C.DisableTorchFunction():
        for parameter, name, number in _parameters_of(optimizer):
            entries += _entries_of_step("parameter", parameter, parameter, name, number)
            gradient = parameter.grad
            if gradient is not None:
                # Always: a new gradient often lies where the old one was.
                entries += _entries_of_step("gradient", parameter, gradient, name, number, always=True)
    return entries


def _state_entries(optimizer):
    entries = []
    with _torch._C.DisableTorchFunction():
        for parameter, name, number in _parameters_of(optimizer):
            state = optimizer.state.get(parameter)
            if not state:
                continue
            values = tuple(map(id, state.values()))
            if _known_states.get((id(optimizer), id(parameter))) == values:
                continue
            _known_states[(id(optimizer), id(parameter))] = values
            for key, tensor in _tensors_in(state, "", 1):
                entries += _entries("optimizer_state", tensor, f"{name}.{key}", number)
    return entries


def mark_gradients():
    """At an end in the middle of a step: what gradients there are."""
    entries = []
    try:
        for optimizer in steps.alive():
            entries += _gradient_entries(optimizer)
        capture.recorder.mark_tensors(entries)
    except Exception as error:
        _fail("gradient", error)


# ---- optimizer steps -------------------------------------------------------------------------------------------------------------


class Steps:
    """Counts steps over all optimizers. A round is complete when each has stepped: one step of the report."""

    def __init__(self):
        self.rounds = 0
        self._optimizers = {}  # id -> (weak reference, steps taken)

    def constructed(self, optimizer):
        key = id(optimizer)
        optimizers = self._optimizers
        optimizers[key] = (weakref.ref(optimizer, lambda _: optimizers.pop(key, None)), 0)

    def alive(self):
        return [optimizer for optimizer in (reference() for reference, _ in list(self._optimizers.values())) if optimizer is not None]

    def count(self, optimizer):
        if id(optimizer) not in self._optimizers:
            self.constructed(optimizer)
        return self._optimizers[id(optimizer)][1]

    def taken(self, optimizer):
        count = self.count(optimizer) + 1
        self._optimizers[id(optimizer)] = (self._optimizers[id(optimizer)][0], count)
        return count

    def lowest(self, patience):
        """The fewest steps taken by an optimizer that takes part. One that has not stepped yet takes part if some parameter of its is
        nobody else's (a generator beside its discriminator), until another is more than `patience` steps ahead."""
        counts = [(reference(), count) for reference, count in list(self._optimizers.values())]
        stepped = [(optimizer, count) for optimizer, count in counts if optimizer is not None and count > 0]
        if not stepped:
            return 0
        if max(count for _, count in stepped) <= patience:
            owned = {id(parameter) for optimizer, _ in stepped for group in optimizer.param_groups for parameter in group["params"]}
            for optimizer, count in counts:
                if optimizer is not None and count == 0:
                    params = (parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"])
                    if any(id(parameter) not in owned for parameter in params):
                        return 0
        return min(count for _, count in stepped)


steps = Steps()


def _wanted():
    return session.settings()["steps"]


def _patience():
    return max(10, _wanted())


def _constructing(real):
    def construct(self, *args, **kwargs):
        result = real(self, *args, **kwargs)
        if capture.state in (capture.WATCHING, capture.ARMED):
            try:
                steps.constructed(self)
            except Exception as error:
                _fail("optimizer", error)
        return result

    return construct


def _before_optimizer_step(optimizer, args, kwargs):
    if _is_compiling() or capture.state not in (capture.WATCHING, capture.ARMED):
        return
    try:
        # One optimizer is far ahead of another: enough was seen.
        ahead = steps.count(optimizer) >= _wanted() and (
            steps.lowest(_patience()) >= _wanted() or steps.count(optimizer) >= _patience() * _wanted()
        )
        if ahead and capture.state == capture.ARMED:
            capture.end("steps")
        if capture.state == capture.ARMED and "optimizer" not in _disabled:
            capture.recorder.mark_tensors(_gradient_entries(optimizer))
            capture.recorder.mark("phase_begin", "optimizer_step")
    except Exception as error:
        _fail("optimizer", error)


def _after_optimizer_step(optimizer, args, kwargs):
    if _is_compiling() or capture.state not in (capture.WATCHING, capture.ARMED):
        return
    try:
        steps.taken(optimizer)
        lowest = steps.lowest(_patience())
        if capture.state == capture.ARMED and "optimizer" not in _disabled:
            capture.recorder.mark("phase_end", "optimizer_step")
            capture.recorder.mark_tensors(_state_entries(optimizer))
            if lowest > steps.rounds:
                capture.recorder.mark("step", lowest)
        steps.rounds = max(steps.rounds, lowest)
        _forget_old_nodes()
    except Exception as error:
        _fail("optimizer", error)
    if steps.rounds >= _wanted():
        if capture.state == capture.ARMED:
            capture.end("steps")
        else:
            capture.end_without_cuda()


def _forget_old_nodes():
    """In a long capture: which module the nodes of past steps came from is of no use any more."""
    thread = _thread()
    excess = len(thread.starts) - 200_000
    if excess > 100_000:
        del thread.starts[:excess], thread.modules[:excess]


# ---- the allocator's history and counters are ours ---------------------------------------------------------------------------------


def _not_recording(real):
    def record_memory_history(*args, **kwargs):
        if capture.state != capture.ARMED:
            return real(*args, **kwargs)
        capture.recorder.warn(
            "memory_history_kept",
            "the script's own calls of torch.cuda.memory._record_memory_history were left out: gpucast records the history itself",
        )
        return None

    return record_memory_history


_earlier_peaks = {"allocated_bytes": 0, "reserved_bytes": 0}


def _keep_peaks():
    stats = _torch._C._cuda_memoryStats(capture.recorder.device)
    for name in _earlier_peaks:
        _earlier_peaks[name] = max(_earlier_peaks[name], stats[name]["all"]["peak"])


def _resetting_peaks(real):
    def reset_peak_memory_stats(*args, **kwargs):
        _counters_reset(_keep_peaks)
        return real(*args, **kwargs)

    return reset_peak_memory_stats


def _resetting_counters(real):
    def reset_accumulated_memory_stats(*args, **kwargs):
        if capture.state == capture.ARMED:
            _counters_reset(lambda: None)
            return capture.recorder.counters_reset(lambda: real(*args, **kwargs))
        return real(*args, **kwargs)

    return reset_accumulated_memory_stats


@_guard("stats_reset")
def _counters_reset(before):
    before()
    capture.recorder.mark("stats_reset", "")


def torch_stats():
    """PyTorch's own counters at the end, peaks over all resets by the script."""
    stats = _torch._C._cuda_memoryStats(capture.recorder.device)
    allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    return {
        "peak_allocated_bytes": max(allocated["peak"], _earlier_peaks["allocated_bytes"]),
        "peak_reserved_bytes": max(reserved["peak"], _earlier_peaks["reserved_bytes"]),
        "allocated_bytes": allocated["current"],
        "reserved_bytes": reserved["current"],
        "alloc_retries": stats.get("num_alloc_retries", 0),
        "ooms": stats.get("num_ooms", 0),
    }


# ---- checkpoints -----------------------------------------------------------------------------------------------------------------

_unwritten = []
why_unwritten = "values on the virtual GPU are not real"


def _skip(path):
    if path not in _unwritten:
        _unwritten.append(path)
        recorder = capture.recorder
        recorder.warnings = {key: value for key, value in recorder.warnings.items() if key[0] != "checkpoint_not_written"}
        shown = ", ".join(_unwritten[:5]) + (f" and {len(_unwritten) - 5} more" if len(_unwritten) > 5 else "")
        recorder.warn("checkpoint_not_written", f"not written, since {why_unwritten}: {shown}")


def _not_saving(real):
    """Saving to a path does nothing once CUDA is in use: it would put zeros in the place of a real checkpoint."""

    def save(*args, **kwargs):
        if capture.state == capture.ARMED:
            candidates = (*args[1:2], *(kwargs.get(name) for name in ("f", "filename", "filepath", "save_directory")))
            path = next((value for value in candidates if isinstance(value, (str, os.PathLike))), None)
            if path is not None:
                _skip(os.fspath(path))
                return None
        return real(*args, **kwargs)

    return save


def _not_saving_trainer(real):
    def save(self, *args, **kwargs):
        if capture.state != capture.ARMED:
            return real(self, *args, **kwargs)
        path = next((value for value in (*args[:1], kwargs.get("output_dir")) if isinstance(value, str)), None)
        _skip(path or f"checkpoints in {self.args.output_dir}")
        return None

    return save


def _not_saving_distributed(real, returns_future=False):
    def save(*args, **kwargs):
        if capture.state != capture.ARMED:
            return real(*args, **kwargs)
        path = kwargs.get("checkpoint_id") or getattr(kwargs.get("storage_writer"), "path", None) or "a distributed checkpoint"
        _skip(str(path))
        if not returns_future:
            return None
        from concurrent.futures import Future

        done = Future()
        done.set_result(None)
        return done

    return save
