"""One process's capture: from `import torch` over the first CUDA call to the end.

    watching   torch is being imported or is there, CUDA not used yet
    armed      CUDA in use: the allocator's history is on, marks are made
    ended      the capture is written; nothing is recorded any more

A forked child of an armed process, and DataLoader workers, are off: there our hooks do nothing.
"""

import atexit
import contextlib
import ctypes
import os
import platform
import signal
import sys
import threading
import time

from . import history, hooks, libraries, session, what_if
from .recorder import Recorder

WATCHING, ARMED, ENDED, OFF = "watching", "armed", "ended", "off"
_GO_TIMEOUT_S = 20  # how long a script that has ended by itself waits for the supervisor to stop its other processes

state = None  # OFF until torch is imported
torch = None
build = None
profile = {}
recorder = Recorder()
_core = None
_exception = None  # (type name, first line) of what ended the script
_end_lock = threading.Lock()
_real_exit = os._exit
_real_excepthook = sys.excepthook


def _doctor():
    return session.settings().get("mode") == "doctor"


# ---- import torch ------------------------------------------------------------------------------------------------------------


def before_torch(origin):
    """`origin`: the path of torch/__init__.py, which has not run yet."""
    global state, build, profile, _core
    if state is not None or not origin:
        return
    state = WATCHING
    build = libraries.TorchBuild(os.path.dirname(origin))
    session.write("torch", {"version": build.version, "cuda": build.cuda, "hip": build.hip, "python": sys.executable})
    known = libraries.supported_majors()
    if build.cuda is None:
        kind = "rocm_torch" if build.hip else "cpu_only_torch"
        _give_up(kind, f"PyTorch {build.version} is {'a ROCm' if build.hip else 'a CPU-only'} build")
        return
    if build.cuda_major not in known:
        wanted = " and ".join(map(str, known))
        _give_up("unknown_cuda", f"PyTorch {build.version} is built for CUDA {build.cuda}; gpucast knows CUDA {wanted}")
        return
    profile = libraries.write_profile(build)
    os.environ["GPUCAST_VGPU_PROFILE"] = session.path("profile")
    _choose_the_one_device()
    libraries.load(build.cuda_major)
    _core = libraries.call_core()
    if _doctor():
        return
    # Registered before anything of PyTorch's and the user's, so it runs after all of theirs, while CUDA still works.
    atexit.register(_at_exit)
    os.register_at_fork(after_in_child=_after_fork_in_child)
    _watch_for_exceptions()
    _watch_for_os_exit()


def _choose_the_one_device():
    """The virtual machine has one card, number 0. "" and "-1" (no card at all) stay: the script does not want one."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip()
    if visible not in ("", "0", "-1"):
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        recorder.warn("one_device", f"CUDA_VISIBLE_DEVICES was {visible}: the virtual machine has one card, which was used instead")


def _give_up(code, message):
    global state
    state = OFF
    session.error(code, message, final=not _doctor(), torch=build.version, cuda=build.cuda, python=sys.executable)
    if not _doctor():
        _flush()
        _hold_without_core()


def after_torch(module):
    global torch
    torch = module
    if state != WATCHING or _doctor():
        return
    hooks.install_at_import(torch)
    what_if.install_at_import(torch)
    if torch.cuda.is_initialized():
        arm()
    else:
        torch.cuda._lazy_call(arm)


def after_checkpoint_writer(name, module):
    if state in (WATCHING, ARMED):
        hooks.patch_checkpoint_writer(name, module)


# ---- first CUDA call -----------------------------------------------------------------------------------------------------------


def _is_data_worker():
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def arm():
    """Runs inside PyTorch's own CUDA initialisation, before its first allocation. Must not raise."""
    global state
    if state != WATCHING or _is_data_worker():
        return
    try:
        if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
            raise RuntimeError("PYTORCH_NO_CUDA_MEMORY_CACHING turns it off")
        torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=sys.maxsize)
        recorder.arm(torch._C._cuda_memoryStats, _core.gpucast_vgpu_mark, torch._C._cuda_getDevice())
        hooks.install_at_cuda_start(torch)
        what_if.install_at_cuda_start()
        state = ARMED
        rank, local_rank, world_size = _ranks()
        details = {"rank": rank, "local_rank": local_rank, "world_size": world_size, "local_world_size": _env_int("LOCAL_WORLD_SIZE", 1)}
        session.write("armed", details)
        if session.settings().get("deadline_unix_s"):
            threading.Thread(target=_end_at_deadline, name="gpucast-timeout", daemon=True).start()
    except Exception as error:
        state = OFF
        _give_up("cannot_arm", f"PyTorch {build.version} does not let its allocator be recorded: {type(error).__name__}: {error}")


def _end_at_deadline():
    pid = os.getpid()
    while state == ARMED and os.getpid() == pid:
        left = session.settings()["deadline_unix_s"] - time.time()
        if left <= 0:
            end("timeout")
            return
        time.sleep(min(left, 1.0))


def _env_int(name, default):
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default


def _ranks():
    return _env_int("RANK", 0), _env_int("LOCAL_RANK", 0), _env_int("WORLD_SIZE", 1)


# ---- the end -------------------------------------------------------------------------------------------------------------------


def end(reason, exit_code=0):
    """Writes the capture. Does not return for `steps` and `timeout`: the process stands still until it is killed."""
    global state
    with _end_lock:
        if state != ARMED:
            return
        if reason == "steps" and recorder.position()[0] == 0:
            # Optimizers ask CUDA whether a graph is being captured, also where all parameters are on the CPU.
            state = WATCHING
            end_without_cuda()
        state = ENDED
    _finish("capture", _write_capture, reason, exit_code)
    if reason in ("steps", "timeout"):
        _core.gpucast_vgpu_hold(session.settings()["supervisor_pid"])
    _wait_for_go()


