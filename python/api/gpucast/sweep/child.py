"""A function in a process of its own: Ray ends the process of a driver that loses its cluster, without an exception."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import traceback
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def run_in_child(function: Callable[[], int]) -> int | None:
    """The number that `function` returns; None if its process ended before. Signals reach it."""
    result, answer = os.pipe()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        os.close(result)
        code = _code_of(function)
        os.write(answer, bytes([code]))
        os._exit(code)
    os.close(answer)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: _forward(child, number))
    with os.fdopen(result, "rb") as file:
        code = file.read()
    os.waitpid(child, 0)
    return code[0] if code else None


def _code_of(function: Callable[[], int]) -> int:
    try:
        return function()
    except BaseException:  # our own mistake: it must not look like a lost cluster
        traceback.print_exc()
        return 2


def _forward(child: int, number: int) -> None:
    # A terminal's Ctrl-C reaches the child without us; one more does no harm before it has ended.
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)
