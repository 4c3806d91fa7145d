"""`assert torch.allclose(mine, reference)`: values on the card are not known, so the condition of an `assert` is taken to hold."""

import dis
import functools

_PREFIXES = ("EXTENDED_ARG", "TO_BOOL", "NOT_TAKEN", "CACHE")


def answer(frame):
    """(condition,) with which an `assert` holds, for a read by the instruction at which this frame stands; None: no `assert` reads it."""
    return _answers(frame.f_code).get(frame.f_lasti)


@functools.cache
def _answers(code):
    """Place in the code -> (condition,): from the instruction that makes a condition to the jump around an `assert`'s error."""
    found = {}
    instructions = [one for one in dis.get_instructions(code) if one.opname not in _PREFIXES]
    errors = {one.offset for one in instructions if _is_error(one)}
    for before, jump, after in zip(instructions, instructions[1:], instructions[2:]):
        if jump.opname.endswith(("IF_TRUE", "IF_FALSE")) and (after.offset in errors or jump.argval in errors):
            holds = jump.opname.endswith("IF_TRUE") == (after.offset in errors)
            found |= dict.fromkeys(range(before.offset, jump.offset + 1), (holds,))  # a call's place may be after it
    return found


def _is_error(instruction):
    """Since Python 3.14 the error is a common constant."""
    return instruction.opname == "LOAD_ASSERTION_ERROR" or instruction.argrepr == "AssertionError"
