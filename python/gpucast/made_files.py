"""A run that leaves no files. The script's Pythons write a journal of the files and folders that they make, and the supervisor undoes it
(src/run/made_files.cc). What the script removes stays removed. Caches stay, too: the next start would only fill them again.

A record is one letter and paths, each with a NUL at its end:

    F path          a new file
    D path          a new folder
    L path length   a file that is appended to, and its length before
    K path copy     a small file that is written over, and the name of its copy in the session
    R from to       moved
"""

import itertools
import os
import sys

from . import session

JOURNAL, _COPIES = "made_files", "kept"
_MOST_KEPT_BYTES, _MOST_ALL_KEPT_BYTES = 1 << 20, 64 << 20  # of one file, of all

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_journal = None
_noted = set()  # paths that need no second record
_kept_bytes = 0
_copies = itertools.count()
_busy = False  # what is opened now is ours
_ours = ()  # folders that are not the script's


def install():
    """At the start of each Python, before the script opens a file. Audit events (PEP 578) come before the call that they describe."""
    global _journal, _ours
    home = os.path.expanduser("~")
    caches = (os.environ.get(name) for name in ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME"))
    _ours = ("/dev/", "/proc/", "/sys/", os.path.join(session.FOLDER, ""), os.path.join(home, "."), *(f"{one}/" for one in caches if one))
    _journal = os.open(os.path.join(session.FOLDER, JOURNAL), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.addaudithook(_before_event)


def note(path):
    """PyTorch's own code is about to write this file."""
    _guarded(lambda: _opening(path, None, os.O_CREAT | os.O_TRUNC | os.O_WRONLY))


def _before_event(event, arguments):
    act = _EVENTS.get(event)
    if act is not None and not _busy:
        _guarded(lambda: act(*arguments))


def _guarded(act):
    global _busy
    if _journal is None or _busy:
        return
    _busy = True
    try:
        act()
    except (OSError, TypeError, ValueError):  # the script's own call says what is wrong with the path
        pass
    finally:
        _busy = False


def _write(letter, *fields):
    os.write(_journal, b"".join(os.fsencode(field) + b"\0" for field in (letter, *fields)))


def _script_path(path, folder=None):
    """The whole path; None: not the script's file."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return None
    path = os.fsdecode(path)
    if isinstance(folder, int) and folder >= 0 and not path.startswith("/"):
        path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
    path = os.path.abspath(path)
    return None if path.startswith(_ours) or "cache" in path.lower() else path


def _note_new(letter, path):
    if path is not None and not os.path.lexists(path):
        _noted.add(path)
        _write(letter, path)


def _opening(path, _mode, flags):
    if not isinstance(flags, int) or not flags & _WRITING:
        return
    path = _script_path(path)
    if path is None or path in _noted:
        return
    try:
        status = os.stat(path)
    except FileNotFoundError:
        _note_new("F", path)
        return
    if not os.path.isfile(path):
        return
    _noted.add(path)
    if flags & os.O_APPEND:
        _write("L", path, str(status.st_size))
    else:
        _keep(path)


def _keep(path):
    global _kept_bytes
    size = os.stat(path).st_size
    if size > _MOST_KEPT_BYTES or _kept_bytes + size > _MOST_ALL_KEPT_BYTES:
        return False
    _kept_bytes += size
    name = f"{_COPIES}.{os.getpid()}.{next(_copies)}"
    with open(path, "rb") as file, open(os.path.join(session.FOLDER, name), "wb") as copy:
        copy.write(file.read())
    _write("K", path, name)
    return True


def _moving(source, target, source_folder=None, target_folder=None):
    source, target = _script_path(source, source_folder), _script_path(target, target_folder)
    if source is None or target is None:
        return
    if os.path.lexists(target) and (os.path.isdir(target) or not _keep(target)):
        return
    _write("R", source, target)
    _noted.discard(source)


def _making_folder(path, _mode=None, folder=None):
    _note_new("D", _script_path(path, folder))


def _linking(_source, target, *folders):
    _note_new("F", _script_path(target, folders[-1] if folders else None))


def _opening_database(path):
    path = _script_path(path)
    if path is not None and not os.path.exists(path):
        for suffix in ("", "-journal", "-wal", "-shm"):
            _note_new("F", path + suffix)


_EVENTS = {
    "open": _opening,
    "os.mkdir": _making_folder,
    "os.rename": _moving,
    "os.link": _linking,
    "os.symlink": _linking,
    "sqlite3.connect": _opening_database,
}
