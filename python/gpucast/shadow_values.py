"""The values of small tensors on the card: shadows on the host repeat the script's operations on the card.

Only in a run that needs it (`--values`, values.py): a mode of PyTorch's sees every call of its Python interface. Values from the
host are known. Values that depend on unknown ones (a network's outputs) are assumed if they are whole numbers or conditions: they are
drawn once and then followed like any other value, so related values stay consistent: which expert a token goes to, how
many it gets, where its result is added. Each read of an assumed value by the host gives a warning in the report.
"""

import contextlib
import ctypes
import functools
import inspect
import itertools
import sys
import threading
import types
import weakref

from . import drawn, loops, masked_scores, own_time, patching, process, session, structured
from .structured import Structured

# Most elements of a followed tensor. Larger ones are followed by their structure.
_MOST_WHOLE = 1 << 24  # whole numbers and conditions
_MOST_REAL = 1 << 16
_MOST_CAST = 1 << 24  # real numbers that were whole ones
_MOST_SCORES = 1 << 20  # unknown values that are drawn
_MOST_CONSTANT = 1 << 20  # a constant tensor as an ordinary one
_SMALL = 1 << 16  # no structure below
_MOST_TOLD_BYTES = 1 << 22
_BROADCAST = 4  # the result is kept by its structure if it is this number of times larger than the arguments

_torch = None
_core = None
_mode = None
_own = None  # own_time.OwnTime
_left = False
_compiles = False  # the script has called a compiled function
_late = None  # if following began during the run: the function that starts the run again when earlier values are needed
_whole = frozenset()  # dtypes
_plain = frozenset()  # types of arguments by name that have no values on the card
_shadows = {}  # id of a tensor on the card -> (weak reference to it, _Shadow)
_assumptions = {}  # (place, what) -> [smallest, largest, times]
_how = "typical"
_share = 0.5  # the share of many conditions on unknown values that hold


def _names(text):
    return frozenset(text.split())


# Names of PyTorch's functions and methods. The host reads with these:
_READS = _names("item tolist __bool__ __int__ __float__ __index__ __complex__ is_nonzero equal allclose __contains__ __array__ __format__")
# The values on the card decide the length of these functions' results: PyTorch reads it.
_COUNTS = _names(
    "nonzero argwhere where unique _unique2 _unique unique_dim unique_consecutive _unique_impl _consecutive_impl repeat_interleave "
    "masked_select bincount one_hot __getitem__ __setitem__ index_put_ index_put nms combinations"
)
_THROUGH_MASKS = _names("__getitem__ __setitem__ index_put_ index_put")
_ORDERS = _names("gt lt ge le greater less greater_equal less_equal __gt__ __lt__ __ge__ __le__")
_FINITE = {"isnan": False, "isinf": False, "isposinf": False, "isneginf": False, "isfinite": True}  # answers of a training that goes well
_INDICES = _names("argmax argmin max min topk sort argsort mode median kthvalue")
_FACTORIES = _names("zeros ones full arange range tensor as_tensor scalar_tensor linspace eye tril_indices triu_indices")
_EMPTY = _names("empty empty_like new_empty")
_DRAWS = _names("randint randint_like randperm multinomial bernoulli random_ bernoulli_")
_NOT_FOLLOWED = _names("empty_strided new_empty_strided rand randn rand_like randn_like normal uniform_ normal_ dropout dropout_")
_TO_HOST = _names("to cpu type")
_GETTERS = _names("data T mT H mH")  # properties that give a tensor
_COPIES = _names("copy_ fill_ zero_")
_VIEWS = _names(
    "view unsqueeze squeeze transpose permute reshape expand t narrow select split chunk unbind flatten detach view_as expand_as movedim"
)
_BACKWARD = _names("backward grad")
_ENDS = {int, type(None)}  # of slices
_ASIDE = _names("__delete__ __hash__ __repr__ size stride dim backward record_stream register_hook data_ptr is_contiguous")
# Methods of torch.distributed.ProcessGroup. The functions of torch.distributed cannot be patched: PyTorch compares them by identity
# (P2POp) and imports them by name.
_COLLECTIVES = _names(
    "_allgather_base _reduce_scatter_base allgather allgather_coalesced allgather_into_tensor_coalesced allreduce allreduce_coalesced "
    "alltoall alltoall_base broadcast gather recv recv_anysource reduce reduce_scatter reduce_scatter_tensor_coalesced scatter "
    "all_gather_single all_gather_single_coalesced all_to_all_single gather_into_tensor gather_single reduce_scatter_single "
    "reduce_scatter_single_coalesced"
)


class _Group:
    """Tensors that share memory. `rigid`: their values are apart on the host, kept by structure, so none of them can change alone."""

    __slots__ = ("imagined", "rigid", "valid")

    def __init__(self, imagined, rigid=False):
        self.valid, self.imagined, self.rigid = True, imagined, rigid


class _Shadow:
    __slots__ = ("group", "told", "value")

    def __init__(self, value, group):
        self.value, self.group, self.told = value, group, None


class _Mask(_Shadow):
    """Of a tensor with unknown values: `value` is true where a mask kept them (masked_scores.py)."""

    __slots__ = ()

    def __init__(self, value):
        super().__init__(value, _Group(False))
        self.group.valid = False


class _Unknown(Exception):
    pass


class _Drawn(str):
    """How numbers were found that the script itself draws: their distribution is the right one."""


# ---- the mode --------------------------------------------------------------------------------------------------------------------


def on():
    return _mode is not None


