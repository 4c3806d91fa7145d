"""A Python that has imported PyTorch (and torch._dynamo) once and forks a child for each job of `gpucast batch`.

Started by the batch as `PYTHON [flags] fork_server.py SOCKET` under the environment of its jobs. It imports torch with our libraries
in place and never touches CUDA. For each job it forks two processes, and nothing of the job depends on the server after that:

    supervisor   becomes `gpucast run --adopt SCRIPT,PIPE ...`, a child of the batch like every other run
    script       waits at the pipe for its environment, then runs the user's script like a fresh Python

Scripts report the large libraries that they had imported before their first use of CUDA; the server imports these, too, for later scripts.

Three things of the server remain in the script: the frame below `__main__`'s (removed from tracebacks), modules that torch imported,
and finders. torch itself is not in sys.modules until the script imports it. The same holds for all modules that torch._dynamo and these
libraries brought.

Nothing is frozen (gc.freeze) and nothing collected between the import and the fork: the amount of garbage that Python remembers decides when
tensors in reference cycles are freed, and must be the same as in a fresh process.
"""

import atexit
import contextlib
import gc
import os
import sys

_is_finished = False  # the script's last line has run


def _skip_finalization():
    """Runs after all handlers of the script. All is known, and to take Python and PyTorch apart would take a second. What the script wrote to open
    files must not be lost, and its objects end as they would. Where it called sys.exit, its status is not known here."""
    if _is_finished:
        vars(sys.modules["__main__"]).clear()
        ending.leave(0)
    elif ending.exception and ending.exception[0] != "KeyboardInterrupt":
        ending.leave(1)


if atexit._ncallbacks() == 0:  # others that were registered before would not run
    atexit.register(_skip_finalization)


class _Import:
    """An import in the server. Keeps the requested names (found or not), the modules it loaded, its changes to the environment
    (name -> value or None), and its additions to sys.path and sys.meta_path (removed again)."""

    def __init__(self):
        self.requested = set()

    def __enter__(self):
        self._before = set(sys.modules), dict(os.environ), list(sys.path), list(sys.meta_path)
        sys.meta_path.insert(0, self)
        return self

    def find_spec(self, name, path=None, target=None):
        self.requested.add(name.partition(".")[0])

    def __exit__(self, *_):
        sys.meta_path.remove(self)
        modules, environment, path, meta_path = self._before
        self.modules = [name for name in sys.modules if name not in modules]
        after = dict(os.environ)
        self.environment = {name: after.get(name) for name in {*environment, *after} if after.get(name) != environment.get(name)}
        self.path = [entry for entry in sys.path if entry not in path]
        self.meta_path = [finder for finder in sys.meta_path if finder not in meta_path]
        sys.path[:], sys.meta_path[:] = path, meta_path

    def leave_out(self, other):
        """Adds the effects of another import."""
        self.modules = [name for name in self.modules if name not in other.modules]
        self.path = [entry for entry in self.path if entry not in other.path]
        self.meta_path = [finder for finder in self.meta_path if finder not in other.meta_path]


_OF_MAIN = [name for name in list(globals()) if name.startswith("__")]  # the names that this Python defines in a script's module
_batch = os.getppid()
_path_0 = [] if getattr(sys.flags, "safe_path", False) else [sys.path.pop(0)]
with _Import() as _torch_import:
    import torch

import tempfile  # noqa: E402

from _gpucast import session  # noqa: E402

tempfile.tempdir = session.FOLDER  # removed with the server: an import in torch.distributed makes a folder
with contextlib.suppress(Exception), _Import() as _dynamo_import:  # if the import fails, it will fail in the script
    import torch._dynamo  # the script's first optimizer would import it: it takes the same time as torch
tempfile.tempdir = None

gc.disable()  # until a script runs

import ctypes  # noqa: E402
import importlib  # noqa: E402
import io  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import time  # noqa: E402
import types  # noqa: E402
from importlib.machinery import BuiltinImporter, ModuleSpec, SourceFileLoader  # noqa: E402

from _gpucast import ending, importhook, process  # noqa: E402

_PR_SET_PDEATHSIG = 1
_MAX_FDS = 4
_LIBRARIES = ("torchvision", "transformers", "timm", "diffusers", "peft")  # importing one takes the same time as a small model's steps
_libc = ctypes.PyDLL(None)
_imports = []  # whatever the server has imported


