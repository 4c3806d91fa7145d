"""`gpucast time --run`: the script runs to its end on the card's clock, with fewer batches. The times of its passes and steps become a
record, and src/job/whole_run.cc computes the time of the whole training.

A DataLoader's pass ends early, and its whole length is in the record. Passes that come again end after a few batches, so a training of many
epochs runs in a minute or two. All times are of the card's clock (clock.py), in nanoseconds since the process began.
"""

import contextlib
import os
import sys
import time
import weakref

from . import patching, process, session

_LEAST = 12  # batches of a first pass that is cut
_LEAST_AGAIN = 3  # of a pass like an earlier one
_PASS_S, _INNER_PASS_S = 20, 6  # a first pass is cut after this long; a pass inside of another one
_WHOLE_S = 30  # passes that come again are whole until the run has taken this long
_RUN_S = 90  # then a script without passes is ended
_LONGEST_RUN_S = 300  # and any other
_ENOUGH_PASSES = 2  # of training, where the user says how many epochs or steps there are
_MOST_STEPS = 200_000

_scale = float(os.environ.get("GPUCAST_RUN_S", _RUN_S)) / _RUN_S  # of all times but the longest

_real_s = time.monotonic
_clock_ns = None  # a function of the core: the card's clock
_began_ns = 0
_first_s = None  # of the first batch or step, on this machine's clock
_passes = []  # all records of passes
_open = []  # those that run, from the outermost
_of_iterator = weakref.WeakKeyDictionary()
_seen = set()  # kinds of passes that have ended
_steps_ns = []
_saves = []  # [bytes, the number of the outermost pass that runs, its batches so far]; outside of passes: [bytes, -1, steps so far]
_written = False


class _Pass:
    def __init__(self, kind):
        self.kind, self.length = kind, kind[1]
        self.began_s = _real_s()
        self.record = {
            "dataset": kind[0], "length": kind[1], "batch_size": kind[2], "again": kind in _seen,
            "parent": _open[-1].number if _open else -1, "parent_batch": len(_open[-1].record["fetched_ns"]) if _open else 0,
            "begin_ns": _now_ns(), "end_ns": 0, "fetched_ns": [], "steps": 0, "cut": False,
        }  # fmt: skip
        self.number = len(_passes)
        _passes.append(self.record)
        _open.append(self)

    def end(self, cut=False):
        if self not in _open:
            return
        self.end_inner()
        _open.remove(self)
        self.record.update(end_ns=_now_ns(), cut=cut)
        _seen.add(self.kind)

    def end_inner(self):
        """Loops inside that the script left by `break`."""
        for inner in _open[_open.index(self) + 1 :]:
            inner.end()

    def is_enough(self):
        taken, took_s = len(self.record["fetched_ns"]), _real_s() - self.began_s
        if self.length <= taken:
            return False
        if self.record["again"]:
            return taken >= _LEAST_AGAIN and _run_s() > _WHOLE_S * _scale
        return taken >= _LEAST and took_s > _scale * (_PASS_S if self.record["parent"] < 0 else _INNER_PASS_S)


def _now_ns():
    return _clock_ns(time.CLOCK_MONOTONIC) - _began_ns


def _note_begin():
    global _first_s
    if _first_s is None:
        _first_s = _real_s()


def _run_s():
    return _real_s() - _first_s if _first_s is not None else 0


def wanted():
    return session.settings().get("whole_run")


def install(torch, clock_ns):
    global _clock_ns, _began_ns
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.utils.data import DataLoader, dataloader

    _clock_ns = clock_ns
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rpartition(b") ")[2].split()[19])
    age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    _began_ns = clock_ns(time.CLOCK_MONOTONIC) - age_ns
    patching.wrap(DataLoader, "__iter__", _beginning)
    patching.wrap(dataloader._BaseDataLoaderIter, "__next__", _taking)
    register_optimizer_step_post_hook(lambda *_: _stepped())


def _kind(loader):
    length = 0
    if loader._dataset_kind == 0:
        try:
            length = int(len(loader))
        except (TypeError, NotImplementedError):  # a sampler without a length
            length = 0
    return type(loader.dataset).__name__, length, loader.batch_size or getattr(loader.batch_sampler, "batch_size", None) or 0


def _beginning(real):
    def __iter__(self):
        if process.state not in (process.WATCHING, process.CLOCKED):
            return real(self)
        began_ns = _now_ns()
        iterator = real(self)
        if iterator in _of_iterator:  # of persistent workers: the script left its last loop by `break`
            _of_iterator[iterator].end()
        begun = _Pass(_kind(self))
        begun.record["begin_ns"] = began_ns  # workers have started since
        begun.iterator = weakref.ref(iterator, lambda _: begun.end())  # a loop that is left by `break` drops its iterator
        _of_iterator[iterator] = begun
        return iterator

    return __iter__


def _taking(real):
    def __next__(self):
        begun = _of_iterator.get(self)
        if begun is None or begun not in _open:
            return real(self)
        _note_begin()
        if begun.is_enough():
            begun.end(cut=True)
            _end_if_enough()
            raise StopIteration
        try:
            batch = real(self)
        except StopIteration:
            begun.end()
            _end_if_enough()
            raise
        begun.end_inner()
        begun.record["fetched_ns"].append(_now_ns())
        return batch

    return __next__


def _stepped():
    if len(_steps_ns) < _MOST_STEPS:
        _steps_ns.append(_now_ns())
    _note_begin()
    if _passes:  # a loop that is one batch ahead takes its last step after the pass
        of = _open[-1].record if _open else next((one for one in reversed(_passes) if one["steps"]), _passes[-1])
        of["steps"] += 1
    elif _run_s() > _RUN_S * _scale:
        _end()


def note_save(saved):
    if _clock_ns is not None:
        of = _open[0] if _open else None
        _saves.append([_size_bytes(saved, set()), of.number if of else -1, len(of.record["fetched_ns"]) if of else len(_steps_ns)])


def _size_bytes(what, seen):
    """Of the tensors in a checkpoint, each counted once."""
    if id(what) in seen:
        return 0
    seen.add(id(what))
    if isinstance(what, process.torch.Tensor):
        return what.numel() * what.element_size()
    if isinstance(what, dict):
        return sum(_size_bytes(one, seen) for one in what.values())
    if isinstance(what, (list, tuple)):
        return sum(_size_bytes(one, seen) for one in what)
    if isinstance(what, process.torch.nn.Module):
        return sum(_size_bytes(one, seen) for one in (*what.parameters(), *what.buffers()))
    if isinstance(what, process.torch.optim.Optimizer):
        return _size_bytes(dict(what.state), seen)
    return 0


def _end_if_enough():
    trained = sum(one["steps"] > 0 and one["parent"] < 0 for one in _passes)
    named = wanted()["epochs"] or wanted()["steps"]
    if _run_s() > _LONGEST_RUN_S or (named and trained > _ENOUGH_PASSES and _run_s() > _WHOLE_S * _scale):
        _end()


def _end():
    write("enough")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed or replaced by the script
            stream.flush()
    os._exit(0)


def write(how):
    """Once: at the script's end, or when enough was seen."""
    global _written
    if _written or _clock_ns is None or not (_passes or _steps_ns):
        return
    _written = True
    for one in _open:
        one.record["end_ns"] = one.record["end_ns"] or _now_ns()
    session.write("whole_run", {"end": how, "end_ns": _now_ns(), "passes": _passes, "steps_ns": _steps_ns, "saves": _saves})
