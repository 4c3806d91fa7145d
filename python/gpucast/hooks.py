"""The hooks and patches in PyTorch, and what each records. Every body is guarded: a hook that fails is switched off."""

import sys
import threading
from bisect import bisect_right

from . import (
    checkpoints,
    compiled,
    ending,
    graph,
    hand_steps,
    horizon,
    loops,
    made_folders,
    operators,
    patching,
    places,
    pools,
    process,
    steps,
    tensors,
    unobserved,
)

_LAST_SEQUENCE_NUMBER = 2**64 - 1  # autograd gives it to AccumulateGrad nodes
_MAX_GRAPH_NODES = 1_000_000

_torch = None
_enough = None  # called when the wanted steps have been taken; the argument: whether one has just ended
_local = threading.local()
_module_hooks = []  # handles
_sequence_number = None  # of the autograd node that this thread makes next


# ---- what to hook, and when ------------------------------------------------------------------------------------------------------


def install_at_import(torch, enough):
    """Right after `import torch`: hooks that are needed before the first CUDA call. `enough(ended)` is called when the wanted steps are done."""
    global _torch, _enough, _sequence_number
    _torch, _enough = torch, enough
    _sequence_number = getattr(torch.autograd, "_get_sequence_nr", None)
    module, optimizer = torch.nn.Module, torch.optim.Optimizer
    patching.wrap(module, "to", lambda real: _moving(real, _asks_for_cuda))
    patching.wrap(module, "cuda", lambda real: _moving(real, lambda args, kwargs: True))
    patching.wrap(optimizer, "__init__", steps.constructing)
    operators.install(torch)
    pools.install(torch)
    compiled.install_at_import(torch, _before_optimizer_step, _after_optimizer_step)
    patching.wrap(module, "compile", _compiling)
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    register_optimizer_step_pre_hook(_before_optimizer_step)
    register_optimizer_step_post_hook(_after_optimizer_step)
    checkpoints.install(torch)
    made_folders.install()


def install_at_cuda_start(torch):
    """At the first CUDA call: in a process that never makes one, PyTorch stays as it is."""
    patching.wrap(torch.autograd, "backward", lambda real: _differentiating(real, "tensors"))
    patching.wrap(torch.autograd, "grad", lambda real: _differentiating(real, "outputs"))
    patching.wrap_engine(torch, _differentiating_once)
    for owner in (torch.nn.Module, torch.optim.Optimizer):
        patching.wrap(owner, "zero_grad", _zeroing)
    from torch.nn.modules import module

    before, after = len(module._global_forward_pre_hooks), len(module._global_forward_hooks)
    _module_hooks.append(module.register_module_forward_pre_hook(_before_forward))
    try:
        _module_hooks.append(module.register_module_forward_hook(_after_forward, always_call=True))
    except TypeError:  # older than 2.1
        _module_hooks.append(module.register_module_forward_hook(_after_forward))
    compiled.install_at_cuda_start((len(module._global_forward_pre_hooks) - before, len(module._global_forward_hooks) - after))
    for name in ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy"):
        patching.wrap(torch._C, name, _not_recording)
    patching.wrap(torch._C, "_cuda_resetAccumulatedMemoryStats", _resetting_counters)
    patching.wrap(torch._C, "_cuda_resetPeakMemoryStats", _resetting_peaks)