# ---- the server ----------------------------------------------------------------------------------------------------------------


class Request:
    """A job from the batch: items of one letter and a value, each ended by a NUL, in a memory file."""

    def __init__(self, data):
        items = {}
        for item in data.split(b"\0")[:-1]:
            items.setdefault(item[:1], []).append(item[1:])
        self.run = items[b"R"]  # gpucast run ... --, and the command
        self.options_end = int(items[b"O"][0])  # number of its words before "--"
        self.environment = dict(entry.split(b"=", 1) for entry in items[b"E"])
        self.folder = items[b"F"][0]
        self.kind = items[b"K"][0].decode()  # script, module or code
        self.subject = os.fsdecode(items[b"S"][0])
        self.words = [os.fsdecode(word) for word in items[b"W"]]  # the command as typed
        self.arguments = [os.fsdecode(word) for word in items.get(b"A", ())]  # the words after the subject


def why_not():
    """The reason why jobs cannot be forked here; None: they can."""
    if process.state != process.WATCHING:
        return "PyTorch was imported without gpucast's hooks, or cannot be captured"
    if torch.cuda.is_initialized():
        return "CUDA is in use right after `import torch`"
    child = os.fork()  # NumPy's OpenBLAS ends its threads at the first fork
    if child == 0:
        os._exit(torch.cuda._is_in_bad_fork())
    if os.waitpid(child, 0)[1]:
        return "an import used CUDA, and a fork could not use it any more"
    threads = len(os.listdir("/proc/self/task"))
    return f"{threads} threads run right after `import torch`" if threads > 1 else None


def shadowed(folder):
    """A name in the script's folder that a fresh process would have found instead of a module that is already here."""
    known = set().union(*(one.requested for one in _imports)) | {name.partition(".")[0] for name in sys.modules}
    for entry in os.scandir(folder):
        name, dot, suffix = entry.name.partition(".")
        if name not in known:
            continue
        if suffix in ("py", "pyc") or suffix.endswith("so") or not dot and os.path.exists(os.path.join(entry.path, "__init__.py")):
            return entry.name
    return None


def folder_of(request):
    """A fresh Python's first entry of sys.path, as an absolute path."""
    if request.kind == "script":
        return os.path.dirname(os.path.realpath(os.path.join(os.fsdecode(request.folder), request.subject)))
    return os.path.abspath(os.fsdecode(request.folder))


def serve(channel, finders, news):
    """Returns in the script's process, with its request and the pipe where it waits. Ends the server when the batch is gone."""
    reason = None
    while True:
        message, fds, _, _ = socket.recv_fds(channel, 16, _MAX_FDS)
        if not message:
            _leave()
        request_fd, result, log, answer = fds
        with io.FileIO(request_fd) as file:
            file.seek(0)
            request = Request(file.readall())
        names = news.read()
        if names:
            finders.insert(0, import_libraries(names, finders))
            reason = why_not()
        try:
            name = reason or shadowed(folder_of(request))
        except OSError as error:
            name = error.strerror
        if name:
            os.write(answer, b"fresh\n")
        else:
            between = os.fork()
            if between == 0:
                pipe = _fork_supervisor_and_script(channel, request, result, log, answer)
                return request, pipe
            os.waitpid(between, 0)
        for fd in (result, log, answer):
            os.close(fd)


class News:
    """Modules of _LIBRARIES that scripts had imported before their first use of CUDA: names in that order, a file for each script. Later imports
    are left to the scripts: the moments of Python's garbage collection must not depend on the server (capture.arm)."""

    def __init__(self):
        self._folder = os.path.join(session.FOLDER, "news")
        self._known = set()
        os.mkdir(self._folder)

    def tell(self):
        """Called in a script's process."""
        # A module that uses CUDA while it is imported, as PEFT does with torchao, is left to the scripts: no server could fork after that.
        names = [name for name in list(sys.modules) if name.partition(".")[0] in _LIBRARIES and not _is_being_imported(name)]
        with contextlib.suppress(OSError):  # the server is gone
            if not self._known.issuperset(names):
                whole = os.path.join(self._folder, str(os.getpid()))
                with open(whole + ".part", "w") as file:
                    file.write("\n".join(names))
                os.replace(whole + ".part", whole)

    def read(self):
        """Called in the server: returns the new names."""
        told = []
        for entry in os.scandir(self._folder):
            if not entry.name.endswith(".part"):
                with open(entry.path) as file:
                    told += file.read().split("\n")
                os.unlink(entry.path)
        fresh = [name for name in dict.fromkeys(told) if name not in self._known]
        self._known.update(fresh)
        return fresh


