"""torch.cuda and torch.accelerator under `gpucast profile`: one idle card, as described by the session.

The same on a CPU-only PyTorch and on a CUDA build, so a trace does not depend on the build.
"""

import contextlib
import os
import re
import time
import types

from . import profile_device, session

_torch = None
_card = {}


class Stream:
    def __init__(self, device=None, priority=0, **kwargs):
        self.device = _torch.device("cuda", 0)
        self.device_index, self.stream_id, self.cuda_stream, self.priority = 0, 0, 0, priority

    def wait_event(self, event):
        return None

    def wait_stream(self, stream):
        return None

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def query(self):
        return True

    def is_capturing(self):
        return False

    def synchronize(self):
        return None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


class Event:
    """Times are the CPU's."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False, **kwargs):
        self._time = None

    def record(self, stream=None):
        self._time = time.perf_counter()

    def wait(self, stream=None):
        return None

    def query(self):
        return True

    def elapsed_time(self, end_event):
        return ((end_event._time or 0) - (self._time or 0)) * 1000

    def synchronize(self):
        return None


class _Context:
    """`with torch.cuda.device(0):`, `with torch.cuda.stream(s):`"""

    def __init__(self, *args, **kwargs):
        self.idx = 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def _read_card():
    with open(os.path.join(session.FOLDER, "profile.base"), encoding="utf-8") as file:
        fields = dict(re.findall(r"^(\w+) *= *(.*?) *$", file.read(), re.MULTILINE))
    _card.update({key: int(value) if value.isdigit() else value for key, value in fields.items()})


def _properties(device=None):
    return types.SimpleNamespace(
        name=_card["name"],
        major=_card["compute_major"],
        minor=_card["compute_minor"],
        total_memory=_card["total_memory_bytes"],
        multi_processor_count=_card["multiprocessors"],
        max_threads_per_multi_processor=1536,
        regs_per_multiprocessor=_card["registers_per_multiprocessor"],
        shared_memory_per_block=_card["shared_memory_per_block_bytes"],
        L2_cache_size=_card["l2_bytes"],
        warp_size=32,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName="",
    )


def _always(value):
    return lambda *args, **kwargs: value


def _rng_state(device=None):
    # A GPU's is 16 bytes: seed and offset.
    with profile_device.zone(False):
        return _torch.zeros(16, dtype=_torch.uint8, device="cpu")


def _memory_stats(device=None):
    import collections

    return collections.defaultdict(int)


def _functions():
    capability = (_card["compute_major"], _card["compute_minor"])
    total = _card["total_memory_bytes"]
    nothing = _always(None)
    zero = _always(0)
    table = {
        "is_available": _always(True),
        "is_initialized": _always(True),
        "_is_in_bad_fork": _always(False),
        "_lazy_init": nothing,
        "_lazy_call": lambda function, **kwargs: function(),
        "init": nothing,
        "device_count": _always(1),
        "current_device": zero,
        "_get_device_index": zero,
        "set_device": nothing,
        "get_device_name": lambda device=None: _card["name"],
        "get_device_capability": lambda device=None: capability,
        "get_device_properties": _properties,
        "get_arch_list": lambda: [f"sm_{capability[0]}{capability[1]}"],
        "is_bf16_supported": _always(True),
        "is_tf32_supported": _always(True),
        "can_device_access_peer": _always(False),
        "synchronize": nothing,
        "ipc_collect": nothing,
        "empty_cache": nothing,
        "set_per_process_memory_fraction": nothing,
        "mem_get_info": lambda device=None: (total, total),
        "memory_stats": _memory_stats,
        "memory_stats_as_nested_dict": lambda device=None: {},
        "memory_summary": lambda *args, **kwargs: "",
        "memory_snapshot": lambda *args, **kwargs: [],
        "manual_seed": nothing,
        "manual_seed_all": nothing,
        "seed": nothing,
        "seed_all": nothing,
        "initial_seed": zero,
        "get_rng_state": _rng_state,
        "get_rng_state_all": lambda: [_rng_state()],
        "set_rng_state": nothing,
        "set_rng_state_all": nothing,
        "current_stream": lambda device=None: Stream(),
        "default_stream": lambda device=None: Stream(),
        "set_stream": nothing,
        "is_current_stream_capturing": _always(False),
        "utilization": zero,
        "memory_usage": zero,
        "temperature": zero,
        "power_draw": zero,
        "clock_rate": zero,
        "_sleep": nothing,
        "set_sync_debug_mode": nothing,
        "get_sync_debug_mode": zero,
    }
    for name in ("memory_allocated", "memory_reserved", "memory_cached"):
        table[name] = table["max_" + name] = zero
    for name in ("reset_peak_memory_stats", "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"):
        table[name] = nothing
    return table


_CLASSES = {"Stream": Stream, "Event": Event, "ExternalStream": Stream, "device": _Context, "device_of": _Context}
_LEGACY = ("Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double", "Bool")


def _legacy_type(kind):
    """torch.cuda.FloatTensor: makes tensors, names a type."""

    class Kind(type):
        def __call__(cls, *args, **kwargs):
            dtype = getattr(_torch, kind + "Tensor").dtype
            if len(args) == 1 and isinstance(args[0], (list, tuple)):
                return _torch.tensor(args[0], dtype=dtype, device="cuda")
            if len(args) == 1 and isinstance(args[0], _torch.Tensor):
                return args[0].to("cuda", dtype)
            return _torch.empty(*args, dtype=dtype, device="cuda") if args else _torch.empty(0, dtype=dtype, device="cuda")

        def __instancecheck__(cls, instance):
            return isinstance(instance, _torch.Tensor) and instance.is_cuda and instance.dtype == getattr(_torch, kind + "Tensor").dtype

    return Kind(kind + "Tensor", (), {"__module__": "torch.cuda", "_gpucast_type": f"torch.cuda.{kind}Tensor"})


def _not_profiling():
    """The script's own profiler: PyTorch runs one at a time, and ours is running."""

    class Nothing:
        def __init__(self, *args, **kwargs):
            return None

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def key_averages(self, *args, **kwargs):
            return Nothing()

        def events(self):
            return []

        def table(self, *args, **kwargs):
            return ""

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return _always(None)

    return Nothing