def leave_modules_alone():
    """Compiled code was made with the hooks there, and without them it would be compiled again; it does not run them."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and dynamo.counters["frames"]:
        return
    for handle in _module_hooks:
        handle.remove()


# ---- phases ----------------------------------------------------------------------------------------------------------------------


@patching.guard("phase")
def _begin(phase):
    process.recorder.mark("phase_begin", phase)


@patching.guard("phase")
def _end(phase):
    process.recorder.mark("phase_end", phase)


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
        if (
            process.state not in (process.WATCHING, process.ARMED)
            or getattr(_local, "moving", False)
            or not patching.safely(to_cuda, args, kwargs)
        ):
            return real(self, *args, **kwargs)
        _local.moving = True
        # This may be the first CUDA call: then the mark is at the very start of the history.
        patching.safely(process.recorder.mark, "phase_begin", "model_to_device")
        try:
            result = real(self, *args, **kwargs)
            _moved(self)
            return result
        finally:
            _local.moving = False
            patching.safely(process.recorder.mark, "phase_end", "model_to_device")

    return move


@patching.guard("model_to_device")
def _moved(module):
    process.recorder.modules.register_tree(module)
    tensors.mark_parameters(module)


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


def _differentiating_once(real):
    """Of the engine, which torch.autograd.backward calls, too."""

    def run_backward(*args, **kwargs):
        if not getattr(_local, "differentiating", False):
            return marked(*args, **kwargs)
        _local.differentiating = False  # a pass that begins from here on, in a checkpoint, is another one
        try:
            return real(*args, **kwargs)
        finally:
            _local.differentiating = True

    marked = _differentiating(run_backward, "tensors")
    return run_backward


def _differentiating(real, name_of_roots):
    def run(*args, **kwargs):
        if getattr(_local, "differentiating", False):  # PyTorch calls the function again for a function mode
            return real(*args, **kwargs)
        handles = _before_backward(args[0] if args else kwargs.get(name_of_roots)) or ()
        _local.differentiating = True
        try:
            result = real(*args, **kwargs)
        finally:
            _local.differentiating = False
            _unhook(handles)
            _end("backward")
        _after_backward(name_of_roots == "tensors")
        return result

    return run


@patching.timed
def _unhook(handles):
    for handle in handles:  # a graph that is retained would be hooked twice
        handle.remove()


# ---- forward ---------------------------------------------------------------------------------------------------------------------


class _Thread:
    """The modules this thread is in, and which module each autograd node was made in: nodes numbered from starts[i] on belong to modules[i]."""

    def __init__(self):
        self.stack = []
        self.phase = "forward"  # or "evaluation": of the outermost module
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


def _compiling(real):
    """Around Module.compile: it replaces the module's call by code without our hooks."""

    def compile(self, *args, **kwargs):
        result = real(self, *args, **kwargs)
        code = self._compiled_call_impl
        if code is not None:

            def call(*args, **kwargs):
                if process.is_compiling():  # a part of something larger that is compiled
                    return code(*args, **kwargs)
                _before_forward(self, args, kwargs)
                output = code(*args, **kwargs)
                _after_forward(self, args, output)
                return output

            self._compiled_call_impl = call
        return result

    return compile


@patching.timed
def _before_forward(module, args, kwargs=None):
    if process.is_compiling() or process.state != process.ARMED or "forward" in patching.disabled:
        return
    try:
        recorder = process.recorder
        thread = _thread()
        number = recorder.modules.number(module)
        if not number:
            number = _register(module, thread.stack)
        if not thread.stack:
            thread.phase = "forward" if module.training or _torch.is_grad_enabled() else "evaluation"
            if _torch.is_grad_enabled() and next(module.parameters(), None) is not None:
                places.note("forward", module)
            operators.before_forward(thread.phase == "evaluation")
        position = recorder.position()
        if not thread.stack:
            ending.leave_if_alone()
            horizon.evaluations += thread.phase == "evaluation"
            recorder.mark("phase_begin", thread.phase, position)
            if number not in tensors.listed_roots:
                tensors.mark_parameters(module, position)
            tensors.mark_inputs(args, _keyword_arguments() if kwargs is None else kwargs, position)
        recorder.mark("module_begin", number, position)
        thread.stack.append(number)
        thread.now_in(number)
        if len(thread.stack) == 1:
            graph.before_forward()
    except Exception as error:
        patching.fail("forward", error)


