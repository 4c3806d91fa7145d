"""Work that the script does every few steps, `if step % 5 == 0: evaluate()`: whether it is still to come."""

import ast
import sys

from . import places, script_source

_AFTER = 3  # steps that show what the work leaves
_found = {}  # code object -> its blocks of work


def soon(steps, most=None):
    """Whether work of every N steps may not have run in the `steps` so far, for an N up to `most`; None: if it is worth it to wait.

    The functions that run now are read, and nothing of theirs is called."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if places.is_of_user(code.co_filename):
            if code not in _found:
                _found[code] = script_source.work_every_few(code)
            for work in _found[code]:
                if work.first_line <= frame.f_lineno <= work.last_line:
                    number = _value(work.every, _variables(frame))
                    if isinstance(number, int) and 2 <= number <= (work.most if most is None else most) and steps <= number + _AFTER:
                        return True
        frame = frame.f_back
    return False


def _variables(frame):
    names = frame.f_code.co_varnames + frame.f_code.co_freevars + frame.f_code.co_cellvars
    values = frame.f_locals
    if not frame.f_code.co_flags & 1:  # a module's own
        return values
    found = {**frame.f_globals, **{name: values[name] for name in names if name in values}}
    if sys.version_info < (3, 13):
        values.clear()  # a copy: the frame would keep all values alive until it ends
    return found


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
