"""How far a run goes: `--steps auto`, and the script's work after the observed steps."""

import fcntl
import json
import os
import sys
import weakref

from . import every, growth, patching, process, session, steps

_SOON = 50  # batches or steps: an evaluation within this number is run
_QUIET = 3  # a peak that has not grown for this many steps counts as the job's, if all steps allocate alike
_QUIET_IF_UNLIKE = 10  # the same if the steps allocate different amounts: batches of many lengths

evaluations = 0  # outermost forwards in eval mode without gradients
_begun = weakref.WeakKeyDictionary()  # DataLoader -> [number of its iterators, the last one]
_trainer = None  # the transformers.Trainer that is training
_steps = []  # for each step so far: peaks, number of allocations until its end
_ready = False


def install(torch):
    from torch.utils.data import DataLoader

    patching.wrap(DataLoader, "__iter__", _beginning)


def _beginning(real):
    def __iter__(self):
        iterator = real(self)
        try:
            count = _begun[self][0] if self in _begun else 0
            _begun[self] = [count + 1, weakref.ref(iterator)]
        except TypeError:  # the script's own class, without weak references
            pass
        return iterator

    return __iter__


def patch_trainer(name, module):
    if name == "transformers.trainer":
        patching.wrap(module.Trainer, "train", _training)


def _training(real):
    def train(self, *args, **kwargs):
        global _trainer
        _trainer = weakref.ref(self)
        return real(self, *args, **kwargs)

    return train


# ---- `--steps auto` --------------------------------------------------------------------------------------------------------------


def seen_enough():
    """Called after a step: may the run end? All ranks end after the same step, because a rank that stops early would block the others."""
    global _ready
    growth.note_step()
    if not steps.automatic():
        return False
    stats = process.torch._C._cuda_memoryStats(process.torch.cuda.current_device())
    peaks = (stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"])
    _steps.append((peaks, stats["allocation"]["all"]["allocated"]))
    _ready = _ready or growth.certain() or _quiet() and not _comes_soon()
    others = process.ranks()["local_world_size"] - 1
    return steps.counter.rounds >= _agreed_end(others) if others else _ready


def _agreed_end(others):
    """The step after which all ranks end: no rank has passed it when the last of them has seen enough."""
    with open(os.path.join(session.FOLDER, "horizon.json"), "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        agreed = json.loads(file.read() or '{"ranks": {}}')
        agreed["ranks"][str(os.getpid())] = {"steps": steps.counter.rounds, "ready": _ready}
        ranks = agreed["ranks"].values()
        if "end" not in agreed and sum(rank["ready"] for rank in ranks) > others:
            agreed["end"] = max(rank["steps"] for rank in ranks) + 1
        file.truncate(0)
        json.dump(agreed, file)
    return agreed.get("end", sys.maxsize)


def _quiet():
    """Whether nothing grows any more, or what grows is certain."""
    more = growth.wants_more()
    return growth.certain() or _repeats() and not more


def goes_on():
    """Whether a run that was given no number of steps goes on after the usual number, to be certain whether memory grows."""
    if not steps.may_go_on() or not (growth.wants_more() or every.soon(steps.counter.rounds)):
        return False
    steps.go_on()
    return True


def _repeats():
    if len(_steps) <= _QUIET:
        return False
    recent = _steps[-_QUIET - 1 :]
    if recent[0][0] != recent[-1][0]:
        return False
    counts = {after[1] - before[1] for before, after in zip(recent, recent[1:])}
    return len(counts) == 1 or len(_steps) > _QUIET_IF_UNLIKE and _steps[-_QUIET_IF_UNLIKE - 1][0] == _steps[-1][0]


def _comes_soon():
    """Whether the end of the first epoch, or an evaluation at a step known from the script, is close."""
    if evaluations == 0 and (_steps_to_evaluation() or _SOON + 1) <= _SOON:
        return True
    if every.soon(steps.counter.rounds, _SOON):
        return True
    if any(count > 1 for count, _ in _begun.values()):
        return False
    left = [_batches_left(iterator()) for _, iterator in _begun.values()]
    return any(number is not None and number <= _SOON for number in left)


def _batches_left(iterator):
    try:
        return len(iterator) - iterator._num_yielded
    except (TypeError, AttributeError):  # the iterator is gone, or it is a stream without a length
        return None


def _steps_to_evaluation():
    trainer = _trainer and _trainer()
    if _evaluates(trainer) != "steps":
        return None
    every = trainer.args.eval_steps
    if every and every < 1:
        every = int(every * trainer.state.max_steps)
    return every - trainer.state.global_step % every if every else None


def _evaluates(trainer):
    """ "no", "steps" or "epoch"."""
    if trainer is None or getattr(trainer, "eval_dataset", None) is None:
        return "no"
    strategy = getattr(trainer.args, "eval_strategy", None) or getattr(trainer.args, "evaluation_strategy", "no")
    return getattr(strategy, "value", strategy)


# ---- work that did not run -----------------------------------------------------------------------------------------------------------


def warn(loaders):
    """Among all live DataLoaders: an evaluation that the script has prepared and that did not run."""
    unread = [one for one in loaders if one not in _begun]
    read = [one.batch_size or 0 for one in _begun]
    unread = [one for one in unread if evaluations == 0 or (one.batch_size or 0) > max(read, default=0)]
    what = [f"batches of {one.batch_size} from a {type(one.dataset).__name__}" for one in unread if read]
    trainer = _trainer and _trainer()
    if evaluations == 0 and _evaluates(trainer) != "no":
        what.append(f"the Trainer's evaluation, batches of {trainer.args.per_device_eval_batch_size}")
    if what:
        process.recorder.warn(
            "evaluation_not_covered",
            f"the steps that ran do not reach {' and '.join(dict.fromkeys(what))}: the report does not include its memory. "
            "--steps auto includes it if it comes soon, --until-end runs the whole script",
        )