def _keyword_arguments():
    """PyTorch hands global forward hooks the positional arguments only; the others are in the frame that calls the hook."""
    frame = sys._getframe(3)
    if frame.f_code.co_name not in ("inner", "_call_impl"):
        return {}
    kwargs = frame.f_locals.get("kwargs")
    return kwargs if isinstance(kwargs, dict) else {}


def _register(module, stack):
    modules = process.recorder.modules
    if stack:
        return modules.register_in(module, stack[-1])
    return modules.register_tree(module)


@patching.timed
def _after_forward(module, args, output):
    if process.is_compiling() or process.state != process.ARMED or "forward" in patching.disabled:
        return
    try:
        recorder = process.recorder
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
            graph.after_forward()
            recorder.mark("phase_end", thread.phase, position)
            operators.after_forward(thread.phase == "evaluation")
    except Exception as error:
        patching.fail("forward", error)


# ---- backward --------------------------------------------------------------------------------------------------------------------


@patching.guard("backward")
def _before_backward(roots):
    process.recorder.mark("phase_begin", "backward")
    places.note("backward")
    looks, hooks = hand_steps.looks_for_weights(), "module_backward" not in patching.disabled and bool(_thread().starts)
    try:
        nodes = _graph_of(roots) if looks or hooks else {}
        if looks:
            hand_steps.before_pass([node.variable for _, node in nodes.values() if hasattr(node, "variable")])
        return _hook_graph(nodes) if hooks else ()
    except Exception as error:
        patching.fail("module_backward", error)
    return ()


def _hook_graph(nodes):
    """A hook before every node shows the running operator and its module: a node's sequence number identifies the module whose
    forward made it. The graph itself is not changed. Returns the hooks' handles."""
    thread = _thread()
    starts, modules = thread.starts, thread.modules
    handles = []
    for number, node in nodes.values():
        if number < _LAST_SEQUENCE_NUMBER:  # AccumulateGrad runs right after the node that made the gradient, and belongs to it
            place = bisect_right(starts, number) - 1
            handles.append(node.register_prehook(_backward_hook(modules[place] if place >= 0 else -1, node.name())))
    return handles


def _graph_of(roots):
    """The autograd nodes under `roots`: id -> (sequence number, node)."""
    if roots is None:
        return {}
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
    return seen


def _backward_hook(module, operator):
    @patching.timed
    def hook(gradients):
        if process.state == process.ARMED:
            try:
                process.recorder.mark("module_backward", module, detail=operator)
            except Exception as error:
                patching.fail("module_backward", error)

    return hook


# ---- optimizer steps -------------------------------------------------------------------------------------------------------------


@patching.timed
def _before_optimizer_step(optimizer, args, kwargs):
    if process.is_compiling() or not _counts_steps():
        return
    steps.inside.optimizer = optimizer
    try:
        if process.state == process.ARMED and steps.counter.far_ahead(optimizer):
            _enough(False)
        if process.state == process.ARMED and "optimizer" not in patching.disabled:
            process.recorder.mark_tensors(tensors.gradient_entries(optimizer))
            process.recorder.mark("phase_begin", "optimizer_step")
    except Exception as error:
        patching.fail("optimizer", error)


@patching.timed
def _after_optimizer_step(optimizer, args, kwargs):
    if process.is_compiling() or not _counts_steps():
        return
    now_ns = process.issuing_cpu_ns() if process.state == process.UNOBSERVED else 0
    steps.inside.optimizer = None
    loops.stepped()
    try:
        if compiled.captured(optimizer):
            _end("optimizer_step")
            return
        taken = steps.counter.taken(optimizer)
        if process.state == process.ARMED and "optimizer" not in patching.disabled:
            process.recorder.mark("phase_end", "optimizer_step")
            process.recorder.mark_tensors(tensors.state_entries(optimizer))
    except Exception as error:
        patching.fail("optimizer", error)
    _count_rounds(lambda counter: counter.rounds_after(taken), now_ns)


