"""Replaces PyTorch's functions, and keeps our failures out of the user's program."""

import functools
import os
import threading
import time

from . import process

disabled = set()  # names of hooks that failed
_spent_ns = 0  # in timed hooks that have ended
_began_ns = _thread = 0  # start of the running hook, and its thread


def wrap(owner, name, around):
    """Replaces owner.name by a function with the same signature and name; `around(real)` returns the replacement."""
    real = getattr(owner, name, None)
    if real is None:
        return
    setattr(owner, name, functools.wraps(real)(around(real)))


class _Engine:
    def __init__(self, real, around):
        self._real, self.run_backward = real, around(real.run_backward)

    def __getattr__(self, name):
        return getattr(self._real, name)


def wrap_engine(torch, around):
    """As `wrap`, for run_backward of the autograd engine: an object of C++, which Megatron's pipelines call past torch.autograd.backward."""
    variable = torch.autograd.Variable
    variable._execution_engine = _Engine(variable._execution_engine, around)


def fail(name, error):
    """Switches the hook `name` off."""
    if name not in disabled:
        disabled.add(name)
        process.recorder.warn(
            "hook_failed", f"gpucast's own {name} hook failed ({type(error).__name__}: {error}); its records are incomplete"
        )
        print_traceback_if_debugging()


def timed(function):
    """Its CPU time counts as ours, not as the program's. Simultaneous hooks in several threads count once."""

    def hook(*args, **kwargs):
        global _spent_ns, _began_ns, _thread
        if process.is_compiling() or _began_ns or process.state == process.UNOBSERVED:  # compiled code must not read a clock
            return function(*args, **kwargs)
        _thread, _began_ns = threading.get_ident(), time.thread_time_ns()
        try:
            return function(*args, **kwargs)
        finally:
            _spent_ns += time.thread_time_ns() - _began_ns
            _began_ns = 0

    return hook


def spent_ns():
    """CPU time in hooks so far. Called inside of one, it includes that one's."""
    return _spent_ns + (time.thread_time_ns() - _began_ns if _began_ns and _thread == threading.get_ident() else 0)


def count_as_ours(ns):
    """Of work that is no hook. Inside a hook it counts already."""
    global _spent_ns
    if not _began_ns:
        _spent_ns += ns


def count_from(spent_ns):
    """The hooks' time since `spent_ns()` gave this value counts as the program's: it is known to lie outside the step."""
    global _spent_ns
    _spent_ns = spent_ns


def _is_armed():
    return process.state == process.ARMED


def guard(name, runs=_is_armed):
    """The hook runs only while the capture is on (or while `runs()`), and never raises into the user's program."""

    def decorate(function):
        timed_function = timed(function)

        @functools.wraps(function)
        def hook(*args, **kwargs):
            if not runs() or name in disabled:
                return None
            try:
                return timed_function(*args, **kwargs)
            except Exception as error:
                return fail(name, error)

        return hook

    return decorate


def safely(function, *args):
    try:
        return function(*args)
    except Exception:
        return False


def print_traceback_if_debugging():
    if os.environ.get("GPUCAST_DEBUG"):
        import traceback

        traceback.print_exc()
