"""The DataLoader that feeds training: how the script's loop fetches batches, and how fast the loader gives them."""

import contextlib
import ctypes
import itertools
import json
import os
import signal
import sys
import time
import types
import warnings
import weakref
from bisect import bisect_left

from . import loader_measure, patching, process, unobserved

_BUDGET_S = 5.0  # for all measurements
_KILLED_AFTER = 1.4  # times the budget: a slow batch cannot be interrupted in another way
_MOST_TAKEN = 20_000
_MOST_WRITTEN = 256

_loaders = {}  # number -> its description
_numbers = weakref.WeakKeyDictionary()  # DataLoader -> number
_of_iterator = weakref.WeakKeyDictionary()  # iterator -> number
_kept = []
_taken = []  # the first batches of all loaders: (number, unix_us, wall_us, cpu_us of the process, cpu_us of the threads that submit work)


def install(torch):
    from torch.utils.data import dataloader

    patching.wrap(dataloader._BaseDataLoaderIter, "__init__", _beginning)
    patching.wrap(dataloader._BaseDataLoaderIter, "__next__", _taking)


def _watched():
    return process.state in (process.WATCHING, process.ARMED) and "loader" not in patching.disabled


def _beginning(real):
    def __init__(self, loader, *args, **kwargs):
        real(self, loader, *args, **kwargs)
        if not _watched():
            return
        try:
            number = _numbers.setdefault(loader, len(_loaders) + 1)
            _loaders[number] = {**_settings(loader), "loader": weakref.ref(loader), "iterator": weakref.ref(self)}
            _of_iterator[self] = number
        except Exception as error:
            patching.fail("loader", error)

    return __init__


def _settings(loader):
    batch_size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    epoch_batches = 0
    if loader._dataset_kind == 0:  # not known for an iterable dataset
        with contextlib.suppress(Exception):  # a sampler of the script's own
            epoch_batches = int(len(loader))
    return {
        "dataset": type(loader.dataset).__name__,
        "iterable": loader._dataset_kind == 1,
        "workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor or 0,
        "pin_memory": bool(loader.pin_memory),
        "batch_size": batch_size if isinstance(batch_size, int) else 0,
        "epoch_batches": epoch_batches,
    }


def _taking(real):
    def __next__(self):
        if process.state == process.UNOBSERVED:
            began_ns = process.issuing_cpu_ns()
            batch = real(self)
            unobserved.leave_out(began_ns)
            return batch
        if not _watched():
            return real(self)
        spent_ns = patching.spent_ns()
        own_ns, begin_ns, cpu_ns, wall_ns = process.issuing_cpu_ns(), time.time_ns(), time.process_time_ns(), time.perf_counter_ns()
        batch = real(self)
        wall_ns, cpu_ns = time.perf_counter_ns() - wall_ns, time.process_time_ns() - cpu_ns
        own_ns = process.issuing_cpu_ns() - own_ns
        number = _of_iterator.get(self)
        if number is not None and len(_taken) < _MOST_TAKEN:
            patching.count_from(spent_ns)  # this time is subtracted from the step
            _taken.append((number, begin_ns // 1000, wall_ns // 1000, cpu_ns // 1000, own_ns // 1000))
        return batch

    return __next__


def keep():
    """Until the record is made, although the script may leave the loop that has the loader."""
    _kept.extend((known["loader"](), known["iterator"]()) for known in _loaders.values())


# ---- the record ------------------------------------------------------------------------------------------------------------------


def append(paths, reason, measure):
    """Adds the record to the written history files at `paths`: the capture is complete even if this fails."""
    line = json.dumps({"record": "loader", **_record(reason, measure)}) + "\n"
    for path in paths:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)


def _record(reason, measure):
    ends = [mark[2] for mark in process.recorder.marks if mark[3] == "step"] or [float("inf")]
    number, others = _feeding(ends)
    if number is None:
        if any(name == "nvidia.dali" or name.startswith("nvidia.dali.") for name in sys.modules):
            return {"kind": "dali"}
        return {"kind": "unused" if _loaders else "none"}
    known = _loaders[number]
    loader, iterator = known.pop("loader")(), known.pop("iterator")()
    taken = [list(rest) for of, *rest in _taken if of == number][:_MOST_WRITTEN]
    record = {"kind": "dataloader", **known, "others": others, "machine": _machine(), "next": taken}
    if not measure:
        return record
    if loader is None and iterator is None:
        return {**record, "said": ["the DataLoader was gone when the script had ended"]}
    if reason not in ("steps", "script_end"):
        return {**record, "said": ["the script stopped before its end"]}
    if process.ranks()["local_rank"] != 0:
        return {**record, "said": ["measured in the process of local rank 0 only"]}
    workers = _quieten(iterator)
    measured = _measured(_parts(loader, iterator, known["batch_size"]), known["pin_memory"])
    for pid in workers:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)  # at its end a script stops its workers, so they must run again
    return {**record, **measured}


