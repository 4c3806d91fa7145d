"""The host's time of a step without observation. When the capture is written, the script goes on for a few steps, without our module hooks and
without records of its allocations. Only the CPU time of the threads that submit work is kept.

The script was to end here. So in these steps its output goes nowhere, and when it is about to change a file, start a program or connect to
another machine, or when it ends, it stands still instead."""

import contextlib
import ctypes
import fcntl
import json
import os
import sys
import threading
import time

from . import process, session

_MOST_STEPS = 20
_MOST_STEPS_OF_RANKS = 2  # ranks wait for each other, so all take the same number
_ENOUGH_S, _LATEST_S = 0.4, 1.5  # of CPU time, of time: no step begins later
_MOST_SAMPLES = 1 << 16  # of a step
_SAMPLED_WORK = 8  # one sample for this number of pieces: kSampledWork of src/vgpu/core/issuing_threads.cc
_LONGEST_STEP_S = 2.0  # longer steps are not taken again

# Audit events of Python (PEP 578) before something that lasts longer than the process.
_LASTING = frozenset(
    (
        "os.chmod", "os.exec", "os.link", "os.mkdir", "os.posix_spawn", "os.remove", "os.rename", "os.rmdir", "os.spawn", "os.symlink",
        "os.system", "os.truncate", "shutil.copyfile", "shutil.move", "shutil.rmtree", "subprocess.Popen",
    )
)  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_complete = None
_most_steps = 0
_began_s = 0.0
_step_began_ns = 0
_core = None
_samples = None  # a buffer
_steps = []  # of each step: the CPU time at its begin, at every few pieces of work, at its end


def fits():
    """Whether further steps are short, and end before the run's time limit."""
    longest_s = _longest_step_s()
    deadline_s = session.settings().get("deadline_unix_s")
    return longest_s <= _LONGEST_STEP_S and not (deadline_s and time.time() + _limit_s() > deadline_s)


def _longest_step_s():
    ends_us = [mark[2] for mark in process.recorder.marks if mark[3] == "step"]
    begin_us = ends_us[-2] if len(ends_us) > 1 else process.recorder.marks[0][2]
    return (ends_us[-1] - begin_us) * 1e-6 if ends_us else float("inf")


def _limit_s():
    return _LATEST_S + 2 * _longest_step_s()


def begin(core, complete):
    """The first step begins. `complete()` is called once: it writes what `append` is for, and does not return."""
    global _core, _samples, _complete, _most_steps, _began_s
    _core, _samples, _complete = core, (ctypes.c_int64 * _MOST_SAMPLES)(), complete
    _most_steps = _MOST_STEPS if process.ranks()["local_world_size"] == 1 else _MOST_STEPS_OF_RANKS
    sys.addaudithook(_before_event)
    sys.excepthook = lambda *_: complete()
    at_exit = getattr(threading, "_register_atexit", None)  # called before the script's own atexit handlers
    if at_exit is not None:
        at_exit(complete)
    if not os.environ.get("GPUCAST_DEBUG"):
        _silence()
    threading.Thread(target=_end_later, args=(os.getpid(), _limit_s()), name="gpucast-unobserved", daemon=True).start()
    _began_s = time.monotonic()
    _begin_step()


def _begin_step():
    global _step_began_ns
    _core.gpucast_vgpu_sample_cpu(_samples, 0)
    _step_began_ns = process.issuing_cpu_ns()


def _silence():
    """What the script prints, or writes to a file that it holds open, goes nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in [1, 2, *_files_open_for_writing()]:
        with contextlib.suppress(OSError):
            os.dup2(nowhere, descriptor)


def _files_open_for_writing():
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{name}")
            is_file = path.startswith("/") and not path.startswith(("/dev/", "/proc/", "/memfd:", session.path("")))
            if is_file and fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                found.append(int(name))
    return found


def _before_event(event, arguments):
    if process.state != process.UNOBSERVED:
        return
    if event in _LASTING or (event == "open" and _writes(*arguments)) or (event == "socket.connect" and not _is_local(*arguments)):
        _complete()


def _writes(path, _mode, flags):
    if not isinstance(path, (str, bytes)) or not isinstance(flags, int) or not flags & _WRITING:
        return False
    return not os.fsdecode(path).startswith(("/dev/", "/proc/"))


def _is_local(_socket, address):
    """A path: PyTorch's DataLoader gets a worker's memory this way."""
    return isinstance(address, (str, bytes))


def _end_later(pid, seconds):
    """The script may have left its loop, or wait for another rank."""
    time.sleep(seconds)
    if os.getpid() == pid and process.state == process.UNOBSERVED:
        _complete()


def leave_out(began_ns):
    """CPU time since then is not the step's: a batch of the loader."""
    _core.gpucast_vgpu_leave_out_cpu(process.issuing_cpu_ns() - began_ns)


def step_ended(at_ns):
    count = _core.gpucast_vgpu_sample_cpu(_samples, _MOST_SAMPLES)
    _steps.append([_step_began_ns, *_samples[:count], at_ns])
    took_s = (at_ns - _steps[0][0]) * 1e-9
    if len(_steps) >= _most_steps or took_s > _ENOUGH_S or time.monotonic() - _began_s > _LATEST_S:
        _complete()
    else:
        _begin_step()


def _least_by_pieces():
    """Other programs make caches cold, for milliseconds at a time, and no whole step is free of that. So each step is divided at the same
    pieces of its work, and the least time of each part counts. (nanoseconds, pieces)"""
    by_length = {}
    for step in _steps:
        by_length.setdefault(len(step), []).append([end - begin for begin, end in zip(step, step[1:])])
    alike = max(by_length.values(), key=len)
    return sum(max(0, min(times)) for times in zip(*alike)), _SAMPLED_WORK * (len(alike[0]) - 1)


def end():
    """The script is at its end."""
    if process.state == process.UNOBSERVED:
        _complete()


def append(paths):
    """Adds the record to the written history files at `paths`."""
    if not _steps:
        return
    least_ns, pieces = _least_by_pieces()
    record = {"record": "unobserved_steps", "least_ns": least_ns, "pieces": pieces, "cpu_ns": [step[-1] - step[0] for step in _steps]}
    line = json.dumps(record) + "\n"
    for path in paths:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)
