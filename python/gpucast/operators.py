"""The operators of one training step, with their shapes: PyTorch's own profiler, on the CPU's side only, for one step.

It only observes: it changes neither the script's results nor its allocations (tests/python/test_operators.py compares histories). A script's
own profiler has priority: ours ends when the script's begins, and is not tried again.

Capture into a CUDA graph is observed in any step, because no operator runs when the graph is launched. A step that captures is reported
only if no other step follows.
"""

import ctypes
import json
import os
import time

from . import patching, process, steps

# These operators launch nothing themselves.
_VIEWS = frozenset(
    (
        "alias",
        "as_strided",
        "as_strided_",
        "broadcast_to",
        "chunk",
        "conj",
        "contiguous",
        "detach",
        "detach_",
        "diagonal",
        "empty",
        "empty_like",
        "empty_strided",
        "expand",
        "expand_as",
        "flatten",
        "linear",
        "matmul",
        "movedim",
        "narrow",
        "new_empty",
        "new_empty_strided",
        "numpy_T",
        "permute",
        "pin_memory",
        "real",
        "reshape",
        "resize_",
        "resolve_conj",
        "resolve_neg",
        "result_type",
        "select",
        "set_",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "squeeze_",
        "swapaxes",
        "t",
        "t_",
        "tensor_split",
        "to",
        "transpose",
        "transpose_",
        "unbind",
        "unflatten",
        "unfold",
        "unsafe_chunk",
        "unsafe_split",
        "unsqueeze",
        "unsqueeze_",
        "view",
        "view_as",
        "view_as_real",
        "view_as_complex",
        "_reshape_alias",
        "_unsafe_view",
        "is_pinned",
        "lift_fresh",
        "item",
        "is_nonzero",
        "type_as",
        "item_",
        "size",
        "stride",
        "record_stream",
        "_has_compatible_shallow_copy_type",
        "unsafe_split_with_sizes",
    )
)

_LONGEST_NS = 10**15

_OBSERVED_S = 60  # the longest observation
_MOST_AGAIN = 3  # steps observed because an evaluation was in the one before
_MOST_CALLS = 300_000  # the most calls written as lines

_running = False
_latest_end = 0.0
_off = False
_result = None  # the profiler's result for the observed step
_results = []  # results to write: the observed step; captures of graphs
_capturing = 0  # number of `torch.cuda.graph` contexts entered and not left
_window = False  # our profiler runs only for a capture
_captured = False  # a capture was in the observed step
_step = 0
_evaluated = 0  # forwards without gradients, before the script trains
_evaluations = 0  # the same in the step that is observed now, of a script that trains
_least_evaluations = 0  # the same, of `_result`
_again = 0  # steps observed so far because of them
_after_pass = False  # what is observed lies between two backward passes of a script without an optimizer
_observed = None  # the number of that step, and its marks
when_observed = None  # called when that step has ended
_tf32 = {}
_marks = None  # the marks' sequence numbers before and after it
_yardstick = None  # a function of the core
_yardsticks = []  # how long it took, for each step
_hooks_us = []  # alternating: a step, our hooks' time until its end, the next step ...
_open_ranges = set()  # the id of each record_function that began under our profiler and has not ended
_ended_under = set()  # the same, of ranges that are still open after our profiler's end


def install(torch):
    """Patches the functions with which the script could start a profiler, so that ours ends before it."""
    profiler = torch.autograd.profiler
    for name in ("_prepare_profiler", "_enable_profiler", "_enable_profiler_legacy"):
        patching.wrap(profiler, name, _giving_way)
    patching.wrap(profiler.record_function, "__enter__", _entering_range)
    patching.wrap(profiler.record_function, "__exit__", _leaving_range)
    graph = torch.cuda.graph
    patching.wrap(graph, "__enter__", _entering_capture)
    patching.wrap(graph, "__exit__", _leaving_capture)


def _entering_range(real):
    def enter(self):
        if _running or _window:
            _open_ranges.add(id(self))
        return real(self)

    return enter


def _leaving_range(real):
    """A range ends by a write to the memory of its profiler. That memory is freed when the profiler ends, and under a second profiler
    PyTorch writes to it nevertheless. So a range that is still open when our profiler ends is never ended."""

    def leave(self, *args):
        _open_ranges.discard(id(self))
        if id(self) in _ended_under:
            _ended_under.discard(id(self))
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.record))
            return None
        return real(self, *args)

    return leave


def _disable_profiler():
    result = process.torch._C._autograd._disable_profiler()
    _ended_under.update(_open_ranges)
    _open_ranges.clear()
    return result


def _entering_capture(real):
    def enter(self, *args, **kwargs):
        global _capturing, _window, _captured
        if process.state == process.ARMED and not _off:
            _capturing += 1
            _captured = _captured or _running
            if _capturing == 1 and not _running:
                _window = patching.safely(_start_profiler)
        return real(self, *args, **kwargs)

    return enter