def _parts(loader, iterator, batch_size):
    """A DataLoader's parts. If the script did not keep the loader, its iterator has them."""
    found = {"batch_size": batch_size}
    for name in ("dataset", "collate_fn", "drop_last", "worker_init_fn", "index_sampler", "dataset_kind", "auto_collation"):
        for owner, attribute in ((loader, name), (loader, "_" + name), (iterator, "_" + name)):
            if owner is not None and hasattr(owner, attribute):
                found[name] = getattr(owner, attribute)
                break
    return types.SimpleNamespace(**{"worker_init_fn": None, **found})


def _feeding(ends):
    """The loader that gave batches in most steps, and the number of others that gave some."""
    steps, wall_us = {}, {}
    for number, unix_us, took_us, *_ in _taken:
        step = bisect_left(ends, unix_us)
        if step == len(ends):
            continue  # after the last step
        steps.setdefault(number, set()).add(step)
        wall_us[number] = wall_us.get(number, 0) + took_us
    if not steps:
        return None, 0
    return max(steps, key=lambda one: (len(steps[one]), wall_us[one])), len(steps) - 1


def _machine():
    """The CPUs that this process may use, and the number of them that share a core."""
    cores = float(len(os.sched_getaffinity(0)))
    threads = 1
    with contextlib.suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
        quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, int(quota) / int(period))
    siblings = "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list"
    with contextlib.suppress(OSError, ValueError), open(siblings, encoding="ascii") as file:
        ranges = [part.partition("-") for part in file.read().strip().split(",")]
        threads = sum(int(high or low) - int(low) + 1 for low, _, high in ranges)
    return {"cores": cores, "threads_per_core": max(1, threads), "ranks": process.ranks()["local_world_size"]}


# ---- measuring -------------------------------------------------------------------------------------------------------------------


def _quieten(iterator):
    """Waits until the script's own workers have filled their queue: a worker that is stopped earlier may hold a lock."""
    pids = [worker.pid for worker in getattr(iterator, "_workers", ())]
    deadline = time.monotonic() + 1.0
    before = None
    while pids and time.monotonic() < deadline:
        ticks = [_cpu_ticks(pid) for pid in pids]
        if ticks == before:
            break
        before = ticks
        _sleep_ms(100)
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGSTOP)
    return pids


def _cpu_ticks(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
        return fields[0] == b"D", fields[11], fields[12]
    except OSError:
        return None


class _Poll(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def _sleep_ms(milliseconds):
    """Keeps the interpreter's lock: the script's other threads stand still."""
    ctypes.PyDLL(None).poll(None, 0, milliseconds)


def _measured(parts, pin):
    """Measures in a forked child. If the loader raises, hangs or crashes there, the capture is safe, and the child's memory is freed."""
    budget_s = float(os.environ.get("GPUCAST_LOADER_S", _BUDGET_S))
    killed_after_s = budget_s * _KILLED_AFTER
    team_ended = patching.safely(loader_measure.end_team)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning about a fork in a process with threads
        child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(read)
            os.setpgid(0, 0)
            loader_measure.run(process.torch, parts, budget_s, lambda line: os.write(write, (json.dumps(line) + "\n").encode()), team_ended)
        os._exit(0)
    os.close(write)
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    lines, whole = _lines(read, time.monotonic() + killed_after_s)
    for kill in (os.killpg, os.kill):  # with its workers
        with contextlib.suppress(OSError):
            kill(child, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.waitpid(child, 0)
    os.close(read)
    runs = [line for line in lines if "workers" in line]
    said = [line["said"] for line in lines if "said" in line]
    if not whole and not said:
        said.append(
            f"the measurement was ended after {killed_after_s:g} s: a batch takes longer, or waits for a lock that another thread holds"
        )
    found = {"measured": runs, "said": said}
    if pin and runs and runs[0].get("batch_bytes"):
        copied = next((run["copy_ns"] for run in runs if run.get("copy_ns")), 0)
        found["pin_ns"] = copied or patching.safely(_pin_ns, runs[0]["batch_bytes"])
    return found


def _lines(read, deadline):
    """The child's output, and whether it finished."""
    text = b""
    while not text.endswith(b'{"end": true}\n'):
        left_ms = int((deadline - time.monotonic()) * 1000)
        waiting = _Poll(read, 1, 0)
        if left_ms <= 0 or ctypes.PyDLL(None).poll(ctypes.byref(waiting), 1, left_ms) <= 0:
            break
        part = os.read(read, 1 << 16)
        if not part:
            break
        text += part
    whole = text.endswith(b'{"end": true}\n')
    lines = [json.loads(line) for line in itertools.islice(text.splitlines(), 100) if line.endswith(b"}")]
    return lines, whole


def _pin_ns(size):
    """The time of a batch's copy to pinned memory by the loader's thread. The first copy also allocates that memory."""
    batch = process.torch.zeros(min(size, 1 << 28), dtype=process.torch.uint8)
    times = []
    for _ in range(4):
        begin = time.thread_time_ns()
        batch.pin_memory()
        times.append(time.thread_time_ns() - begin)
    return int(min(times) * (size / batch.numel()))
