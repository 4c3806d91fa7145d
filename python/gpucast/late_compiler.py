"""torch._dynamo is imported when a script uses it, not by the first step of an optimizer: that import is a third of a short run.

PyTorch's optimizers import it to say where compiled code must break, and what it must leave alone. In a script that compiles nothing both do
nothing. So the module is there without its contents until a script uses something else of it."""

import sys
import threading
import types

from . import session

# unittest and pytest look into all modules for the last one.
_GIVEN = frozenset(
    ["__class__", "__dict__", "__doc__", "__file__", "__loader__", "__name__", "__package__", "__spec__", "__warningregistry__"]
)

_lock = threading.RLock()
_executes = []  # one function at most
_left_alone = []  # functions that were given back as they are


class _Late(types.ModuleType):
    def __getattribute__(self, name):
        if name in _GIVEN:
            return types.ModuleType.__getattribute__(self, name)
        caller = sys._getframe(1).f_globals.get("__name__")
        if name == "graph_break" and caller == "torch.optim.optimizer":
            return _nothing
        if name == "disable" and caller == "torch._compile":
            return _as_it_is
        _import(self)
        return getattr(self, name)

    def __setattr__(self, name, value):
        if name not in _GIVEN:
            _import(self)
        types.ModuleType.__setattr__(self, name, value)


def _nothing(*_args, **_kwargs):
    pass


def _as_it_is(function, *_args, **_kwargs):
    _left_alone.append(function)
    return function


def _import(module):
    with _lock:
        if type(module) is not _Late:
            return
        module.__class__ = types.ModuleType
        for function in _left_alone:  # torch/_compile.py keeps what it was given
            vars(function).pop("__dynamo_disable", None)
        _left_alone.clear()
        try:
            _executes.pop()()
        except BaseException:  # as an import that fails
            sys.modules.pop(module.__name__, None)
            vars(sys.modules["torch"]).pop("_dynamo", None)
            raise


def postpone(module, execute):
    """During the import of `module`: `execute()` makes its contents, now or later."""
    if session.mode() in ("run", "clock") and not session.in_fork_server_child:  # the server has imported it
        _executes.append(execute)
        module.__class__ = _Late
    else:
        execute()
