"""`gpucast time --run`: the script runs to its end on the card's clock, with fewer batches. The times of its passes and steps become a
record, and src/job/whole_run.cc computes the time of the whole training.

A DataLoader's pass ends early, and its whole length is in the record. Passes that come again end after a few batches, so a training of many
epochs runs in a minute or two. All times are of the card's clock (clock.py), in nanoseconds since the process began.

transformers' Trainer evaluates and saves after numbers of steps that a shortened run may not reach: it does each once after the first pass
that was cut, and how often it would do them is in the record. Lightning validates at the end of a pass only if it has counted all its
batches: a cut pass counts as whole there.
"""

import contextlib
import copy
import os
import sys
import time
import weakref

from . import patching, process, session, steps

_LEAST = 12  # batches of a first pass that is cut
_LEAST_AGAIN = 3  # of a pass like an earlier one
_PASS_S, _INNER_PASS_S = 20, 6  # a first pass is cut after this long; a pass inside of another one
_PATIENCE = 3  # a first pass may take this number of times as long, until an evaluation in it has come a second time
_WHOLE_S = 30  # passes that come again are whole until the run has taken this long
_RUN_S = 90  # then a script without passes is ended
_LONGEST_RUN_S = 300  # and any other
_ENOUGH_PASSES = 2  # of training, where the user says how many epochs or steps there are
_MOST_STEPS = 200_000
_MOST_COUNTED_STEPS = 1_000_000  # of a Trainer

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
exception = None  # the exception that ended the script, as text: "ValueError: no"
_trainer = None  # the transformers.Trainer that trains now, or did
_trainings = 0  # of Trainers
_in_trainer = False
_call = 0  # the evaluations that the Trainer has begun; its passes have their number. 0: outside of them
_calls = 0
_saved = False  # by the Trainer
_times = 1  # a validation that stands for this number of them, between batches of a pass that was cut


class _Pass:
    def __init__(self, kind):
        self.kind, self.length = kind, kind[1]
        self.began_s = _real_s()
        self.record = {
            "dataset": kind[0], "length": kind[1], "batch_size": kind[2], "again": kind in _seen,
            "parent": _open[-1].number if _open else -1, "parent_batch": len(_open[-1].record["fetched_ns"]) if _open else 0,
            "begin_ns": _now_ns(), "end_ns": 0, "fetched_ns": [], "steps": 0, "step_batches": [], "cut": False, "call": _call,
            "times": _times,
        }  # fmt: skip
        self.number = len(_passes)
        self.iterator = lambda: None
        self.lightning_ends_it = False
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

    def dropped(self):
        """The script has left the loop by `break`, and now its iterator is gone. What goes on since then, or trained, was not inside."""
        if self not in _open:
            return
        place = {name: self.record[name] for name in ("parent", "parent_batch")}
        for inner in _open[_open.index(self) + 1 :]:
            if inner.iterator() is not None:
                inner.record.update(place)
        if not self.record["steps"]:
            for one in _passes[self.number + 1 :]:
                if one["parent"] == self.number and one["steps"] and one["parent_batch"] == len(self.record["fetched_ns"]):
                    one.update(place)
        stay = [inner for inner in _open[_open.index(self) + 1 :] if inner.iterator() is not None]
        for inner in stay:
            _open.remove(inner)
        self.end()
        _open.extend(stay)

    def is_enough(self):
        taken, took_s = len(self.record["fetched_ns"]), _real_s() - self.began_s
        if self.length <= taken:
            return False
        if self.record["again"]:
            # Whether the script goes on counting the batches of a step where the last pass was cut: its next step shows it.
            waits = any(one["steps"] for one in _passes if _same_kind(one, self.record)) and not self.record["steps"]
            least = max(_LEAST if waits else _LEAST_AGAIN, 1 + _left_after(self.record))
            return taken >= least and _run_s() > _WHOLE_S * _scale
        longest_s = _scale * (_PASS_S if self.record["parent"] < 0 else _INNER_PASS_S)
        return taken >= _LEAST and took_s > longest_s and (took_s > _PATIENCE * longest_s or len(self.inner_places()) != 1)

    def inner_places(self):
        """Where passes inside began: a second place shows their period."""
        return {one["parent_batch"] for one in _passes[self.number + 1 :] if one["parent"] == self.number}


