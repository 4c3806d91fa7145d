"""One process's profile on the CPU, for `gpucast profile`: from `import torch` to the trace of the wanted number of optimizer steps.

    watching   torch is being imported or is there; nothing of the job was made yet
    armed      the profiler runs (from the first module or tensor on, not before: the imports of a large library would fill the trace)
    ended      the trace is written

The states are those of `capture`, so that what it shares with us (saving no checkpoints, exceptions) works here too.
"""

import atexit
import os
import platform
import signal
import sys
import threading

from . import capture, hooks, libraries, profile_cuda, profile_device, profile_marks, session

_SITE_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep

torch = None
_profile = None  # PyTorch's class
_profiler = None
_thread = None  # whose operators are profiled
_deadline_passed = False
_starting = False
_end_lock = threading.Lock()


# ---- import torch ------------------------------------------------------------------------------------------------------------


def before_torch(origin):
    """`origin`: the path of torch/__init__.py, which has not run yet."""
    if capture.state is not None or not origin:
        return
    capture.state = capture.WATCHING
    build = capture.build = libraries.TorchBuild(os.path.dirname(origin))
    session.write("torch", {"version": build.version, "cuda": build.cuda, "hip": build.hip, "python": sys.executable})
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # its progress lines are of no use to anybody here
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # a compiled CPU program would say nothing about a GPU's
    if build.cuda and build.cuda_major in libraries.supported_majors():
        # A CUDA build needs CUDA libraries even to be imported.
        capture.profile = libraries.write_profile(build)
        os.environ["GPUCAST_VGPU_PROFILE"] = session.path("profile")
        libraries.load(build.cuda_major)
    atexit.register(_at_exit)
    os.register_at_fork(after_in_child=_after_fork_in_child)
    capture._watch_for_exceptions()
    _watch_for_os_exit()


def after_torch(module):
    global torch, _profile
    torch = module
    if capture.state != capture.WATCHING:
        return
    _profile = torch.autograd.profiler.profile
    _import_what_training_imports()
    try:
        for part in (profile_cuda, profile_device, profile_marks):
            part.install(torch)
    except Exception as error:
        _give_up(error)
    hooks.why_unwritten = "a profile trains a few steps only"
    for owner, name in ((torch, "save"), (torch.jit, "save")):
        hooks._wrap(owner, name, hooks._not_saving)


def after_checkpoint_writer(name, module):
    if capture.state in (capture.WATCHING, capture.ARMED):
        hooks.patch_checkpoint_writer(name, module)


# ---- the start -----------------------------------------------------------------------------------------------------------------


def start():
    """At the first module or tensor that the job makes. What a library makes while it is imported is not the job's."""
    global _profiler, _thread, _starting
    if capture.state != capture.WATCHING or _starting or capture._is_data_worker() or _in_an_import():
        return
    _starting = True
    try:
        profiler = _profile(record_shapes=True, profile_memory=True, with_stack=True, use_kineto=True)
        rank, local_rank, world_size = capture._ranks()
        local_world_size = capture._env_int("LOCAL_WORLD_SIZE", 1)
        session.write("armed", {"rank": rank, "local_rank": local_rank, "world_size": world_size, "local_world_size": local_world_size})
        _watch_the_clock()
        _thread = threading.get_ident()
        sys.addaudithook(_keep_code)
        profiler.__enter__()
        _profiler = profiler
        capture.state = capture.ARMED
        profile_device.watch_this_thread()
    except Exception as error:
        session.remove("armed")
        _give_up(error)
    finally:
        _starting = False


_kept_code = []


def _keep_code(event, args):
    """PyTorch's tracer reads names at the end, also those of code that is gone by then (a module's top level): the trace would hold
    what lies in their place."""
    if event == "exec" and capture.state != capture.ENDED:
        _kept_code.append(args[0])


def _give_up(error):
    if os.environ.get("GPUCAST_DEBUG"):
        import traceback

        traceback.print_exc()
    message = f"PyTorch {capture.build.version} cannot be profiled here: {type(error).__name__}: {error}"
    capture._give_up("cannot_profile", message)


def _import_what_training_imports():
    """Optimizers import torch._dynamo when the first is made: a hundred thousand calls that have no place in a trace. Before we
    replace anything, since it draws up a table of PyTorch's functions."""
    try:
        import torch._dynamo  # noqa: F401
    except Exception as error:
        capture.recorder.warn("no_dynamo", f"torch._dynamo cannot be imported: {type(error).__name__}: {error}")


def _in_an_import():
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        # A program that a package installs (`torchrun`, `python -m package`) is a module too, but the main one.
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
        if capture.state != capture.ARMED:
            return
        capture.state = capture.ENDED
    capture._finish("trace", _write, reason, exit_code)
    if reason in ("steps", "timeout"):
        capture._hold_without_core()
    capture._wait_for_go()


def _write(reason, exit_code):
    if threading.get_ident() != _thread:
        raise RuntimeError("the optimizer steps in another thread than the one that made the first module or tensor")
    add_metadata = torch.autograd._add_metadata_json
    for name in ("profile_memory", "with_stack", "record_shapes"):  # as torch.profiler.profile writes them
        add_metadata(name, "1")
    _profiler.__exit__(None, None, None)
    _profiler.export_chrome_trace(session.path("trace"))
    rank, local_rank, world_size = capture._ranks()
    record = {
        "schema_version": 1,
        "torch": capture.build.version,
        "python": platform.python_version(),
        "argv": list(getattr(sys, "argv", [])),
        "rank": rank,
        "world_size": world_size,
        "end_reason": reason,
        "exit_code": exit_code,
        "asked_device": profile_device.asked_device(),
        **profile_marks.record(),
        "warnings": [{"code": code, "message": message} for code, message in capture.recorder.warnings],
    }
    session.write("history", record)


def _at_exit():
    if capture.state != capture.ARMED:
        return
    capture._read_last_exception()
    if not profile_marks.anything_ran():
        # It only made a tensor or two (a check in a shell script): not the job.
        capture.state = capture.OFF
        if threading.get_ident() == _thread:
            _profiler.__exit__(None, None, None)
        session.remove("armed")
        session.write("idle")
        return
    end("exception" if capture._exception else "script_end", exit_code=1 if capture._exception else 0)


def _watch_for_os_exit():
    real_exit = os._exit

    def _exit(status):
        try:
            if capture.state == capture.ARMED and profile_marks.anything_ran():
                end("script_end", exit_code=status)
        finally:
            real_exit(status)

    os._exit = _exit


def _after_fork_in_child():
    global _end_lock
    _end_lock = threading.Lock()
    if capture.state == capture.ARMED:
        sys.setprofile(None)  # the profiler's stack tracer would go on in a DataLoader worker, for nobody
    if capture.state != capture.WATCHING:
        capture.state = capture.OFF