def install(torch):
    global _torch
    _torch = torch
    _read_card()
    functions = _functions()
    for module in (torch.cuda, torch.cuda.memory, torch.cuda.random):
        for name, replacement in functions.items():
            if module is torch.cuda or hasattr(module, name):
                setattr(module, name, replacement)
    for name in ("_record_memory_history", "_dump_snapshot", "_snapshot"):
        if hasattr(torch.cuda.memory, name):
            setattr(torch.cuda.memory, name, _always(None))
    for name, replacement in _CLASSES.items():
        setattr(torch.cuda, name, replacement)
    for name in ("Stream", "Event", "ExternalStream"):
        if hasattr(torch.cuda.streams, name):
            setattr(torch.cuda.streams, name, _CLASSES[name])
    torch.cuda.stream = torch.cuda.StreamContext = _Context
    for kind in _LEGACY:
        setattr(torch.cuda, kind + "Tensor", _legacy_type(kind))
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(torch.cuda.nvtx, name, _always(0))
    torch.cuda.nvtx.range = lambda *args, **kwargs: contextlib.nullcontext()
    if hasattr(torch, "accelerator"):
        _install_accelerator(torch, functions)
    torch.profiler.profile = torch.autograd.profiler.profile = _not_profiling()


def _install_accelerator(torch, functions):
    accelerator = torch.accelerator
    for name, replacement in functions.items():
        if hasattr(accelerator, name):
            setattr(accelerator, name, replacement)
    accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")
    for name in ("current_device_index", "current_device_idx"):
        if hasattr(accelerator, name):
            setattr(accelerator, name, _always(0))
    for name in ("set_device_index", "set_device_idx"):
        if hasattr(accelerator, name):
            setattr(accelerator, name, _always(None))
    if hasattr(accelerator, "device_index"):
        accelerator.device_index = _Context
