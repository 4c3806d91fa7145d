"""Under `--warp` autograd's threads run on the core of the thread that calls them: the two take turns, and a virtual machine takes 3 to 20 us, or
far more where it is idle, to wake a thread on another core. So the host's time would not be repeatable."""

import atexit
import contextlib
import ctypes
import os
import time

from . import patching

_END_S = 0.002

_core = None  # chosen at the first backward; autograd's threads begin there, and inherit it
_allowed = None  # the cores that this process may use


def _move_to_core():
    """Returns the cores that this thread may use outside of backward; None where it stays as it is."""
    global _core, _allowed
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:  # a backward within a backward, too
        return None
    if _core not in allowed:
        _core, _allowed = ctypes.CDLL(None).sched_getcpu(), allowed
    try:
        os.sched_setaffinity(0, {_core})
    except OSError:
        return None
    return allowed


def _let_threads_end():
    """An autograd thread that still has to free objects of Python when the interpreter ends would end the process (pthread_exit in C++). Here it
    may have waited for this thread's core."""
    if _allowed is None:
        return
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended
            os.sched_setaffinity(int(thread), _allowed)
    time.sleep(_END_S)


def install(torch, took, now_ns):
    """`took(nanoseconds)` is called for gpucast's own time by the clock `now_ns()`."""

    def around(real):
        def run_backward(*args, **kwargs):
            began_ns = now_ns()
            allowed = _move_to_core()
            took(now_ns() - began_ns)
            try:
                return real(*args, **kwargs)
            finally:
                began_ns = now_ns()
                if allowed:
                    os.sched_setaffinity(0, allowed)
                took(now_ns() - began_ns)

        return run_backward

    patching.wrap_engine(torch, around)
    atexit.register(_let_threads_end)
