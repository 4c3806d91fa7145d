"""Private pools of PyTorch's allocator: of CUDA graphs, and `torch.cuda.MemPool`. Marks say where the use of a pool begins and ends, and when
it is released. A replay needs them, because the allocator's own history does not name the pool of a block."""

import itertools
import weakref

from . import patching, process

_next_number = itertools.count(1)
_numbers = {}  # (device, PyTorch's id of a pool) -> its number in the capture
_in_use = {}  # id of a graph -> ((device, number), what marks the release at its end)
_USES = ("_cuda_beginAllocateToPool", "_cuda_beginAllocateCurrentStreamToPool", "_cuda_beginAllocateCurrentThreadToPool")
_ENDS = ("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool")


def install(torch):
    graph = torch.cuda.CUDAGraph
    patching.wrap(graph, "capture_begin", _beginning_capture)
    patching.wrap(graph, "capture_end_pre" if hasattr(graph, "capture_end_pre") else "capture_end", _ending_capture)
    patching.wrap(graph, "reset", _resetting)
    for owner in (torch._C, torch.cuda.memory):
        for names, kind in ((_USES, "pool_begin"), (_ENDS, "pool_end"), (("_cuda_releasePool",), "pool_release")):
            for name in names:
                patching.wrap(owner, name, lambda real, kind=kind: _marking(real, kind))


def _number(device, pool):
    key = (device, tuple(pool))
    if key not in _numbers:
        _numbers[key] = next(_next_number)
    return _numbers[key]


@patching.guard("pools")
def _mark(kind, device, number):
    process.recorder.mark(kind, number, detail=device)


def _marking(real, kind):
    """For functions of (device, pool)."""

    def use(device, pool, *args):
        result = real(device, pool, *args)
        if process.state == process.ARMED:
            _mark(kind, device, _number(device, pool))
        return result

    return use


def _beginning_capture(real):
    def capture_begin(self, *args, **kwargs):
        real(self, *args, **kwargs)
        if process.state == process.ARMED:
            patching.safely(_begin_capture, self, kwargs.get("pool", args[0] if args else None))

    return capture_begin


def _begin_capture(graph, pool):
    device = process.torch.cuda.current_device()
    pool = getattr(pool, "id", pool)
    # A graph without a pool of others gets a new one, whose id is known after the capture.
    number = next(_next_number) if pool is None else _number(device, pool)
    last = weakref.finalize(graph, _release, device, number)
    last.atexit = False
    _in_use[id(graph)] = (device, number, last)
    _mark("capture_begin", device, number)


def _ending_capture(real):
    def capture_end(self, *args, **kwargs):
        result = real(self, *args, **kwargs)
        patching.safely(_end_capture, self)
        return result

    return capture_end


def _end_capture(graph):
    if id(graph) in _in_use:
        device, number, _ = _in_use[id(graph)]
        _numbers.setdefault((device, tuple(graph.pool())), number)
        _mark("pool_end", device, number)


def _resetting(real):
    def reset(self, *args, **kwargs):
        result = real(self, *args, **kwargs)
        if id(self) in _in_use:
            *_, last = _in_use.pop(id(self))
            last()
        return result

    return reset


def _release(device, number):
    if process.state == process.ARMED:
        _mark("pool_release", device, number)
