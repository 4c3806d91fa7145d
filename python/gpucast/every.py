"""Work that the script does every few steps, `if step % 5 == 0: evaluate()`: whether it is still to come."""

import ast
import collections
import sys

from . import places, script_source

_AFTER = 3  # steps that show what the work leaves
_found = {}  # file -> its work every few steps


def soon(steps, most=None):
    """Whether work of every N steps may not have run in the `steps` so far, for an N up to `most`; None: if it is worth it to wait.

    The functions that run now are read, and nothing of theirs is called."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if places.is_of_user(file):
            if file not in _found:
                _found[file] = script_source.work_every_few(file)
            for work in _found[file]:
                if work.first_line <= frame.f_lineno <= work.last_line:
                    number = _value(work.every, collections.ChainMap(places.variables_of(frame), frame.f_globals))
                    if isinstance(number, int) and 2 <= number <= (work.most if most is None else most) and steps <= number + _AFTER:
                        return True
        frame = frame.f_back
    return False


def _value(node, variables):
    """The value of a constant, of a name, or of an attribute or entry of a plain object; None: unknown."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return variables.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = getattr(_value(node.value, variables), "__dict__", None)
        return owner.get(node.attr) if isinstance(owner, dict) else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        owner = _value(node.value, variables)
        return owner.get(node.slice.value) if type(owner) is dict else None
    return None