def _leaving_capture(real):
    def leave(self, *args, **kwargs):
        global _capturing
        try:
            return real(self, *args, **kwargs)
        finally:
            if _capturing:
                _capturing -= 1
            if _capturing == 0:
                patching.safely(_end_window)

    return leave


def _end_window():
    global _window
    if _window:
        _window = False
        _keep(_disable_profiler())


def _keep(result):
    """Until the process ends, because PyTorch's end of several results may crash: some free what others have freed."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(result))
    _results.append(result)


def _giving_way(real):
    def enable(*args, **kwargs):
        global _off
        if process.state in (process.WATCHING, process.ARMED):
            _off = True
            patching.safely(_end_window)
            patching.safely(_end, False)
        return real(*args, **kwargs)

    return enable


@patching.guard("operators")
def before_forward(evaluation):
    """A run of one step is observed from its first forward on. A step of very many forwards would fill the memory: then we give up.
    Without an optimizer, a forward without gradients is a step: the second is observed, or the first if one step is wanted."""
    global _off, _evaluated, _evaluations, _result
    if steps.in_backward():  # a checkpoint's second forward: the profiler begins and ends outside of autograd
        return
    if _running and evaluation and steps.counter.trains():
        _evaluations += 1
    if _evaluated and steps.counter.trains():  # that was not a step
        _evaluated, _result = 0, None
        _results.clear()
    if _running and time.monotonic() > _latest_end:
        _off = True
        _end(False)
    elif (_result is None or _captured) and evaluation and not steps.counter.trains() and not _after_pass:
        _evaluated += 1
        if _evaluated == min(2, steps.wanted()) or (_captured and _evaluated <= steps.wanted()):
            _begin(_evaluated, again=_captured)
    elif steps.wanted() == 1 and not _running and _result is None:
        _begin(1)


@patching.guard("operators")
def after_forward(evaluation):
    if _running and evaluation and not steps.counter.trains() and not _after_pass:
        _end(True)


def begin_after_pass():
    """Observes the script from the end of a backward pass on: this may be its second step."""
    global _after_pass
    _end(False)
    _begin(2, again=True)
    _after_pass = _running


def end_after_pass(is_step):
    """At the end of the next pass: keeps what was observed if it is a step. `is_step` gets the addresses of the tensors to which operators
    wrote in place."""
    global _after_pass, _result, _observed, _evaluated
    if not _after_pass:
        return False
    _after_pass, before = False, (_result, _observed)
    if not _running:
        return False
    _end(True)
    if is_step(_written(_result)):
        _evaluated, _results[:] = 0, [_result]
        return True
    _results.remove(_result)
    _result, _observed = before
    return False


def _written(result):
    """The addresses of the tensors to which operators wrote in place."""
    found, waiting = set(), list(result.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        name, inputs = event.name, getattr(event.extra_fields, "inputs", None)
        if inputs and name.startswith("aten::") and name.endswith("_") and name[6:] not in _VIEWS:
            first = inputs[0] if isinstance(inputs[0], list) else inputs[:1]
            found.update(address for address in (getattr(tensor, "storage_data_ptr", None) for tensor in first) if address)
    return found


def measure_speed(yardstick):
    """`yardstick()` is the time of a fixed piece of work on this machine, in nanoseconds."""
    global _yardstick
    _yardstick = yardstick


def forget_steps():
    """What was noted was no step."""
    _yardsticks.clear()
    _hooks_us.clear()


def note_step(step):
    """The time of our hooks, and how fast this machine is now."""
    if _yardstick is not None:
        _yardsticks.append(_yardstick())  # once: a second time it would find its memory in the caches
    _hooks_us.extend((step, patching.spent_ns() // 1000))


@patching.guard("operators")
def after_step(taken):
    """The second step is observed, when optimizers have their state; or the first, if it is the only one. Of steps with evaluations, the one
    with the fewest counts: a script may evaluate after its first step, and then seldom."""
    global _again
    if _running and taken >= _step:
        fewer = _end_if_fewer_evaluations()
        goes_on = taken < steps.wanted()
        if _captured and goes_on:
            _begin(taken + 1, again=True)
        elif _evaluations and fewer and goes_on and _again < _MOST_AGAIN:
            _again += 1
            _begin(taken + 1, again=True)
    elif taken == 1 and steps.wanted() > 1:
        _begin(2)


def _end_if_fewer_evaluations():
    """Keeps what was observed, if it has fewer evaluations than what was kept before."""
    global _result, _observed, _least_evaluations
    before = (_result, _observed)
    _end(True)
    if _again and not _captured:
        if _evaluations >= _least_evaluations:
            _results.remove(_result)
            _result, _observed = before
            return False
        _results.remove(before[0])
    _least_evaluations = _evaluations
    return True


def _begin(step, again=False):
    global _running, _step, _marks, _tf32, _latest_end, _captured, _evaluations
    _end_window()
    if _off or _running or (_result is not None and not again) or not _start_profiler():
        return
    _running, _step, _captured, _evaluations = True, step, False, 0
    _latest_end = time.monotonic() + float(os.environ.get("GPUCAST_OBSERVE_S", _OBSERVED_S))
    _tf32 = {name: bool(patching.safely(getattr(process.torch._C, f"_get_{name}_allow_tf32"))) for name in ("cublas", "cudnn")}
    _marks = [process.recorder.mark("operators_begin", step), 0]


def _start_profiler():
    if process.torch.autograd._profiler_enabled():
        return False
    autograd, config = process.torch._C._autograd, process.torch._C._profiler
    # Newer releases announce each start on standard error.
    quiet = "KINETO_LOG_LEVEL" not in os.environ
    if quiet:
        os.environ["KINETO_LOG_LEVEL"] = "6"
    try:
        settings = config.ProfilerConfig(config.ProfilerState.KINETO, True, False, False, False, False, config._ExperimentalConfig())
        autograd._prepare_profiler(settings, {config.ProfilerActivity.CPU})
        autograd._enable_profiler(settings, {config.ProfilerActivity.CPU})
    finally:
        if quiet:
            del os.environ["KINETO_LOG_LEVEL"]
    return True


def _end(whole):
    global _running, _result, _observed
    if not _running:
        return
    _running = False
    _marks[1] = process.recorder.mark("operators_end", _step)
    result = _disable_profiler()
    if whole:
        _result, _observed = result, (_step, list(_marks))
        _keep(result)
        if when_observed:
            patching.safely(when_observed)


def finish():
    """At the end of the capture: an incomplete step is useless."""
    patching.safely(_end, False)


# ---- lines -----------------------------------------------------------------------------------------------------------------------


def lines():
    """The observed step as lines of the history section; empty if no step was observed."""
    try:
        return list(_lines()) if _result is not None else []
    except Exception as error:
        patching.fail("operators", error)
        return []


def _lines():
    kinds, made = {}, []
    waiting = [event for result in reversed(_results) for event in reversed(result.experimental_event_tree())]
    while waiting and len(made) < _MOST_CALLS:
        event = waiting.pop()
        children = event.children
        if children:
            waiting.extend(reversed(children))
        fields = event.extra_fields
        inputs = getattr(fields, "inputs", None)
        name = event.name
        if inputs is None or (name.startswith("aten::") and name[6:] in _VIEWS):
            continue
        duration = event.duration_time_ns
        # An operator that was open when the profiler ended has no end.
        if name.startswith("autograd::engine::") or not 0 <= duration < _LONGEST_NS:
            continue
        key = (name, _signature(inputs))
        number = kinds.get(key)
        if number is None:
            number = kinds[key] = len(kinds)
            yield '["operator_kind", %d, %s, %s]\n' % (number, json.dumps(name), key[1])  # noqa: UP031
        made.append((event.start_time_ns, duration, number, event.start_tid))
    if not made:
        return
    made.sort()
    epoch = made[0][0]
    step = {"record": "operators", "step": _observed[0], "unix_ns": epoch, "marks": _observed[1], "hooks_us": _hooks_us, "tf32": _tf32}
    if _yardsticks:
        step["warm_yardstick_ns"] = sorted(_yardsticks)[len(_yardsticks) // 2]
    yield json.dumps(step) + "\n"
    for start, duration, number, thread in made:
        yield '["operator", %d, %d, %d, %d]\n' % (number, thread, start - epoch, duration)  # noqa: UP031


_dtypes = {}


def _signature(inputs):
    return "[" + ", ".join(_values(inputs)) + "]"


def _values(inputs):
    """A tensor on the card that was there before says so."""
    seen = set()
    for value in inputs:
        text, pointer = _value(value), getattr(value, "impl_ptr", None)
        if pointer is not None:
            if pointer in seen and text.endswith("]]}"):
                text = text[:-2] + ', "again"]}'
            seen.add(pointer)
        yield text


def _value(value):
    sizes = getattr(value, "sizes", None)
    if sizes is not None:
        dtype = value.dtype
        name = _dtypes.get(dtype)
        if name is None:
            name = _dtypes[dtype] = str(dtype).replace("torch.", "")
        return '{"%s": [%s, %s%s]}' % (name, sizes, value.strides, "" if value.device.type == "cuda" else ', "cpu"')  # noqa: UP031
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 2**62 else "null"
    if isinstance(value, float):
        return repr(value) if value - value == 0 else "null"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    return "null"
