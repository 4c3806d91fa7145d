"""Counts optimizer steps."""

import sys
import threading
import weakref

from . import patching, places, process, session


def in_backward():
    """Whether this thread is in a backward pass: one of its hooks calls us."""
    running = getattr(process.torch._C, "_current_graph_task_id", None)
    return running is not None and running() != -1


class _Optimizer:
    __slots__ = ("born", "reference", "taken")

    def __init__(self, reference, born):
        self.reference = reference  # weak
        self.born = born  # the rounds before it was made
        self.taken = 0  # steps


class Steps:
    """Counts steps over all optimizers. A round is complete when each optimizer has stepped: one step of the report.

    Where hooks step optimizers in a backward pass, often one for each parameter as soon as its gradient is there, a round is complete
    after the backward pass. Parameters that get no gradient do not delay it."""

    def __init__(self):
        self.rounds = 0
        self.beyond = 0  # the rounds that a run with more steps than the user named must reach
        self._in_backward = 0  # the most steps of an optimizer that stepped in the backward pass that runs now
        self.by_hand = False  # the script has no optimizer, and changes its weights itself
        self._any_taken = False
        self._optimizers = {}  # id -> _Optimizer
        self._stepped = {}  # id -> weak reference to a parameter of the optimizer that stepped last

    def constructed(self, optimizer):
        key = id(optimizer)
        optimizers = self._optimizers
        optimizers[key] = _Optimizer(weakref.ref(optimizer, lambda _: optimizers.pop(key, None)), self.rounds)

    def any(self):
        return bool(self._optimizers)

    def trains(self):
        return self.any() or self.by_hand

    def begin_by_hand(self):
        """The first step without an optimizer."""
        self.by_hand, self.rounds = True, 1
        self._note_first()

    def alive(self):
        return [optimizer for optimizer in (one.reference() for one in list(self._optimizers.values())) if optimizer is not None]

    def count(self, optimizer):
        if id(optimizer) not in self._optimizers:
            self.constructed(optimizer)
        return self._optimizers[id(optimizer)].taken

    def taken(self, optimizer):
        self._note_first()
        count = self.count(optimizer) + 1
        one = self._optimizers[id(optimizer)]
        if count == 1:
            # Two optimizers that were made before the first step may take turns on the same parameters: one step.
            if (self.rounds > 1 or one.born == self.rounds == 1 and self._follows(optimizer)) and self._replaces_all(optimizer):
                count += self.rounds
            self._stepped = {id(parameter): weakref.ref(parameter) for parameter in _parameters(optimizer)}
        one.taken = count
        return count

    def _follows(self, optimizer):
        """Whether `optimizer` has the same parameters as the last optimizer that stepped."""
        own = {id(parameter): parameter for parameter in _parameters(optimizer)}
        return own.keys() == self._stepped.keys() and all(self._stepped[key]() is parameter for key, parameter in own.items())

    def _note_first(self):
        if not self._any_taken:
            self._any_taken = True
            patching.safely(session.write, "stepped")
            patching.safely(process.ranks)  # at the end torch.distributed may no longer know it

    def _replaces_all(self, optimizer):
        """Whether `optimizer` goes on with the parameters of all that stepped before, as after a search for the learning rate."""
        own = {id(parameter) for parameter in _parameters(optimizer)}
        before = [one for one in list(self._optimizers.values()) if one.taken > 0 and one.reference() is not None]
        if not all(any(id(parameter) in own for parameter in _parameters(one.reference())) for one in before):
            return False
        for one in before:
            one.taken = 0
        return True

    def rounds_after(self, taken):
        """The complete rounds after the step number `taken` of an optimizer."""
        if process.job_is_captured() and in_backward():
            self._in_backward = max(self._in_backward, taken)
            return self.rounds
        return self.lowest(patience())

    def rounds_after_backward(self):
        """The same after a backward pass."""
        if not self._in_backward or in_backward():
            return self.rounds
        taken, self._in_backward = self._in_backward, 0
        return taken

    def lowest(self, patience):
        """The fewest steps of any optimizer that takes part. An optimizer without a step takes part if one of its parameters belongs to no
        other (a generator next to its discriminator), until another is more than `patience` steps ahead."""
        counts = [(one.reference(), one.taken) for one in list(self._optimizers.values())]
        stepped = [(optimizer, count) for optimizer, count in counts if optimizer is not None and count > 0]
        if not stepped:
            return 0
        if max(count for _, count in stepped) <= patience:
            owned = {id(parameter) for optimizer, _ in stepped for parameter in _parameters(optimizer)}
            for optimizer, count in counts:
                if optimizer is not None and count == 0 and any(id(parameter) not in owned for parameter in _parameters(optimizer)):
                    return 0
        return min(count for _, count in stepped)

    def far_ahead(self, optimizer):
        """Whether `optimizer` is about to step again although enough was seen, because other optimizers step less often."""
        taken, enough = self.count(optimizer), max(wanted(), self.beyond)
        return taken >= enough and (self.lowest(patience()) >= enough or taken >= patience() * enough)


def _parameters(optimizer):
    return (parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"])


class _Inside(threading.local):
    optimizer = None  # the optimizer that steps now in this thread


counter = Steps()
inside = _Inside()


_UNTIL_END, _AUTO = 0, -1  # same as in src/run/run_session.h
_MOST_BY_ITSELF = 60


def automatic():
    return session.settings()["steps"] == _AUTO


def wanted():
    steps = session.settings()["steps"]
    return {_UNTIL_END: sys.maxsize, _AUTO: _MOST_BY_ITSELF}.get(steps, steps)


def may_go_on():
    """Whether the number of steps is gpucast's own choice, and no other rank here waits for this one."""
    return session.settings().get("may_go_on", False) and process.ranks()["local_world_size"] == 1 and counter.rounds < _MOST_BY_ITSELF


def go_on():
    counter.beyond = counter.rounds + 1


def patience():
    return max(10, session.settings()["steps"])


def constructing(real):
    """Around Optimizer.__init__."""

    def construct(self, *args, **kwargs):
        result = real(self, *args, **kwargs)
        if process.state in (process.WATCHING, process.CLOCKED, process.ARMED):
            try:
                counter.constructed(self)
                places.note("optimizer", self, called=type(self).__name__)
            except Exception as error:
                patching.fail("optimizer", error)
        return result

    return construct