def _finish(what, write, reason, exit_code):
    """Writes with `write(reason, exit_code)`, and tells the supervisor that it is done or why it could not be."""
    _flush()
    try:
        write(reason, exit_code)
        name, text = _exception or (None, None)
        session.write("done", {"reason": reason, "exception_type": name, "exception": text, "optimizer_steps": hooks.steps.rounds})
    except Exception as error:
        session.error("cannot_write", f"the {what} could not be written: {type(error).__name__}: {error}", final=False)
        session.write("done", {"reason": "failed"})
        if os.environ.get("GPUCAST_DEBUG"):
            import traceback

            traceback.print_exc()


def _write_capture(reason, exit_code):
    if reason != "steps":
        hooks.mark_gradients()
    _write_history(reason, exit_code)
    problem = _core.gpucast_vgpu_write_log(os.fsencode(session.path("vgpu")))
    if problem:
        raise OSError(problem, os.strerror(problem), session.path("vgpu"))


def end_without_cuda():
    """The script trains, but not on CUDA: say so now, before it trains on for hours."""
    if state == WATCHING:
        _give_up("cuda_not_used", "the script has taken its optimizer steps without using CUDA")


def _write_history(reason, exit_code):
    rank, local_rank, world_size = _ranks()
    snapshot = torch.cuda.memory._snapshot()
    device = recorder.device
    process = {
        "record": "process",
        "pid": os.getpid(),
        "rank": rank,
        "local_rank": local_rank,
        "world_size": world_size,
        "argv": list(getattr(sys, "argv", [])),
        "python": platform.python_version(),
        "torch": build.version,
        "cuda": build.cuda,
        "cudnn": profile.get("cudnn_version", 0),
        "alloc_conf": os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "device": device,
        **what_if.record(),
    }
    record = {
        "record": "end",
        "reason": reason,
        "exit_code": exit_code,
        "optimizer_steps": hooks.steps.rounds,
        "torch_stats": hooks.torch_stats(),
        "segments": [
            [segment["address"], segment["total_size"], segment["stream"], segment["segment_type"]]
            for segment in snapshot["segments"]
            if segment.get("device", device) == device
        ],
    }
    path = session.path("history")
    with open(path + ".tmp", "w", encoding="utf-8", errors="backslashreplace") as file:
        history.write(file, process, recorder, snapshot["device_traces"][device], record)
    os.replace(path + ".tmp", path)


def _at_exit():
    if state != ARMED:
        return
    _read_last_exception()
    if recorder.position()[0] == 0:
        # It only asked about the GPU (a check in a shell script): not the job to report.
        session.remove("armed")
        session.write("idle")
        return
    end("exception" if _exception else "script_end", exit_code=1 if _exception else 0)


def _watch_for_os_exit():
    def _exit(status):
        try:
            if state == ARMED:
                end("script_end", exit_code=status)
        finally:
            _real_exit(status)

    os._exit = _exit


def _watch_for_exceptions():
    global _real_excepthook
    _real_excepthook = sys.excepthook

    def excepthook(kind, value, traceback):
        try:
            _note_exception(kind, value)
            traceback = _without_our_frames(traceback)
            value.__traceback__ = traceback
        except Exception as error:
            sys.stderr.write(f"gpucast: internal error in the capture layer: {type(error).__name__}: {error}\n")
        _real_excepthook(kind, value, traceback)

    sys.excepthook = excepthook


def _note_exception(kind, value):
    global _exception
    if _exception is not None or state != ARMED:
        return
    name = f"{kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else kind.__qualname__
    first_line = (str(value).splitlines() or [""])[0][:500]
    _exception = (name, first_line)
    recorder.mark("exception", f"{name}: {first_line}" if first_line else name)


def _read_last_exception():
    # A script that has its own sys.excepthook: the interpreter still leaves the exception here.
    value = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if value is not None:
        _note_exception(type(value), value)


def _without_our_frames(traceback):
    folder = os.path.dirname(os.path.abspath(__file__)) + os.sep
    kept = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(folder):
            kept.append(traceback)
        traceback = traceback.tb_next
    for entry, following in zip(kept, kept[1:] + [None]):
        entry.tb_next = following
    return kept[0] if kept else None


def _after_fork_in_child():
    global state, _end_lock
    _end_lock = threading.Lock()
    if state != WATCHING:
        state = OFF


# ---- standing still --------------------------------------------------------------------------------------------------------------


def _flush():
    """The process may be killed soon: what the script has printed must not be lost."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed or replaced by the script
            stream.flush()
    ctypes.PyDLL(None).fflush(None)


def supervisor_alive():
    try:
        with open(f"/proc/{session.settings()['supervisor_pid']}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except OSError:
        return False


def leave_if_alone():
    """The supervisor was killed: nobody will end this process, and nobody wants it."""
    if state == ARMED and not supervisor_alive():
        _real_exit(1)


def _wait_for_go():
    """The script has ended by itself. Its shell must not go on to the next command, so the supervisor stops all others first."""
    usleep = ctypes.PyDLL(None).usleep
    deadline = time.monotonic() + _GO_TIMEOUT_S
    while not os.path.exists(session.path("go")) and supervisor_alive() and time.monotonic() < deadline:
        usleep(1000)


def _hold_without_core():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    usleep = ctypes.PyDLL(None).usleep
    while supervisor_alive():
        usleep(10_000)
    _real_exit(1)
