"""Steps of scripts without an optimizer, which change their weights themselves: each backward pass ends a step there.

Benchmarks and attributions make backward passes and train nothing. So the operators between two passes are observed, and steps count only
where one of them wrote to a tensor that gets a gradient. The earlier of the two passes ended the first step.
"""

import weakref

from . import growth, operators, patching, process, steps, tensors

_MOST_PASSES = 8  # observed without a change of weights

_passes = 0
_first = None  # the place of the last pass's mark: the first step's, if weights change after it
_latest = []  # (weak reference, addresses) of the tensors to which the last pass gives gradients; it may be one that does not count
_weights = []  # the same, of the pass after which operators are observed
_again = []  # the same, of tensors in both: an input is often a new tensor
_replaced = False  # one of them has other memory since


def looks_for_weights():
    """Whether `before_pass` wants to know the weights."""
    return _passes < _MOST_PASSES and not steps.counter.trains() and not steps.in_backward()


def before_pass(weights):
    """`weights`: the tensors to which the pass gives gradients."""
    global _latest, _again, _replaced
    now = {id(weight) for weight in weights}
    _again = [(reference, addresses) for reference, addresses in _weights if id(reference()) in now]
    _replaced = any(_is_replaced(reference(), addresses) for reference, addresses in _again)
    _latest = [(weakref.ref(weight), _addresses(weight)) for weight in weights]


def _addresses(weight):
    return {address for _, address, *_ in tensors.storages(weight)}


def _is_replaced(weight, addresses):
    now = _addresses(weight)
    return bool(now and addresses and now != addresses)


def rounds_after_pass(counter):
    """The complete steps, after a backward pass of a script without an optimizer."""
    ends_step = not steps.in_backward() and (counter.by_hand or _changed_weights())
    return counter.rounds + 1 if ends_step else counter.rounds


@patching.guard("hand_steps")
def _changed_weights():
    """Whether the script changed the weights between the last two passes. Then the first step is counted."""
    global _passes, _first, _weights
    if _passes >= _MOST_PASSES:
        return False
    _passes += 1
    recorder = process.recorder
    if _first is not None and operators.end_after_pass(_are_written):
        sequence, position, time_us, _, *rest = recorder.marks[_first]
        recorder.marks[_first] = (sequence, position, time_us, "step", *rest)
        steps.counter.begin_by_hand()
        return True
    growth.forget_steps()
    operators.forget_steps()
    _first = len(recorder.marks)
    recorder.mark("backward_pass", 1, detail=process.issuing_cpu_ns() // 1000)
    growth.note_step()
    operators.note_step(1)
    operators.begin_after_pass()
    _weights = _latest
    return False


def _are_written(written):
    """`written`: the addresses of tensors to which operators wrote in place."""
    return _replaced or any(addresses & written for _, addresses in _again)
