"""One process's profile on the CPU, for `gpucast profile`: from `import torch` to the trace of the wanted number of optimizer steps.

Armed from the first module or tensor on, not before: the imports of a large library would fill the trace.
"""

import atexit
import os
import platform
import signal
import sys
import threading

from . import checkpoints, ending, libraries, patching, process, profile_cuda, profile_device, profile_marks, session

_SITE_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep

_profile = None  # PyTorch's class
_profiler = None
_thread = None  # the thread with the profiled operators
_deadline_passed = False
_starting = False
_end_lock = threading.Lock()


# ---- import torch ------------------------------------------------------------------------------------------------------------


def before_torch(origin):
    """`origin`: the path of torch/__init__.py, which has not run yet."""
    if process.state is not None or not origin:
        return
    process.state = process.WATCHING
    build = process.build = libraries.TorchBuild(os.path.dirname(origin))
    session.write("torch", {"version": build.version, "cuda": build.cuda, "hip": build.hip, "python": sys.executable})
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # it prints progress lines that are useless here
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # a compiled CPU program would say nothing about a GPU's
    if build.cuda and build.cuda_major in libraries.supported_majors():
        # A CUDA build needs CUDA libraries even to be imported.
        libraries.write_profile(build)
        os.environ["GPUCAST_VGPU_PROFILE"] = session.path("profile")
        libraries.load(build)
    atexit.register(_at_exit)
    os.register_at_fork(after_in_child=_after_fork_in_child)
    ending.watch_for_exceptions()
    ending.watch_for_os_exit(_before_os_exit)


def after_torch(module):
    global _profile
    torch = process.torch = module
    if process.state != process.WATCHING:
        return
    _profile = torch.autograd.profiler.profile
    patching.safely(ending.keep_sockets_in_session)
    _import_what_training_imports()
    try:
        profile_cuda.install(torch)
        profile_device.install(torch, start)
        profile_marks.install(torch, start, end, check_deadline)
    except Exception as error:
        _give_up(error)
    checkpoints.why_unwritten = "a profile trains a few steps only"
    checkpoints.from_the_start = True
    checkpoints.install(torch)


def after_checkpoint_writer(name, module):
    if process.state in (process.WATCHING, process.ARMED):
        checkpoints.patch_writer(name, module)


def after_training_loop(name, module):
    """No run is shortened here."""


def after_large_import():
    """Nothing is compiled here."""


def after_inductor(name, module):
    """Nothing is compiled here."""


def after_triton(name, module):
    """Nothing is compiled here."""


def after_flex_attention(module):
    """Values are real here."""


def after_launcher(name, module):
    """Launchers launch."""


def after_generation(name, module):
    """Values are real here."""


# ---- the start -----------------------------------------------------------------------------------------------------------------


def start():
    """Called at the job's first module or tensor. Tensors that a library makes during its import do not count."""
    global _profiler, _thread, _starting
    if process.state != process.WATCHING or _starting or process.is_data_worker() or _in_an_import():
        return
    _starting = True
    try:
        profiler = _profile(record_shapes=True, profile_memory=True, with_stack=True, use_kineto=True)
        session.write("armed", process.ranks())
        _watch_the_clock()
        _thread = threading.get_ident()
        sys.addaudithook(_keep_code)
        profiler.__enter__()
        _profiler = profiler
        process.state = process.ARMED
        profile_device.watch_this_thread()
    except Exception as error:
        session.remove("armed")
        _give_up(error)
    finally:
        _starting = False


_kept_code = []


def _keep_code(event, args):
    """PyTorch's tracer reads names at the end. Code that is freed by then (a module's top level) is kept here: otherwise the trace would
    have the bytes that happen to be at its address."""
    if event == "exec" and process.state != process.ENDED:
        _kept_code.append(args[0])


def _give_up(error):
    patching.print_traceback_if_debugging()
    message = f"PyTorch {process.build.version} cannot be profiled here: {type(error).__name__}: {error}"
    ending.give_up("cannot_profile", message)


def _import_what_training_imports():
    """The first optimizer imports torch._dynamo: a hundred thousand calls that do not belong in a trace. We import it before we
    replace anything, because it makes a table of PyTorch's functions."""
    try:
        import torch._dynamo  # noqa: F401
    except Exception as error:
        process.recorder.warn("no_dynamo", f"torch._dynamo cannot be imported: {type(error).__name__}: {error}")


def _in_an_import():
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        # A program installed by a package (`torchrun`, `python -m package`) is a module too, but the main one.
        is_import = code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__"
        if is_import and any(part in code.co_filename for part in _SITE_PACKAGES):
            return True
        frame = frame.f_back
    return False


def _watch_the_clock():
    deadline = session.settings().get("deadline_unix_s")
    if not deadline or threading.current_thread() is not threading.main_thread():
        return
    import time

    def ring(number, frame):
        global _deadline_passed
        _deadline_passed = True
        check_deadline()

    if signal.getsignal(signal.SIGALRM) == signal.SIG_DFL:
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, max(0.001, deadline - time.time()))


def check_deadline():
    if _deadline_passed and threading.get_ident() == _thread:
        end("timeout")


# ---- the end -------------------------------------------------------------------------------------------------------------------


def end(reason, exit_code=0):
    """Writes the trace. Does not return for `steps` and `timeout`: the process stands still until it is killed."""
    with _end_lock:
        if process.state != process.ARMED:
            return
        process.state = process.ENDED
    ending.finish("trace", _write, reason, exit_code)
    if reason in ("steps", "timeout"):
        ending.hold()
    ending.wait_for_go()


def _write(reason, exit_code):
    if threading.get_ident() != _thread:
        raise RuntimeError("the optimizer's steps and the job's first module or tensor are in different threads")
    add_metadata = process.torch.autograd._add_metadata_json
    for name in ("profile_memory", "with_stack", "record_shapes"):  # like torch.profiler.profile
        add_metadata(name, "1")
    _profiler.__exit__(None, None, None)
    _profiler.export_chrome_trace(session.path("trace"))
    ranks = process.ranks()
    record = {
        "schema_version": 1,
        "torch": process.build.version,
        "python": platform.python_version(),
        "argv": list(getattr(sys, "argv", [])),
        "rank": ranks["rank"],
        "world_size": ranks["world_size"],
        "end_reason": reason,
        "exit_code": exit_code,
        "asked_device": profile_device.asked_device(),
        **profile_marks.record(),
        "warnings": [{"code": code, "message": message} for code, message in process.recorder.warnings],
    }
    session.write("history", record)


def _at_exit():
    if process.state != process.ARMED:
        return
    ending.read_last_exception()
    if not profile_marks.anything_ran():
        # It only made a tensor or two (a check in a shell script): not the job.
        process.state = process.OFF
        if threading.get_ident() == _thread:
            _profiler.__exit__(None, None, None)
        session.remove("armed")
        session.write("idle")
        return
    end("exception" if ending.exception else "script_end", exit_code=1 if ending.exception else 0)


def _before_os_exit(status):
    if process.state == process.ARMED and profile_marks.anything_ran():
        end("script_end", exit_code=status)


def _after_fork_in_child():
    global _end_lock
    _end_lock = threading.Lock()
    if process.state == process.ARMED:
        sys.setprofile(None)  # the profiler's stack tracer would go on uselessly in a DataLoader worker
    if process.state != process.WATCHING:
        process.state = process.OFF