def _same_kind(one, other):
    return all(one[name] == other[name] for name in ("dataset", "length", "batch_size"))


def _left_after(like):
    """The batches after which the script itself left an earlier loop over this loader: it may do so again."""
    left = [len(one["fetched_ns"]) for one in _passes if one["end_ns"] and not one["cut"] and _same_kind(one, like)]
    return max((taken for taken in left if taken < like["length"]), default=0)


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
    if wanted()["by_hand"]:
        patching.wrap(torch.optim.Optimizer, "__init__", steps.constructing)
        patching.wrap(torch.autograd, "backward", _differentiating)


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
        begun.iterator = weakref.ref(iterator, lambda _: begun.dropped())
        _of_iterator[iterator] = begun
        return iterator

    return __iter__


def _taking(real):
    def __next__(self):
        begun = _of_iterator.get(self)
        if begun is None or begun not in _open:
            return real(self)
        _note_begin()
        if not begun.lightning_ends_it and begun.is_enough():
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
        of["step_batches"].append(len(of["fetched_ns"]))
    elif _run_s() > _RUN_S * _scale:
        _end()


def _differentiating(real):
    """A script without an optimizer, which the capture saw changing its weights itself: hand_steps has the same definition of a step."""

    def backward(*args, **kwargs):
        inside = steps.in_backward()
        result = real(*args, **kwargs)
        if not inside and not steps.counter.any() and process.state == process.CLOCKED:
            _stepped()
        return result

    return backward


def note_save(saved):
    """The last number: whether it is one of those that the Trainer's schedule counts."""
    if _clock_ns is not None:
        of = _open[0] if _open else None
        place = len(of.record["fetched_ns"]) if of else len(_steps_ns)
        _saves.append([_size_bytes(saved, set()), of.number if of else -1, place, int(_in_trainer and _saves_by_steps())])


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


# ---- transformers' Trainer --------------------------------------------------------------------------------------------------------


def patch(name, module):
    """Right after the import of a library that trains."""
    if name == "transformers.trainer":
        _patch_trainer(module)
    elif name.endswith("training_epoch_loop"):
        _patch_lightning(module)


def _patch_trainer(module):
    patching.wrap(module.Trainer, "train", _training)
    patching.wrap(module.Trainer, "evaluate", _evaluating)
    patching.wrap(module.Trainer, "_maybe_log_save_evaluate", _deciding)


def _training(real):
    def train(self, *args, **kwargs):
        global _trainer, _trainings, _in_trainer
        _trainer, _in_trainer = self, True
        _trainings += 1
        try:
            return real(self, *args, **kwargs)
        finally:
            _in_trainer = False

    return train


def _by_steps(*names):
    """Whether the Trainer does something after a number of steps, by the first of these settings that it has."""
    strategy = next((getattr(_trainer.args, name) for name in names if hasattr(_trainer.args, name)), "no")
    return getattr(strategy, "value", strategy) == "steps"


def _evaluates_by_steps():
    return _by_steps("eval_strategy", "evaluation_strategy")


def _saves_by_steps():
    return _by_steps("save_strategy")


def _evaluating(real):
    def evaluate(self, *args, **kwargs):
        global _call, _calls
        if not _in_trainer or not patching.safely(_evaluates_by_steps):
            return real(self, *args, **kwargs)
        _calls += 1
        _call = _calls
        try:
            return real(self, *args, **kwargs)
        finally:
            _call = 0

    return evaluate


def _deciding(real):
    """What the Trainer would do after more steps than the cut passes have: once."""

    def decide(self, *args, **kwargs):
        if _in_trainer and any(one["cut"] and one["steps"] for one in _passes):
            patching.safely(_force, self.control)
        return real(self, *args, **kwargs)

    return decide


def _force(control):
    control.should_evaluate = control.should_evaluate or (_evaluates_by_steps() and not _calls)
    control.should_save = control.should_save or (_saves_by_steps() and not any(save[3] for save in _saves))