@patching.timed
def _after_backward(of_weights):
    """`of_weights`: weights got their gradients; else the caller did."""
    if process.job_is_captured():
        now_ns = process.issuing_cpu_ns() if process.state == process.UNOBSERVED else 0
        _count_rounds(lambda counter: counter.rounds_after_backward(), now_ns)
        if of_weights and not steps.counter.any():
            _count_rounds(hand_steps.rounds_after_pass, now_ns)
            if steps.counter.by_hand:
                loops.stepped()


def _counts_steps():
    return process.state == process.WATCHING or process.job_is_captured()


def _count_rounds(complete, now_ns):
    """`now_ns`: CPU time when the step ended, in unobserved steps."""
    counter, repeats, armed = steps.counter, False, process.state == process.ARMED
    try:
        rounds = complete(counter)
        if rounds > counter.rounds:
            if armed and "optimizer" not in patching.disabled:
                process.recorder.mark("step", rounds, detail=process.issuing_cpu_ns() // 1000)
                operators.note_step(rounds)
                operators.after_step(rounds)
            counter.rounds = rounds
            if process.state == process.UNOBSERVED:
                unobserved.step_ended(now_ns)
                return
            _forget_old_nodes()
            repeats = armed and horizon.seen_enough()
    except Exception as error:
        patching.fail("optimizer", error)
    if process.state == process.UNOBSERVED:
        return
    if repeats or counter.rounds >= steps.wanted() and not (armed and patching.safely(horizon.goes_on)):
        _enough(True)


def _forget_old_nodes():
    """In a long capture: the modules of past steps' nodes are not needed any more."""
    thread = _thread()
    excess = len(thread.starts) - 200_000
    if excess > 100_000:
        del thread.starts[:excess], thread.modules[:excess]


# ---- the allocator's history and counters are ours ---------------------------------------------------------------------------------


def _not_recording(real):
    def record_memory_history(*args, **kwargs):
        if process.state != process.ARMED:
            return real(*args, **kwargs)
        process.recorder.warn(
            "memory_history_kept",
            "the script's own calls of torch.cuda.memory._record_memory_history were left out: gpucast records the history itself",
        )
        return None

    return record_memory_history


_earlier_peaks = {}  # (device, "allocated_bytes" or "reserved_bytes") -> the highest that was reset


def _keep_peaks():
    for device in process.recorder.devices:
        stats = _torch._C._cuda_memoryStats(device)
        for name in ("allocated_bytes", "reserved_bytes"):
            _earlier_peaks[device, name] = max(_earlier_peaks.get((device, name), 0), stats[name]["all"]["peak"])


def _resetting_peaks(real):
    def reset_peak_memory_stats(*args, **kwargs):
        _counters_reset(_keep_peaks)
        return real(*args, **kwargs)

    return reset_peak_memory_stats


def _resetting_counters(real):
    def reset_accumulated_memory_stats(*args, **kwargs):
        if process.state == process.ARMED:
            _counters_reset(lambda: None)
            return process.recorder.counters_reset(lambda: real(*args, **kwargs))
        return real(*args, **kwargs)

    return reset_accumulated_memory_stats


@patching.guard("stats_reset")
def _counters_reset(before):
    before()
    process.recorder.mark("stats_reset", "")


def torch_stats(device, stats):
    """A capture's copy of PyTorch's own counters at the end: peaks over all resets by the script."""
    allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    return {
        "peak_allocated_bytes": max(allocated["peak"], _earlier_peaks.get((device, "allocated_bytes"), 0)),
        "peak_reserved_bytes": max(reserved["peak"], _earlier_peaks.get((device, "reserved_bytes"), 0)),
        "allocated_bytes": allocated["current"],
        "reserved_bytes": reserved["current"],
        "alloc_retries": stats.get("num_alloc_retries", 0),
        "ooms": stats.get("num_ooms", 0),
    }
