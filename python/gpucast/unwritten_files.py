"""Files that stand for unwritten checkpoints until the script ends: real structure and sizes, and holes instead of values.

The script can look for them, read, rename, copy and remove them. None replaces a file that is not one of them.
"""

import contextlib
import os
import shutil
import time

from . import patching, session

_files = {}  # path -> its inode, size and time of change
_older = {}  # the same of the user's files in whose place the script has saved
_process = None  # that made them
_over = False


def install():
    for name in ("rename", "replace"):
        patching.wrap(os, name, _following_moves)
    for name in ("remove", "unlink"):
        patching.wrap(os, name, _keeping_older)
    patching.wrap(shutil, "copyfile", _following_copies)


def stand_for(path, write):
    """`write(path)` makes the file."""
    global _process
    path = os.path.abspath(path)
    if _over:
        return
    if not _may_replace(path):
        _older[path] = _identity(path)
        return
    if _process != os.getpid():
        _files.clear()  # a parent's
        _process = os.getpid()
    with contextlib.suppress(OSError):
        os.remove(path)  # others may be links to it
    began_ns = time.thread_time_ns()
    try:
        write(path)
        _note(path, _identity(path))
    except Exception:  # of the objects that the script saves: a script that does not read the file goes on
        with contextlib.suppress(OSError):
            os.remove(path)
    finally:
        patching.count_as_ours(time.thread_time_ns() - began_ns)


def remove():
    global _over
    _over = True
    if _process == os.getpid():
        for path in list(_files):
            if _is_ours(path):
                with contextlib.suppress(OSError):
                    os.remove(path)
        _files.clear()


def _identity(path):
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _note(path, identity):
    """The supervisor removes the file if this process cannot."""
    _files[path] = identity
    with open(session.path("unwritten"), "ab") as file:
        file.write(b"%d %d %d " % identity + os.fsencode(path) + b"\0")


def _is_ours(path):
    return path in _files and _files[path] == _identity(path)


def _may_replace(path):
    return not os.path.lexists(path) or _is_ours(path)


def _paths(*paths):
    with contextlib.suppress(OSError, TypeError):  # there may be no current folder
        return [os.path.abspath(os.fspath(path)) for path in paths]
    return [None, None]


def _is_older(path):
    return path in _older and _older[path] == _identity(path)


def _keeping_older(real):
    """A script removes its older checkpoints of this run. These files are of another run, so they stay."""

    def remove(path, **kwargs):
        if not (_older and not kwargs and _is_older(_paths(path)[0])):
            real(path, **kwargs)

    return remove


def _following_moves(real):
    def move(src, dst, **kwargs):
        source, target = _paths(src, dst) if (_files or _older) and not kwargs else (None, None)
        if _is_ours(source) and not _may_replace(target):
            _older[target] = _identity(target)
            os.remove(source)
            return
        if _is_older(source):
            return
        real(src, dst, **kwargs)
        if isinstance(source, str):
            for path in [path for path in _files if path == source or path.startswith(source + os.sep)]:
                _note(target + path[len(source) :], _files.pop(path))

    return move


def _following_copies(real):
    def copyfile(src, dst, **kwargs):
        source, target = _paths(src, dst) if _files else (None, None)
        if not _is_ours(source) or source == target:
            return real(src, dst, **kwargs)
        if _may_replace(target):
            with contextlib.suppress(OSError):
                os.remove(target)
            os.link(source, target)  # a copy would fill the holes
            _note(target, _files[source])
        return dst

    return copyfile