def _schedule():
    """What the Trainer would do in all its steps, by its own rules. {}: not known."""
    if _trainings != 1:
        return {}
    state, args = getattr(_trainer, "state", None), getattr(_trainer, "args", None)
    if state is None or not 0 < state.max_steps <= _MOST_COUNTED_STEPS:
        return {}
    out = {"steps": state.max_steps}
    flow = next((one for one in _trainer.callback_handler.callbacks if type(one).__name__ == "DefaultFlowCallback"), None)
    if flow is None or not (_evaluates_by_steps() or _saves_by_steps()):
        return out
    state, counts = copy.copy(state), {"should_evaluate": 0, "should_save": 0}
    control = type(_trainer.control)()
    for step in range(1, state.max_steps + 1):
        state.global_step = step
        flow.on_step_end(args, state, control)
        for name in counts:
            counts[name] += bool(getattr(control, name))
            setattr(control, name, False)
    if _evaluates_by_steps():
        out["evaluations"] = counts["should_evaluate"]
    if _saves_by_steps():
        out["saves"] = counts["should_save"]
    return out


# ---- Lightning ---------------------------------------------------------------------------------------------------------------------


def _patch_lightning(module):
    """`module`: with the loop over the batches of an epoch."""
    loop = module._TrainingEpochLoop
    patching.wrap(sys.modules[module.__name__.rpartition(".")[0] + ".fetchers"]._DataFetcher, "__next__", _fetching)
    evaluation = sys.modules.get(module.__name__.rpartition(".")[0] + ".evaluation_loop")
    if evaluation is not None:
        patching.wrap(evaluation._EvaluationLoop, "run", _ending_its_passes)
    patching.wrap(loop, "advance", _advancing)
    patching.wrap(loop, "on_advance_end", _after_advance)
    patching.wrap(loop, "_should_check_val_fx", _validating)


def _ending_its_passes(real):
    """Lightning keeps the iterators of an evaluation until the next one."""

    def run(self, *args, **kwargs):
        number = len(_passes)
        try:
            return real(self, *args, **kwargs)
        finally:
            for one in [one for one in _open if one.number >= number]:
                one.end()

    return run


def _advancing(real):
    def advance(self, data_fetcher, *args, **kwargs):
        data_fetcher._gpucast_trains = True
        return real(self, data_fetcher, *args, **kwargs)

    return advance


def _fetching(real):
    """The batch after which a pass of training is cut is the last one that Lightning knows of."""

    def __next__(self):
        batch = real(self)
        if getattr(self, "_gpucast_trains", False) and _open:
            _open[-1].lightning_ends_it = True
            if _open[-1].is_enough():
                _open[-1].ends_here = self.done = True
        return batch

    return __next__


def _validating(real):
    def _should_check_val_fx(self, *args, **kwargs):
        global _times
        begun = next((one for one in _open if getattr(one, "ends_here", False)), None)
        if begun is None:
            return real(self, *args, **kwargs)
        taken = len(begun.record["fetched_ns"])
        begun.end(cut=True)
        validates = real(self, *args, **kwargs)
        every = getattr(self.trainer, "val_check_batch", None) or 0
        if validates or not taken < every <= _MOST_COUNTED_STEPS or not self._should_check_val_epoch():
            return validates
        if any(len(one["fetched_ns"]) >= every for one in _passes if _same_kind(one, begun.record)):
            return False  # an earlier pass shows its validations, and stands for this one
        of_pass = begun.length / every
        _times = of_pass if getattr(self.trainer, "check_val_every_n_epoch", 1) is None else int(of_pass)
        return _times > 0

    return _should_check_val_fx


def _after_advance(real):
    def on_advance_end(self, *args, **kwargs):
        global _times
        try:
            return real(self, *args, **kwargs)
        finally:
            _times = 1
            if not _open:  # the pass was cut after this batch
                _end_if_enough()

    return on_advance_end


# ---- the end -------------------------------------------------------------------------------------------------------------------------


def _end():
    write("enough")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed or replaced by the script
            stream.flush()
    os._exit(0)


def write(how):
    """Once: at the script's end, or when enough was seen."""
    global _written
    if _written or _clock_ns is None or not (_passes or _steps_ns or exception):
        return
    _written = True
    for one in _open:
        one.record["end_ns"] = one.record["end_ns"] or _now_ns()
    end_ns = _now_ns()
    record = {"end": how, "end_ns": end_ns, "passes": _passes, "steps_ns": _steps_ns, "saves": _saves}
    session.write("whole_run", {**record, "exception": exception or "", "schedule": patching.safely(_schedule) or {}})
