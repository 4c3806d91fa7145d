"""A process of `gpucast run --real-time` or `--warp`: nothing is recorded, and its checkpoints are not written. Under `--warp` its clocks follow
the card: they run with the machine's clock and are set forward where the script would have waited for the card."""

import atexit
import functools
import os
import sys
import time

from . import (
    checkpoints,
    ending,
    initialisation,
    loops,
    one_core,
    operator_layout,
    patching,
    process,
    session,
    shadow_values,
    values,
    whole_run,
)

_core = None
_ahead_ns = _set_back = None  # functions of the core
_host_ns = None  # of the core: what a clock shows; None until torch is imported
_interruptions_ns = None  # of the core: three numbers (gpucast_vgpu_interruptions)
_operators = None  # operator_layout.Follower
_real_ns = time.monotonic_ns

# Functions of torch._C that decide whether arithmetic of fp32 may use TF32.
_TF32 = ("_set_cublas_allow_tf32", "_set_cudnn_allow_tf32", "_set_float32_matmul_precision", "_set_fp32_precision_setter")

_MOST_WARNINGS = 10  # lines at the end

_SECONDS = {"time": time.CLOCK_REALTIME, "perf_counter": time.CLOCK_MONOTONIC, "monotonic": time.CLOCK_MONOTONIC}


def install_at_start():
    """Called before a module of the user can import one of these functions under its own name."""
    if not session.settings().get("warp"):
        return
    for name, clock in _SECONDS.items():
        setattr(time, name, _of_clock(getattr(time, name), clock, 1e-9))
        setattr(time, name + "_ns", _of_clock(getattr(time, name + "_ns"), clock, 1))
    moved = {time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW, time.CLOCK_BOOTTIME}
    time.clock_gettime = _of_id(time.clock_gettime, moved, 1e-9)
    time.clock_gettime_ns = _of_id(time.clock_gettime_ns, moved, 1)


def _of_clock(real, clock, unit):
    return lambda: real() if _host_ns is None else _host_ns(clock) * unit


def _of_id(real, moved, unit):
    return lambda clock: real(clock) if _host_ns is None or clock not in moved else _host_ns(clock) * unit


def follow(core):
    global _ahead_ns, _core, _host_ns, _interruptions_ns, _set_back
    _core = core
    _interruptions_ns = core.gpucast_vgpu_interruptions().contents
    _set_back = core.gpucast_vgpu_set_back
    _ahead_ns = core.gpucast_vgpu_time_ahead_ns
    _host_ns = core.gpucast_vgpu_host_clock_ns


def install(torch):
    global _operators
    checkpoints.install(torch)
    values.install_at_import(torch, _core)
    os.register_at_fork(after_in_child=_after_fork_in_child)
    atexit.register(_tell_warnings, os.getpid())
    if whole_run.wanted():
        whole_run.install(torch, _host_ns)
        ending.watch_for_exceptions()
        atexit.register(_end_whole_run, os.getpid())
        ending.watch_for_os_exit(functools.partial(_end_whole_run, os.getpid()))  # workers of a DataLoader end so, too
    try:
        _operators = operator_layout.Follower(torch, _core)
    except Exception as error:
        patching.print_traceback_if_debugging()
        print(
            f"gpucast: PyTorch {torch.__version__} does not show its operators ({error}): kernels are timed by their threads",
            file=sys.stderr,
        )
    for name in _TF32:
        patching.wrap(torch._C, name, lambda real: _then_tell_tf32(torch, real))
    if session.settings().get("warp"):
        one_core.install(torch, _left_out, _real_ns)
        patching.wrap(torch.utils.data.dataloader._MultiProcessingDataLoaderIter, "_next_data", _with_time_for_workers)
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(lambda *_: loops.stepped())
    torch.cuda._lazy_call(lambda: _cuda_starts(torch))


def _then_tell_tf32(torch, real):
    def setting(*args, **kwargs):
        out = real(*args, **kwargs)
        _tell_tf32(torch)
        return out

    return setting


def _tell_tf32(torch):
    allowed = (bool(patching.safely(getattr(torch._C, f"_get_{name}_allow_tf32"))) for name in ("cublas", "cudnn"))
    _core.gpucast_vgpu_allow_tf32(*allowed)


def _with_time_for_workers(real):
    """Workers run at the machine's speed, so they miss the time that the script skipped. A wait for them counts only beyond that lost time,
    summed over the number of batches that they may be ahead."""

    def next_data(self):
        skipped = self.__dict__.setdefault("_gpucast_skipped", [_ahead_ns()] * max(1, self._prefetch_factor * self._num_workers))
        before = _real_ns()
        data = real(self)
        lacked = _ahead_ns() - skipped.pop(0)
        _set_back(max(0, min(_real_ns() - before, lacked)))
        skipped.append(_ahead_ns())
        return data

    return next_data


def _left_out(measured_ns, usual_ns=0):
    """gpucast took this time. It does so for each operator, so this is no call of the core, which would take longer than some operators."""
    _interruptions_ns[0] += measured_ns
    _interruptions_ns[1] += usual_ns


def _cuda_starts(torch):
    initialisation.forget()
    values.install_at_cuda_start(torch)
    _tell_tf32(torch)
    if _operators is not None:
        _operators.follow()
    _interruptions_ns[2] = shadow_values.leave_time_out(_left_out, _real_ns, _core.gpucast_vgpu_yardstick_ns)
    if process.state == process.WATCHING and not process.is_data_worker():
        process.state = process.CLOCKED


def _after_fork_in_child():
    if process.state == process.CLOCKED:
        shadow_values.leave()


def _end_whole_run(pid, _status=0):
    if os.getpid() == pid and process.state == process.CLOCKED:
        ending.read_last_exception()
        whole_run.exception = ending.exception_text()
        whole_run.write("exception" if whole_run.exception else "script_end")


def _tell_warnings(pid):
    """There is no report that could have them."""
    if os.getpid() != pid:
        return
    shadow_values.finish()
    messages = [message for _, message in process.recorder.warnings]
    for message in messages[:_MOST_WARNINGS]:
        print(f"gpucast: {message}", file=sys.stderr)
    if len(messages) > _MOST_WARNINGS:
        print(f"gpucast: and {len(messages) - _MOST_WARNINGS} more of these", file=sys.stderr)