def install(torch, core):
    """In the main thread, while no other mode is on."""
    global _torch, _core, _mode, _whole, _plain, _how, _share
    _torch, _core = torch, core
    _how = session.settings().get("assume", "typical")
    _share = {"none": 0.0, "most": 1.0}.get(_how, 0.5)
    _whole = frozenset((torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))
    _plain = frozenset((bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format))
    structured.install(torch)
    drawn.install(torch, float(_how.partition(":")[2] or 0))
    from torch.overrides import TorchFunctionMode

    class Following(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if _own is None or _left:
                return _call(function, args, kwargs or {})
            began_ns = _own.now_ns()
            if _knows_nothing(function, args, kwargs):
                depth = _own.before_call(began_ns, _around_ns(function))
                try:
                    result = function(*args, **kwargs) if kwargs else function(*args)
                finally:
                    _own.after_call(depth)
                if _is_real(result, args):
                    return result
                with _own:
                    return _followed(function, args, kwargs or {}, result)
            with _own.since(began_ns, _around_ns(function)):
                return _call(function, args, kwargs or {})

    _mode = Following()
    _mode.__enter__()
    context = _device_below()
    if context is not None:
        patching.wrap(context, "__exit__", _put_below)
    patching.wrap(torch.overrides, "has_torch_function", _without_mode)
    if hasattr(torch.autograd, "_engine_run_backward"):
        patching.wrap(torch.autograd, "_engine_run_backward", _also_backward)
    if torch.distributed.is_available():
        for name in _COLLECTIVES:
            patching.wrap(torch.distributed.ProcessGroup, name, _received)
    leave_compiler_alone()


def leave():
    """For good, in a forked child, which cannot use the card: its calls are not followed."""
    global _left
    _left = True


def end():
    """For good: nothing is followed any more."""
    global _left
    if _mode is not None:
        _left = True
        _take_mode_off()


def leave_time_out(took, now_ns, yardstick):
    """`took(measured_ns, usual_ns)` is called for the time that following took: by the clock `now_ns()`, and the usual time of the parts that are not
    measured. Returns the time of `yardstick()`, a fixed piece of work, while the usual times were measured; 0: none were."""
    global _own
    if _mode is None:
        return 0
    _own = own_time.OwnTime(took, now_ns)
    for module in (_torch.functional, _torch.nn.functional, _torch._tensor, _torch.autograd):
        patching.wrap(module, "handle_torch_function", _on_the_way)
    return _own.measure(_torch, _mode_off, _mode, yardstick)


def _around_ns(function):
    name = _name(function)
    if name == "__get__":
        return _own.getter_ns
    if name in _BACKWARD:
        return _own.backward_ns
    if name in _ASIDE:
        return _own.method_ns
    if type(function) is types.FunctionType:
        return _own.function_ns  # it came here through `_on_the_way`
    if name in _VIEWS:
        return _own.view_ns
    return _own.factory_ns if name in _FACTORIES or name in _EMPTY else _own.operator_ns


def _on_the_way(real):
    """Functions in Python reach the mode through this one."""

    def handle_torch_function(*args, **kwargs):
        if _left or not _torch._C._len_torch_function_stack():
            return real(*args, **kwargs)
        with _own:
            return real(*args, **kwargs)

    return handle_torch_function


def install_in_run(torch, core, start_again=None):
    """If no mode of the script's own is on and it has called nothing that is compiled. `start_again`, where values were read before: does
    not return."""
    global _late
    if not _compiles and threading.current_thread() is threading.main_thread() and _has_no_mode(torch):
        _late = start_again
        install(torch, core)


def _has_no_mode(torch):
    """But one of torch.set_default_device or `with torch.device`, if that may be below ours."""
    context = _device_below()
    modes = (torch._C._get_function_stack_at(place) for place in range(torch._C._len_torch_function_stack()))
    return all(context is not None and isinstance(mode, context) for mode in modes)


def _device_below():
    """The class of these modes, where PyTorch keeps them below all others (2.6 and later)."""
    from torch.utils._device import DeviceContext

    return DeviceContext if "_len_torch_function_stack" in DeviceContext.__exit__.__code__.co_names else None


def _put_below(real):
    """The mode was running, and therefore not there, when ours came: it is above ours."""

    def __exit__(context, *how):
        modes = _take_off()
        for mode in sorted(reversed(modes), key=lambda mode: not isinstance(mode, type(context))):
            _torch._C._push_on_torch_function_stack(mode)
        return real(context, *how)

    return __exit__


def _take_off():
    """All modes that are on in this thread, the innermost first."""
    return [_torch._C._pop_torch_function_stack() for _ in range(_torch._C._len_torch_function_stack())]


def _take_mode_off():
    """In this thread; the script's own modes stay. Returns all modes that were on, the innermost first."""
    modes = _take_off()
    for mode in reversed(modes):
        if mode is not _mode:
            _torch._C._push_on_torch_function_stack(mode)
    return modes


@contextlib.contextmanager
def _mode_off():
    modes = _take_mode_off()
    try:
        yield
    finally:
        _take_off()
        for mode in reversed(modes):
            _torch._C._push_on_torch_function_stack(mode)


def _without_mode(real):
    """nn.MultiheadAttention and others use other code under a mode: not under ours."""

    def has_torch_function(tensors):
        with _mode_off():
            return real(tensors)

    return has_torch_function


def _also_backward(real):
    """PyTorch took the mode off for this call. The engine's threads have the modes that are on when it begins: what a checkpoint computes again
    there, custom functions and hooks are followed as in the main thread."""

    def run_backward(*args, **kwargs):
        modes = _torch._C._len_torch_function_stack()
        if _left or _compiles or any(_torch._C._get_function_stack_at(place) is _mode for place in range(modes)):
            return real(*args, **kwargs)
        with _mode:
            return real(*args, **kwargs)

    return run_backward


def leave_compiler_alone():
    """Compiled code is not followed: neither it nor the compiler must see the mode."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    context = getattr(frames, "_TorchDynamoContext", None)
    if context is not None and not hasattr(context.__call__, "__wrapped__"):
        patching.wrap(context, "__call__", _compiling)


def _keep_known_to_compiler():
    """Other modules of PyTorch still call the has_torch_function that we replaced: the compiler treats both alike."""
    ours = _torch.overrides.has_torch_function
    handlers = sys.modules["torch._dynamo.variables.torch"].TorchInGraphFunctionVariable._get_handlers()
    handlers.setdefault(ours.__wrapped__, handlers[ours])


def _compiling(real):
    def __call__(self, function):
        compiled = real(self, function)
        if _mode is not None:
            patching.safely(_keep_known_to_compiler)
        if not inspect.isfunction(compiled):
            return compiled

        @functools.wraps(compiled)
        def call(*args, **kwargs):
            global _compiles
            _compiles = True
            if _mode is None:
                return compiled(*args, **kwargs)
            with _mode_off():
                return compiled(*args, **kwargs)

        return call

    return __call__


# ---- one call --------------------------------------------------------------------------------------------------------------------


def _original(function, args, kwargs):
    """The call itself, which the script would make without us."""
    if _own is None or _left:
        return function(*args, **kwargs)
    depth = _own.pauses()
    try:
        return function(*args, **kwargs)
    finally:
        _own.goes_on(depth)


def _knows_nothing(function, args, kwargs):
    """Whether only results that are whole numbers may be followed: nothing is known of the arguments. Most calls are so, and soon over."""
    kind = _short(function)
    if kind is None or (kwargs and not all(one is None or type(one) in _plain for one in kwargs.values())):
        return False
    for one in args[:1] if kind == "index" else args:
        if id(one) in _shadows:
            return False
        if type(one) in (tuple, list) and any(id(inner) in _shadows or type(inner) in (tuple, list) for inner in one):
            return False
    return kind != "index" or _selects_by_numbers(args[1])


def _selects_by_numbers(index):
    return all(
        one is None or one is Ellipsis or type(one) is int or (type(one) is slice and {type(one.start), type(one.stop)} <= _ENDS)
        for one in (index if type(index) is tuple else (index,))
    )


def _is_real(result, args):
    """Whether results of a call are not followed of whose arguments nothing is known."""
    if type(result) is _torch.Tensor:
        first = args[0] if args else None
        first = first[0] if type(first) in (tuple, list) and first else first
        return (result.dtype not in _whole and getattr(first, "is_cuda", True)) or not result.is_cuda
    if type(result) is not _torch.Size and isinstance(result, (tuple, list)):  # named tuples, too: topk, sort, max
        return all(type(one) is _torch.Tensor and one.is_cuda and one.dtype not in _whole for one in result)
    return not isinstance(result, _torch.Tensor) or result.requires_grad


@functools.cache
def _short(function):
    """The kind of a call that may need no look at its values: "plain", or "index" for a selection. None: it needs one."""
    kind, name = _kind(function), _name(function)
    if name == "__getitem__":
        return "index"
    if kind == "change":
        return None if name in _COPIES else "plain"
    makes = _FACTORIES | _DRAWS | structured.CONSTANTS
    return "plain" if kind is None or (kind == "plain" and name not in makes) else None


def _follows():
    follows = process.state == process.WATCHING or process.job_runs()
    return follows and not _left and process.torch._C._get_tracing_state() is None  # torch.jit.trace must see only the script's calls


def _followed(function, args, kwargs, result):
    """The result of a call that was made."""
    kind = _kind(function)
    if kind in ("plain", "count") and _follows():
        _follow(function, args, kwargs, result)
    return result


def _call(function, args, kwargs):
    kind = _kind(function)
    if kind is None or not _follows():
        return _original(function, args, kwargs)
    if _name(function) == "ctc_loss":
        args, kwargs = _lengths_on_host(args, kwargs)
    if kind == "count":
        return _count(function, args, kwargs)
    if kind == "read":
        return _read(function, args, kwargs)
    sizes = _sizes(args, kwargs)
    result = _answered(sizes, function, args, kwargs) if sizes else _original(function, args, kwargs)
    if kind == "change":
        _change(function, args, kwargs)
    elif kind == "replace":
        _replace(*args)
    else:
        _follow(function, args, kwargs, result)
    if _own is not None and (kind == "change" or isinstance(result, (_torch.Tensor, tuple, list))):
        _own.followed()
    return result


def _lengths_on_host(args, kwargs):
    """The arguments of ctc_loss, with known lengths on the host: PyTorch copies them there itself (aten/src/ATen/native/LossCTC.cpp)."""
    args, kwargs = list(args), dict(kwargs)
    for place, name in ((2, "input_lengths"), (3, "target_lengths")):
        lengths = args[place] if place < len(args) else kwargs.get(name)
        known = values_of(lengths) if isinstance(lengths, _torch.Tensor) and lengths.is_cuda else None
        if known is not None and place < len(args):
            args[place] = known
        elif known is not None:
            kwargs[name] = known
    return args, kwargs


@functools.cache
def _kind(function):
    """How a call is followed; None: not at all."""
    name = _name(function)
    if name in ("__get__", "__set__"):
        of = getattr(function.__self__, "__name__", "")
        return ("plain" if of in _GETTERS else None) if name == "__get__" else "replace" if of == "data" else None
    if name in _ASIDE:
        return None
    if name in _COUNTS:
        return "count"
    if name in _READS:
        return "read"
    in_place = (name.endswith("_") and not name.endswith("__")) or (name.startswith("__i") and name not in ("__invert__", "__index__"))
    return "change" if in_place else "plain"


def _name(function):
    return getattr(function, "__name__", "")


def answer(core, values):
    """Sets the results of this thread's next small reads of unknown values; without any they read zero."""
    core.gpucast_vgpu_answer_reads((ctypes.c_int64 * len(values))(*values), len(values))


def _answered(values, function, args, kwargs):
    answer(_core, values)
    try:
        return _original(function, args, kwargs)
    finally:
        answer(_core, ())


def _sizes(args, kwargs):
    """Single whole numbers on the card among the arguments: PyTorch reads those that are sizes or indices."""
    found = []
    for one in itertools.chain(args, kwargs.values()) if kwargs else args:
        if type(one) in (tuple, list):
            for inner in one:
                _add_sizes(inner, found)
        else:
            _add_sizes(one, found)
    return found


def _add_sizes(one, found):
    if type(one) is slice:
        _add_sizes(one.start, found)
        _add_sizes(one.stop, found)
    elif type(one) is _torch.Tensor and one.dim() == 0 and one.is_cuda and one.dtype in _whole:
        shadow = _shadow(one)
        if shadow is not None:
            found.append(int(shadow.value))


def _on_host(function):
    """Hidden from the script's own modes and gradients. A failure there only means that a value is not known."""

    @functools.wraps(function)
    def quietly(*args):
        try:
            with _torch._C.DisableTorchFunction(), _torch.inference_mode(False), _torch.no_grad():
                return function(*args)
        except Exception as error:
            if not isinstance(error, _Unknown):
                patching.print_traceback_if_debugging()
            return None

    return quietly


# ---- shadows ---------------------------------------------------------------------------------------------------------------------


def _shadow(tensor):
    entry = _shadows.get(id(tensor))
    return entry[1] if entry is not None and entry[1].group.valid else None


def _known(tensor):
    """Its values as an ordinary tensor."""
    shadow = _shadow(tensor)
    if shadow is None:
        raise _Unknown
    return _dense(shadow)


def values_of(tensor):
    """Its values on the host; None: not known."""
    try:
        return _known(tensor) if on() else None
    except _Unknown:
        return None


def _dense(shadow):
    if type(shadow.value) is Structured:
        if shadow.value.numel() > (_MOST_WHOLE if shadow.value.dtype in _whole else _MOST_CAST):
            raise _Unknown
        shadow.value = shadow.value.dense()
    return shadow.value


def _kept(tensor):
    """Its values, by structure if they are kept so."""
    shadow = _shadow(tensor)
    if shadow is None:
        raise _Unknown
    return shadow.value


def _keep(tensor, value, group):
    _attach(tensor, _Shadow(value, group))


def _attach(tensor, shadow):
    """The shadow lives as long as the tensor."""
    key = id(tensor)

    def drop(_):
        began_ns = _own and _own.now_ns()
        _shadows.pop(key, None)
        if began_ns is not None:
            _own.spent(began_ns)

    _shadows[key] = weakref.ref(tensor, drop), shadow


def _mask_left(tensor):
    entry = _shadows.get(id(tensor))
    return entry[1].value if entry is not None and type(entry[1]) is _Mask else None


@_on_host
def _keep_mask(function, args, kwargs, result):
    """The scores are unknown; their mask is known."""
    if result.numel() > _MOST_WHOLE:
        return
    again = functools.partial(_host_call, function, args, kwargs, _mask_left)
    left = masked_scores.remaining(_name(function), args, kwargs, _mask_left, _known, again)
    if left is not None and left.shape == result.shape and _shadow(result) is None:
        _attach(result, _Mask(left))


def _put(result, value, args, kwargs, imagined):
    """The shadow of a result: in its base's group if it is a view of an argument."""
    if not isinstance(value, _torch.Tensor) or value.shape != result.shape:
        return
    if value.dtype != result.dtype:
        value = value.to(result.dtype)
    place = value.untyped_storage().data_ptr()
    for shadow in map(_shadow, _tensors(args, kwargs)):
        if shadow is not None and type(shadow.value) is not Structured and shadow.value.untyped_storage().data_ptr() == place:
            _keep(result, value, shadow.group)
            return
    _keep(result, value, _Group(imagined))


def _put_structured(result, value, base, imagined):
    """`base`: the argument that it is a view of."""
    if value.shape == result.shape:
        small = value.numel() <= _SMALL
        _keep(result, value.dense() if small else value, base.group if base else _Group(imagined, not small))


def _tensors(args, kwargs):
    found = []
    for one in itertools.chain(args, kwargs.values()) if kwargs else args:
        if isinstance(one, _torch.Tensor):
            found.append(one)
        elif type(one) in (tuple, list):
            found += [inner for inner in one if isinstance(inner, _torch.Tensor)]
    return found


def _unknown(args, kwargs):
    return [one for one in _tensors(args, kwargs) if one.is_cuda and _shadow(one) is None]


def _is_imagined(args, kwargs):
    """How the first assumed argument was found, or False."""
    shadows = map(_shadow, _tensors(args, kwargs))
    return next((shadow.group.imagined for shadow in shadows if shadow is not None and shadow.group.imagined), False)


def _argument(one, known):
    """The argument for the host's call."""
    if isinstance(one, _torch.Tensor):
        return known(one) if one.is_cuda else one.detach()
    if type(one) in (tuple, list):
        return type(one)(_argument(inner, known) for inner in one)
    if isinstance(one, slice):
        return slice(*(_argument(inner, known) for inner in (one.start, one.stop, one.step)))
    if isinstance(one, _torch.device) or (isinstance(one, str) and one.startswith("cuda")):
        return "cpu"
    return one


def _host_call(function, args, kwargs, known=_known, **more):
    """The same call on the host. Raises _Unknown if `known(tensor)` does."""
    name = _name(function)
    if name in ("to", "cuda", "cpu", "type"):
        source = _argument(args[0], known)
        return source if args[0].is_cuda else source.clone()
    changed = {key: _argument(value, known) for key, value in kwargs.items() if key not in ("pin_memory", "out")} | more
    if not _tensors(args, kwargs):
        changed["device"] = "cpu"
    if name not in _DRAWS:
        return function(*(_argument(one, known) for one in args), **changed)
    changed.pop("generator", None)
    state = _torch.get_rng_state()
    _torch.default_generator.manual_seed(drawn.seed())
    try:
        return function(*(_argument(one, known) for one in args), **changed)
    finally:
        _torch.set_rng_state(state)


# ---- following -------------------------------------------------------------------------------------------------------------------


def _is_followed(tensor):
    """Whether a tensor's values are followed. Weights, and results of a network with weights, are not."""
    if type(tensor) is not _torch.Tensor or not tensor.is_cuda or tensor.requires_grad:
        return False
    return tensor.numel() <= (_MOST_WHOLE if tensor.dtype in _whole else _MOST_REAL)


def _may_have_structure(function, args, kwargs, result):
    """Whether the values of a result that is too large are followed by their structure."""
    if type(result) is not _torch.Tensor or not result.is_cuda or result.requires_grad:
        return False
    name = _name(function)
    if name in structured.CONSTANTS:  # many large zeros are buffers that kernels fill
        return result.dtype in _whole or "zeros" not in name
    return name in structured.NAMES and not _unknown(args, kwargs) and bool(_tensors(args, kwargs) or name == "eye")


def _follow(function, args, kwargs, result):
    if type(result) is _torch.Tensor:
        if not result.is_cuda:
            if _name(function) in _TO_HOST and args[0].is_cuda:
                _copied_to_host(args[0], result)
            return
        if _is_followed(result) or _may_have_structure(function, args, kwargs, result):
            _follow_result(function, args, kwargs, (result,), True)
        if _name(function) in masked_scores.NAMES and result.dtype not in _whole:
            _keep_mask(function, args, kwargs, result)
    elif isinstance(result, (tuple, list)) and any(_is_followed(one) or _may_have_structure(function, args, kwargs, one) for one in result):
        _follow_result(function, args, kwargs, result, False)


@_on_host
def _follow_result(function, args, kwargs, results, single):
    name = _name(function)
    if kwargs.get("out") is not None:
        return _into(function, args, kwargs)
    if name in _NOT_FOLLOWED or (not _tensors(args, kwargs) and name not in _FACTORIES | _EMPTY | _DRAWS):
        return None
    if name in _EMPTY:
        if results[0].dtype in _whole and _is_followed(results[0]):
            _keep(results[0], _torch.zeros(results[0].shape, dtype=results[0].dtype), _Group(False))
        return None
    constant = name in structured.CONSTANTS and (name not in _FACTORIES or not _is_followed(results[0]))
    if name in _DRAWS or (not constant and _unknown(args, kwargs)):
        for place, result in enumerate(results):
            if _is_followed(result) and result.dtype in _whole:
                found = _imagine(function, args, kwargs, result, None if single else place)
                if found is not None:
                    _put(result, found[0], (), {}, _Drawn(found[1]) if name in _DRAWS else found[1])
        return None
    imagined = not constant and _is_imagined(args, kwargs)
    values = _by_structure(name, function, args, kwargs, results)
    if values is not None:
        base = _shadow(args[0]) if name in structured.VIEWS else None
        for result, value in zip(results, values):
            if value is not None:
                _put_structured(result, value, base, imagined)
        return None
    values = _reduced(name, args, kwargs, results[0]) if single and name in structured.REDUCTIONS else None
    if values is None:
        if not any(_is_followed(one) or _was_whole(name, args, one) for one in results):
            return None
        values = _host_call(function, args, kwargs)
    if imagined and name == "all" and type(imagined) is not _Drawn:  # a check is assumed to succeed
        values = _torch.ones_like(values)
    for result, value in zip(results, (values,) if single else values):
        if type(result) is _torch.Tensor and result.is_cuda:
            _put(result, value, args, kwargs, imagined)
    return None


def _was_whole(name, args, result):
    """Whether these are whole numbers as real ones."""
    return name in structured.SAME and args[0].is_cuda and args[0].dtype in _whole and result.numel() <= _MOST_CAST


def _by_structure(name, function, args, kwargs, results):
    """The results' values by their structure, or None: the call is then repeated on ordinary tensors."""
    if name not in structured.NAMES:
        return None
    arguments = [shadow.value for shadow in map(_shadow, _tensors(args, kwargs)) if shadow is not None]
    dense = not any(type(one) is Structured for one in arguments)
    if dense and not _is_worth_structure(name, results[0], arguments):
        return None

    def known(tensor):
        if name in structured.CONSTANTS and _shadow(tensor) is None:
            return None  # only its shape counts
        return structured.as_it_is(_kept(tensor)) if dense and name in structured.VIEWS else _kept(tensor)

    return structured.result_of(
        name, function, [_argument(one, known) for one in args], {key: _argument(one, known) for key, one in kwargs.items()}, results
    )


def _is_worth_structure(name, result, arguments):
    """Whether a result of ordinary tensors is kept by its structure."""
    size = result.numel()
    if name in structured.CONSTANTS:
        return name not in _FACTORIES or size > _MOST_CONSTANT or not _is_followed(result)
    if size <= _SMALL:
        return False
    return name in structured.EQUALS or size >= _BROADCAST * sum(one.numel() for one in arguments)


def _reduced(name, args, kwargs, result):
    shadow = _shadow(args[0]) if args and isinstance(args[0], _torch.Tensor) else None
    if shadow is None or type(shadow.value) is not Structured:
        return None
    return structured.reduction(name, shadow.value, args[1:], kwargs, result)


def _into(function, args, kwargs):
    """A call with out=."""
    out = kwargs["out"]
    shadows = [shadow for shadow in map(_shadow, out if type(out) in (tuple, list) else (out,)) if shadow is not None]
    _changing(shadows, lambda: _host_call(function, args, kwargs, out=_argument(out, _known)), _is_imagined(args, kwargs))


def _changing(shadows, change, imagined):
    try:
        change()
    except Exception:
        for shadow in shadows:
            shadow.group.valid = False
        raise
    for shadow in shadows:
        shadow.group.imagined = shadow.group.imagined or imagined


@_on_host
def _change(function, args, kwargs):
    """After a call that changes its first argument."""
    target, others = args[0], args[1:]
    name = _name(function)
    if not isinstance(target, _torch.Tensor):
        shadows = list(map(_shadow, target)) if name.startswith("_foreach_") else []
        apart = any(shadow is None or shadow.group.rigid or type(shadow.value) is Structured for shadow in shadows)
        if not shadows or apart or _unknown(args, kwargs):
            return _forget(args, kwargs)
        return _changing(shadows, lambda: _host_call(function, args, kwargs), _is_imagined(args, kwargs))
    if not target.is_cuda:
        if name == "copy_" and isinstance(others[0], _torch.Tensor) and others[0].is_cuda:
            _copied_to_host(others[0], target)
        return None
    shadow = _shadow(target)
    if shadow is None and target.dtype not in _whole:
        if name == "masked_fill_":
            return _keep_mask(function, args, kwargs, target)
        _shadows.pop(id(target), None)  # the mask was for the values before
    known = not _unknown(others, kwargs) and name not in _NOT_FOLLOWED and name not in _DRAWS
    if name in _DRAWS and target.dtype in _whole and _is_followed(target):
        return _draw_again(function, args, kwargs, shadow)
    if shadow is None:
        if known and name in ("copy_", "fill_", "zero_") and _is_followed(target):
            value = _torch.zeros(target.shape, dtype=target.dtype)
            function(value, *(_argument(one, _known) for one in others))
            _keep(target, value, _Group(_is_imagined(others, kwargs)))
    elif not known:
        shadow.group.valid = False
    elif shadow.group.rigid or type(shadow.value) is Structured:
        return _change_rigid(function, args, kwargs, shadow)
    else:
        _changing([shadow], lambda: _host_call(function, args, kwargs), _is_imagined(args, kwargs))
    return None


def _draw_again(function, args, kwargs, shadow):
    """The script draws new numbers in the tensor's place. What else shares its memory is forgotten."""
    if shadow is not None:
        shadow.group.valid = False
    target, value = args[0], _torch.zeros(args[0].shape, dtype=args[0].dtype)
    _host_call(function, args, kwargs, lambda tensor: value if tensor is target else _known(tensor))
    _keep(target, value, _Group(_Drawn("drawn evenly")))


def _change_rigid(function, args, kwargs, shadow):
    """What else is kept of the memory does not change with it, so it is forgotten."""
    target, group = args[0], shadow.group
    group.valid = False
    name, imagined = _name(function), group.imagined or _is_imagined(args[1:], kwargs)
    value = shadow.value
    if name == "zero_" or (name == "fill_" and not isinstance(args[1], _torch.Tensor)):
        return _put_structured(target, structured.constant(args[1] if name == "fill_" else 0, target.shape, target.dtype), None, imagined)
    _keep(target, value, _Group(imagined))
    _changing([_shadow(target)], lambda: _host_call(function, args, kwargs), imagined)
    return None


def _replace(target, source):
    """target.data = source"""
    _shadows.pop(id(target), None)
    shadow = _shadow(source)
    if shadow is not None and not target.requires_grad:
        _keep(target, shadow.value, shadow.group)


def _received(real):
    """A collective writes other ranks' values: the virtual GPU itself knows small contents of them."""

    def collective(group, *args, **kwargs):
        work = real(group, *args, **kwargs)
        _forget(tuple(_within((args, tuple(kwargs.values())))), {})
        return work

    return collective


def _within(values):
    """The tensors, lists of lists of them too."""
    for one in values:
        if type(one) in (tuple, list):
            yield from _within(one)
        elif isinstance(one, _torch.Tensor):
            yield one


def _forget(args, kwargs):
    for shadow in map(_shadow, _tensors(args, kwargs)):
        if shadow is not None:
            shadow.group.valid = False


def not_followed():
    """A context whose calls do not reach the mode."""
    return _torch._C.DisableTorchFunction()


def now_ns():
    return _own.now_ns() if _own is not None else 0


def spent_since(began_ns):
    """The time since then was ours. In between no call may reach the mode, which would take its own time out once more."""
    if _own is not None:
        _own.spent(began_ns)


def tell_numbers(arguments, core):
    """Gives the core the whole numbers among a kernel's arguments, once."""
    for one in arguments:
        if id(one) not in _shadows:
            continue
        shadow = _shadow(one)
        if shadow is None or one.dtype not in _whole or type(shadow.value) is Structured or not one.is_contiguous():
            continue
        value, size = shadow.value, one.numel() * one.element_size()
        if size > _MOST_TOLD_BYTES or shadow.told == (one.data_ptr(), value._version):
            continue
        shadow.told = one.data_ptr(), value._version
        value = value.contiguous()
        core.gpucast_vgpu_note_values(one.data_ptr(), value.data_ptr(), size)


def take_stored(arguments, core):
    """The core knows the whole numbers that the kernel, just launched, has stored in its arguments."""
    imagined = _is_imagined(arguments, {})
    for one in arguments:
        if type(one) is _torch.Tensor and one.is_cuda and one.dtype in _whole and one.is_contiguous():
            _take_stored(one, core, imagined)


@_on_host
def _take_stored(tensor, core, imagined):
    size = tensor.numel() * tensor.element_size()
    if not 0 < size <= _MOST_TOLD_BYTES:
        return
    value = _torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    found = core.gpucast_vgpu_stored_numbers(tensor.data_ptr(), value.data_ptr(), size)
    if found < 0:
        return
    before = _shadow(tensor)
    if before is not None:
        before.group.valid = False
    if found:
        _keep(tensor, value, _Group(imagined))
        _shadow(tensor).told = tensor.data_ptr(), value._version


# ---- assumed values --------------------------------------------------------------------------------------------------------------


def _share_of_conditions():
    return {0.0: "none of many conditions holds", 1.0: "all of many conditions hold"}.get(_share, "half of many conditions hold")


def _holding(shape):
    return drawn.random(shape) < _share


def _imagine(function, args, kwargs, result, place):
    """(whole numbers or conditions that depend on unknown values, how they were found), or None if no assumption makes sense. They are computed
    from random values if these are not too many. How they were found is false for what needs no warning. `place`: index of the result among
    several."""
    name, unknown = _name(function), _unknown(args, kwargs)
    if name in _FINITE:
        return _torch.full(result.shape, _FINITE[name]), False
    if any(one.dtype in _whole for one in unknown):
        return None
    if name in _ORDERS:  # a single condition decides what the script does next: it is assumed to be false
        one = result.numel() == 1
        return _torch.zeros(result.shape, dtype=_torch.bool) if one else _holding(result.shape), "false" if one else _share_of_conditions()
    chosen = _chosen(name, args, kwargs, result) if len(unknown) == 1 and unknown[0] is args[0] else None
    if chosen is not None:
        return chosen
    if sum(one.numel() for one in unknown) <= _MOST_SCORES:
        values = {id(one): drawn.scores(one.shape).to(one.dtype if one.dtype.is_floating_point else _torch.float32) for one in unknown}
        found = _host_call(function, args, kwargs, lambda tensor: values[id(tensor)] if id(tensor) in values else _known(tensor))
        return found if place is None else found[place], f"drawn {drawn.how()}"
    if name in _INDICES:
        dim = _dimension(name, args, kwargs)
        most = unknown[0].shape[dim] if isinstance(dim, int) else unknown[0].numel()
        return (drawn.random(result.shape) * most).to(result.dtype), f"drawn {drawn.how()}"
    return _torch.zeros(result.shape, dtype=result.dtype), "zero"


def _dimension(name, args, kwargs):
    given = args[2:3] if name in ("topk", "kthvalue") else args[1:2]
    dim = kwargs.get("dim", given[0] if given else None if name.startswith("arg") and name != "argsort" else -1)
    return dim[0] if isinstance(dim, tuple) else dim


def _chosen(name, args, kwargs, result):
    """The indices of the largest among unknown scores."""
    scores = args[0]
    if name == "multinomial":
        number = kwargs.get("num_samples", args[1] if len(args) > 1 else 1)
        again = kwargs.get("replacement", args[2] if len(args) > 2 else False)
        rows, size, dim = scores.numel() // max(1, scores.shape[-1]), scores.shape[-1], -1
    elif name in ("topk", "argmax", "argmin", "max", "min"):
        number = kwargs.get("k", args[1] if len(args) > 1 else 1) if name == "topk" else 1
        dim, again = _dimension(name, args, kwargs), False
        if dim is not None and not isinstance(dim, int):
            return None
        size = scores.numel() if dim is None else scores.shape[dim] if scores.dim() else 1
        rows = scores.numel() // max(1, size)
    else:
        return None
    if not isinstance(number, int) or not 0 < number <= size:
        return None
    largest = name in masked_scores.LARGEST and kwargs.get("largest", args[3] if name == "topk" and len(args) > 3 else True)
    left = _mask_left(scores) if largest else None
    among = ""
    if left is not None and not (again and number > 1):
        found = drawn.distinct_of(left.flatten()[None] if dim is None else left.movedim(dim, -1).reshape(rows, size), number)
        among = " where a mask keeps them"
    else:
        found = (drawn.any_of if again else drawn.distinct)(rows, size, number)
    if result.dim() and dim is not None and scores.dim():
        others = list(scores.shape)
        del others[dim]
        found = found.view(*others, number).movedim(-1, dim)
    return found.reshape(result.shape), f"{number} of {size:,} {'' if again or number == 1 else 'distinct '}drawn {drawn.how()}{among}"


def _assumed(what, why, numbers=()):
    """The host has read numbers that depend on unknown values. `why`: text, or just true."""
    if _late:  # a loss or a number of right answers, as most scripts print them
        return
    kept = _assumptions.setdefault((loops.place(), what), [None, None, 0, ""])
    kept[2] += 1
    kept[3] = why if type(why) is str else kept[3]
    for number in numbers:
        kept[0] = number if kept[0] is None else min(kept[0], number)
        kept[1] = number if kept[1] is None else max(kept[1], number)


def finish():
    """Writes the assumptions to the report."""
    for (place, what), (least, most, times, why) in _assumptions.items():
        numbers = "" if least is None else f": {least:,}" if least == most else f": {least:,} to {most:,}"
        reason = f" ({why})" if why else ""
        process.recorder.warn(
            "value_assumed",
            f"{place}: {what} in {times} read{'s' * (times > 1)}{numbers}; depends on unknown values{reason} (--assume {_how})",
        )
    _assumptions.clear()


# ---- what the host reads ---------------------------------------------------------------------------------------------------------


@_on_host
def _copied_to_host(source, copy):
    shadow = _shadow(source)
    if shadow is None or _core.gpucast_vgpu_read_known() or copy.shape != shadow.value.shape:
        return
    values = _dense(shadow)
    if shadow.group.imagined:
        _assumed("copied to the host", shadow.group.imagined)
        if values.dtype is _torch.bool:
            _turn([shadow], bool(values.any()))
    # Not by an operator: the script's tensor keeps its version, which selective checkpoints compare.
    values = values.to(copy.dtype).contiguous()
    if copy.is_contiguous():
        ctypes.memmove(copy.data_ptr(), values.data_ptr(), values.nbytes)
    else:
        copy.copy_(values)


@_on_host
def _host_value(function, args, kwargs):
    return _host_call(function, args, kwargs), _is_imagined(args, kwargs)


def _read(function, args, kwargs):
    if not any(one.is_cuda for one in _tensors(args, kwargs)) or (_name(function) == "__format__" and _shadow(args[0]) is None):
        return _original(function, args, kwargs)
    with loops.expecting():  # counted once, below
        result = _original(function, args, kwargs)
    if _core.gpucast_vgpu_read_known():
        return result
    found = _host_value(function, args, kwargs)
    value, imagined = found or (result, True)
    if imagined:
        expected = loops.is_expected()
        value = loops.given(value) if type(value) in loops.NUMBERS else value
        if found and not expected:
            _assumed("the host reads a value", imagined, [value] if type(value) is int else ())
    elif _late and type(value) in (bool, int) and value:
        _late()  # similar ones were read earlier, as zero
    return value


def _count(function, args, kwargs):
    found = _counted(function, args, kwargs) if any(one.is_cuda for one in _tensors(args, kwargs)) else None
    if found is None:
        result = _answered(_sizes(args, kwargs), function, args, kwargs)
    else:
        sizes, values, imagined = found
        name = _name(function)
        if imagined:
            _assumed("what a mask selects" if name in _THROUGH_MASKS else f"{name}()", imagined, sizes)
        # repeat_interleave() also asks whether no number of repeats is negative.
        result = _answered([*sizes, 1] if name == "repeat_interleave" else sizes, function, args, kwargs)
        if name in _THROUGH_MASKS:
            _answer_autograd(args[0] if result is None else result, args[1], sizes)
    if _name(function) in ("__setitem__", "index_put_"):
        _change(function, args, kwargs)
    elif found is None:
        _follow(function, args, kwargs, result)
    elif values is not None:
        _put_all(result, values, args, kwargs, imagined)
    return result


@_on_host
def _answer_autograd(result, index, sizes):
    """Autograd counts the masks again. The core knows only those that need no copy to be counted (`note_count`)."""
    node = result.grad_fn
    if node is None or all(one.is_contiguous() for one in _tensors((index,), {})):
        return
    node.register_prehook(lambda _: answer(_core, sizes))
    node.register_hook(lambda *_: answer(_core, ()))


@_on_host
def _put_all(result, values, args, kwargs, imagined):
    if isinstance(result, _torch.Tensor):
        result, values = (result,), (values,)
    for one, value in zip(result, values):
        if isinstance(one, _torch.Tensor):
            _put(one, value, args, kwargs, imagined)


@_on_host
def _counted(function, args, kwargs):
    """(the sizes that PyTorch reads, the result or None, whether it is assumed); None: nothing is counted, or nothing is known."""
    name = _name(function)
    if name in _THROUGH_MASKS:
        masks = [one for one in _tensors(args[1:2], {}) if one.is_cuda and one.dtype in (_torch.bool, _torch.uint8)]
    elif name == "where":
        masks = args[:1] if len(args) + len(kwargs) == 1 else ()
    elif name in ("nonzero", "argwhere", "masked_select"):
        masks = (args[1] if name == "masked_select" else args[0],)
    else:
        return _counted_others(function, args, kwargs)
    if not masks:
        return None
    shadows = [_mask(mask) for mask in masks]
    imagined = next((shadow.group.imagined for shadow in shadows if shadow.group.imagined), False)
    sizes = [_number_of_nonzero(shadow) for shadow in shadows]
    if imagined and _turn(shadows, sum(sizes) if all(sizes) else 0):
        sizes = [_number_of_nonzero(shadow) for shadow in shadows]
    values = None
    if name in ("nonzero", "argwhere", "where"):
        values = _places(name, kwargs, shadows[0])
    elif name not in ("__setitem__", "index_put_"):
        values = (_host_value(function, args, kwargs) or (None,))[0]
    for mask, size in zip(masks, sizes):
        _core.gpucast_vgpu_note_count(mask.data_ptr(), size)  # autograd may count it again
    if name == "masked_select":  # each element of the mask may select several
        sizes = [sizes[0] * (_torch.broadcast_shapes(args[0].shape, args[1].shape).numel() // max(1, args[1].numel()))]
    return sizes, values, imagined


def _number_of_nonzero(shadow):
    found = structured.count(shadow.value)
    return int(_dense(shadow).count_nonzero()) if found is None else found


def _places(name, kwargs, shadow):
    """The result of nonzero() and its like."""
    apart = name == "where" or kwargs.get("as_tuple", False)
    found = structured.positions(shadow.value) if type(shadow.value) is Structured else None
    if found is None:
        return _dense(shadow).nonzero(as_tuple=apart)
    return tuple(found) if apart else _torch.stack(found, 1)


def _turn(shadows, number):
    """If a loop asked often enough how many of these conditions hold, the other answer follows: all of them hold, or none."""
    if not loops.turns(number):
        return False
    for shadow in shadows:
        if type(shadow.value) is Structured:
            shadow.value = structured.constant(not number, shadow.value.shape, shadow.value.dtype)
        else:
            shadow.value.fill_(not number)
    return True


def _counted_others(function, args, kwargs):
    name = _name(function)
    if name == "nms":  # (boxes, scores, threshold)
        boxes = args[0].shape[0]
        return [int(boxes * _share)], _torch.arange(boxes)[: int(boxes * _share)], _share_of_conditions()
    if name == "one_hot" and (len(args) > 1 or kwargs.get("num_classes", -1) != -1):
        return None
    imagined = _is_imagined(args, kwargs)
    values = _host_call(function, args, kwargs)
    if name == "bincount":
        source = _argument(args[0], _known)
        sizes = [int(source.min()), int(source.max())] if source.numel() else [0]
    elif name == "one_hot":
        sizes = [values.shape[-1] - 1]
    else:
        sizes = [(values if isinstance(values, _torch.Tensor) else values[0]).shape[0]]
    return sizes, values, imagined


def _mask(tensor):
    """Its shadow; an assumed one if there is none."""
    if _shadow(tensor) is None:
        if _late or tensor.numel() > _MOST_WHOLE:
            raise _Unknown
        _keep(tensor, _holding(tensor.shape).to(tensor.dtype), _Group(_share_of_conditions()))
    return _shadow(tensor)