def _is_being_imported(name):
    """The module, or a package that contains it."""
    while name:
        if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
            return True
        name = name.rpartition(".")[0]
    return False


def import_libraries(names, finders):
    """Imports these modules in the server and hides all modules that they brought. Returns the finder that undoes this. `finders`: the finders of
    earlier imports, torch's last."""
    packages = {name.partition(".")[0] for name in sys.modules}
    with open("/proc/self/fd/2", errors="replace") as log:
        log.seek(0, os.SEEK_END)
        finders[-1].show()
        sys.meta_path[1:1] = finders[:-1]
        gc.enable()  # the same as when a script imports them
        with _Import() as imported:
            for name in names:
                with contextlib.suppress(Exception):  # the script gets the same error
                    importlib.import_module(name)
        gc.disable()
        printed = log.read()
    needed = [finder for finder in finders if finder.shown()]
    for finder in needed:
        imported.leave_out(finder.imported)
        finder.hide()
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in finders]
    vars(torch).pop("_dynamo", None)
    packages.update(("_gpucast", *getattr(sys, "stdlib_module_names", ())))
    hidden = [name for name in imported.modules if name.partition(".")[0] not in packages]
    return _Imported(names[0], imported, hidden, printed, [finder.name for finder in reversed(needed)])


def _leave():
    import shutil

    shutil.rmtree(session.FOLDER, ignore_errors=True)
    os._exit(0)


def _fork_supervisor_and_script(channel, request, result, log, answer):
    """Makes two processes that are not the server's children. Returns in the script's process."""
    between = os.getpid()
    if os.fork() != 0:
        os._exit(0)  # the batch is the subreaper: it is the supervisor's parent now
    while os.getppid() == between:
        time.sleep(0.0002)
    # No run may outlive a killed batch; on this signal a run cleans up.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != _batch:
        os._exit(1)
    os.dup2(log, 2)
    os.dup2(log, 1)
    os.chdir(request.folder)
    reader, writer = os.pipe()
    supervisor = os.getpid()
    script = os.fork()
    if script == 0:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        channel.close()
        for fd in (result, log, answer, writer):
            os.close(fd)
        return reader
    os.dup2(result, 1)
    os.set_inheritable(writer, True)
    os.write(answer, b"%d\n" % supervisor)
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # an ignored signal would stay ignored
        signal.signal(number, signal.SIG_DFL)
    adopt = b"--adopt=%d,%d" % (script, writer)
    words = request.run[: request.options_end] + [adopt] + request.run[request.options_end :]
    try:
        os.execve(words[0], words, request.environment)
    finally:
        os._exit(127)
    return None


# ---- the script's process --------------------------------------------------------------------------------------------------------


class _Imported:
    """Finds packages for the script, directly after importhook's finder: restores the modules that an import in the server loaded."""

    def __init__(self, name, imported, hidden, printed="", needed=()):
        """Hides these modules until the script imports one of them; then all are there, with all effects of their import. `name`: the module that
        brings them; `needed`: names that must be imported before."""
        self.name = name
        self.imported = imported
        self._modules = {name: sys.modules[name] for name in hidden if name in sys.modules}
        self._specs = {name: module.__spec__ for name, module in self._modules.items() if getattr(module, "__spec__", None)}
        self._printed = printed
        self._needed = needed
        self.hide()

    def hide(self):
        for name in self._modules:
            sys.modules.pop(name, None)

    def show(self):
        sys.modules.update(self._modules)

    def shown(self):
        return self.name in sys.modules

    def find_spec(self, name, path=None, target=None):
        known = self._specs.get(name)
        if known is None:
            return None
        spec = ModuleSpec(name, self, origin=known.origin, is_package=known.submodule_search_locations is not None)
        spec.submodule_search_locations = known.submodule_search_locations
        spec.has_location = True
        return spec

    def create_module(self, spec):
        change_environment(self.imported.environment)  # now: importhook is next and sets its own variables again
        return self._modules[spec.name]

    def exec_module(self, module):
        name = module.__spec__.name
        module.__spec__ = self._specs[name]
        for needed in self._needed:
            importlib.import_module(needed)
        self.show()
        sys.meta_path.remove(self)
        sys.path.extend(self.imported.path)
        sys.meta_path.extend(self.imported.meta_path)
        for folder in self.imported.path:  # another child may have removed it at its end
            os.makedirs(folder, exist_ok=True)
        if self._printed:
            sys.stderr.write(self._printed)


