"""Where in the user's files the training does what: the lines that a patch of `gpucast advise --write-patch` changes.

Recorded under what-ifs only. python/patch makes the patch."""

import hashlib
import itertools
import os
import sys
import weakref

from . import patching, process, session

_MOST = 200  # distinct places: of more, a patch is not tried
_PYTORCH, _LIBRARY, _USER = range(3)
_WITHOUT_FILE = ("<string>", "<stdin>")  # python -c, python -

_notes = {}  # (kind, call sites) -> a note
_kinds = {}  # file name of a code object -> whose it is
_details = {}  # name of a what-if -> what a patch must know about it
making_own = False  # a what-if makes an optimizer of its own


@patching.timed
def note(kind, about=None, **facts):
    """This moment's call sites in the user's files. `about`: the model or the optimizer."""
    if process.state not in (process.WATCHING, process.ARMED) or not session.settings().get("what_if") or len(_notes) >= _MOST:
        return
    if making_own or "places" in patching.disabled or process.is_compiling():
        return
    try:
        sites, direct = _sites(sys._getframe(1))
        key = kind, tuple((code, instruction) for code, instruction, _, _ in sites)
        if key in _notes:
            _notes[key]["count"] += 1
            if _notes[key]["about"] is None and about is not None:
                _notes[key]["about"] = weakref.ref(about)
        elif sites:
            about = None if about is None else weakref.ref(about)
            _notes[key] = {"kind": kind, "direct": direct, "count": 1, "sites": sites, "about": about, "facts": facts}
    except Exception as error:
        patching.fail("places", error)


def detail(what_if, **facts):
    _details.setdefault(what_if, {}).update(facts)


def main_file():
    """The script's file, or "". The interpreter deletes `__file__` when the script has ended, but not its loader."""
    main = sys.modules.get("__main__")
    return getattr(main, "__file__", None) or getattr(getattr(main, "__loader__", None), "path", None) or ""


def _sites(frame):
    """[(code, instruction, line, globals)] of the user's frames, the innermost first; whether only PyTorch lies in between."""
    sites, direct = [], True
    while frame is not None:
        code = frame.f_code
        kind = _kind(code.co_filename)
        if kind == _USER:
            sites.append((code, frame.f_lasti, frame.f_lineno, frame.f_globals if code.co_name == "<module>" else None))
        elif kind == _LIBRARY and not sites:
            direct = False
        frame = frame.f_back
    return sites, direct


def is_of_user(name):
    """Whether the file `name` is the user's own."""
    return _kind(name) == _USER


def is_of_python(name):
    """Whether `name` is a file of Python, of PyTorch or of gpucast, or no file."""
    return _kind(name) == _PYTORCH


def _kind(name):
    kind = _kinds.get(name)
    if kind is None:
        kind = _kinds[name] = _kind_of(name)
    return kind


def _kind_of(name):
    if name in _WITHOUT_FILE:
        return _USER
    folder = os.path.dirname
    if name.startswith((folder(process.torch.__file__) + os.sep, folder(os.path.abspath(__file__)) + os.sep)) or name.startswith("<"):
        return _PYTORCH
    if f"{os.sep}site-packages{os.sep}" in name or f"{os.sep}dist-packages{os.sep}" in name:
        return _LIBRARY
    return _PYTORCH if name.startswith(folder(os.__file__) + os.sep) or not os.path.isfile(name) else _USER


def variables_of(frame):
    """The variables of a frame's function, by name. No more than the caller's dict keeps them alive."""
    variables = frame.f_locals
    if not frame.f_code.co_flags & 1 or sys.version_info >= (3, 13):  # a module's own, or a view
        return dict(variables)
    found = dict(variables)
    variables.clear()  # a copy of Python's: the frame would keep all values alive until it ends
    return found


# ---- the record ------------------------------------------------------------------------------------------------------------------


def record():
    """For the capture's process record; {} if nothing was noted."""
    if not _notes:
        return {}
    found = patching.safely(_record)
    return {"places": found} if found else {}


def _record():
    frames = {}  # code -> a frame that runs it now
    for frame in sys._current_frames().values():
        while frame is not None:
            frames.setdefault(frame.f_code, frame)
            frame = frame.f_back
    files = {}
    main = main_file()
    notes = []
    for note in _notes.values():
        about = note["about"] and note["about"]()
        sites = [_site_record(site, frames, about, files) for site in note["sites"]]
        notes.append({**{name: note[name] for name in ("kind", "direct", "count")}, **note["facts"], "about": id(about), "sites": sites})
    return {
        "python": sys.executable,
        "main": _file(main, files) if main else "",
        "files": files,
        "is_complete": len(_notes) < _MOST,
        "notes": notes,
        "what_ifs": {name: dict(facts) for name, facts in _details.items()},
    }


def _site_record(site, frames, about, files):
    code, instruction, line, variables = site
    out = {"file": _file(code.co_filename, files), "function": code.co_name, "first_line": code.co_firstlineno, "line": line}
    if hasattr(code, "co_positions"):  # Python 3.11
        out["span"] = next(itertools.islice(code.co_positions(), instruction // 2, None), None)
    if variables is None and code in frames:
        variables = {**frames[code].f_globals, **frames[code].f_locals}
    out["names"] = _names(variables or {}, about) if about is not None else []
    return out


def _file(name, files):
    if name in _WITHOUT_FILE:
        return name
    path = os.path.abspath(name)
    if path not in files:
        with open(path, "rb") as file:
            files[path] = hashlib.sha256(file.read()).hexdigest()
    return path


def _names(variables, about):
    """[(name, path)]: what the model or a part of it is called here; its path in the model. Of an optimizer the path is ""."""
    module = process.torch.nn.Module
    paths = {id(part): path for path, part in about.named_modules()} if isinstance(about, module) else {id(about): ""}
    out = []
    for name, value in variables.items():
        found = [(name, value)]
        if name == "self":
            inside = {**getattr(value, "__dict__", {}), **(value.__dict__.get("_modules", {}) if isinstance(value, module) else {})}
            found += [(f"self.{attribute}", each) for attribute, each in inside.items()]
        out += [(called, paths[id(each)]) for called, each in found if id(each) in paths and not called.startswith("_")]
    return sorted(out, key=lambda entry: (len(entry[1]), entry[0]))[:16]


def paths_of(modules):
    """(path in the model that ran, type) of each module, for a patch that names them; None if they are not in one model."""
    for note in _notes.values():
        model = note["about"] and note["about"]()
        if note["kind"] != "forward" or model is None:
            continue
        paths = {id(module): path for path, module in model.named_modules()}
        if all(id(module) in paths for module in modules):
            return model, [paths[id(module)] for module in modules]
    return None