def change_environment(changes):
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def take_environment(pipe):
    """Replaces the server's environment by the supervisor's."""
    with io.FileIO(pipe) as file:
        data = file.readall()
    entries = data.split(b"\0")
    if entries[-1] != b"end":  # the supervisor has died
        os._exit(1)
    wanted = {os.fsdecode(name): os.fsdecode(value) for name, value in (entry.split(b"=", 1) for entry in entries[:-1])}
    change_environment({name: wanted.get(name) for name in {*os.environ, *wanted} if os.environ.get(name) != wanted.get(name)})


def become(request, finders, interruptible):
    """This process is a fresh Python that is about to run the script. Returns the code to run, None for a module."""
    session.enter(os.environ["GPUCAST_SESSION"])
    process.state = None
    importhook.announce()
    sys.meta_path[1:1] = finders
    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.default_generator.seed()  # a new seed in each process, like the other generators; Python's own random module reseeds itself
    numpy_random = sys.modules.get("numpy.random.mtrand")
    if numpy_random is not None:
        numpy_random.seed()
    sys.orig_argv = list(request.words)
    if _path_0:
        sys.path.insert(0, "" if request.kind == "code" else folder_of(request))
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    given = {"__annotations__": {}, "__builtins__": __builtins__, "__file__": None, "__cached__": None, "__loader__": BuiltinImporter}
    main.__dict__.update({name: given[name] for name in _OF_MAIN if name in given})
    sys.argv = [{"module": "-m", "code": "-c"}.get(request.kind, request.subject), *request.arguments]
    if request.kind != "script":
        main.__dict__.pop("__file__", None)
        main.__dict__.pop("__cached__", None)
    if request.kind == "module":
        return None
    if request.kind == "code":
        return compile(request.subject, "<string>", "exec", dont_inherit=True)
    path = os.path.join(os.getcwd(), request.subject)
    main.__file__ = path
    main.__loader__ = SourceFileLoader("__main__", path)
    with open(path, "rb") as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


def hide_torch(printed):
    """Restores the state before torch and torch._dynamo were imported. Returns the finders that undo this."""
    vars(torch).pop("_dynamo", None)
    _imports.extend((_dynamo_import, _torch_import))
    of_dynamo = _Imported("torch._dynamo", _dynamo_import, _dynamo_import.modules)
    of_torch = _Imported("torch", _torch_import, [name for name in sys.modules if name.partition(".")[0] == "torch"], printed)
    return [of_dynamo, of_torch]


def without_our_frames(hook):
    """The hook that prints the script's last exception sees only the script's frames."""

    def excepthook(kind, value, traceback):
        sys.excepthook = hook
        while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
            traceback = traceback.tb_next
        value.__traceback__ = sys.last_traceback = traceback
        hook(kind, value, traceback)

    return excepthook


def main():
    """The server. Returns in a script's process: the code to run."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    with open("/proc/self/fd/2", errors="replace") as file:
        printed = file.read()
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:  # the batch handles Ctrl-C
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    reason = why_not()
    channel.send(b"ready" if reason is None else os.fsencode(reason))
    finders, news = hide_torch(printed), News()
    process.when_armed = news.tell
    request, pipe = serve(channel, finders, news)
    take_environment(pipe)
    return request, finders, interruptible


_job = main()
try:
    _code = become(*_job)
    gc.enable()
    if _code is None:
        import runpy

        runpy._run_module_as_main(_job[0].subject)
    else:
        exec(_code, sys.modules["__main__"].__dict__)
    _is_finished = True
except SystemExit:
    raise
except BaseException:
    sys.excepthook = without_our_frames(sys.excepthook)
    raise
