"""The end of a captured or profiled process: its cause, the messages to the supervisor, and waiting until the process is killed."""

import contextlib
import ctypes
import gc
import io
import multiprocessing.process
import os
import signal
import sys
import time

from . import checkpoints, made_folders, patching, process, session, steps, unwritten_files

_BUFFERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
_GO_TIMEOUT_S = 20  # a script at its end waits this long for the supervisor to stop the other processes

exception = None  # (type name, first line) of the exception that ended the script
_real_exit = os._exit
_real_excepthook = sys.excepthook


# ---- what ended it -----------------------------------------------------------------------------------------------------------


def watch_for_exceptions():
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


def read_last_exception():
    # A script that has its own sys.excepthook: the interpreter still leaves the exception here.
    value = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if value is not None:
        _note_exception(type(value), value)


def _note_exception(kind, value):
    global exception
    if exception is not None or process.state not in (process.ARMED, process.CLOCKED):
        return
    name = f"{kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else kind.__qualname__
    first_line = next((line for line in str(value).splitlines() if line.strip()), "")[:500] + checkpoints.explain(value)
    exception = (name, first_line)
    if process.state == process.ARMED:
        process.recorder.mark("exception", exception_text())


def exception_text():
    return ": ".join(filter(None, exception or ()))


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


def watch_for_os_exit(before):
    """`before(status)` is called ahead of os._exit, which runs no atexit handler."""
    real_exit = os._exit

    def _exit(status):
        try:
            before(status)
        finally:
            real_exit(status)

    os._exit = _exit


# ---- messages to the supervisor -------------------------------------------------------------------------------------------------


def finish(what, write, reason, exit_code):
    """Writes with `write(reason, exit_code)`, then reports to the supervisor: done (with the result of `write`), or why it failed."""
    session.write("done", written(what, write, reason, exit_code))


def written(what, write, reason, exit_code):
    """The same without the message, which it returns."""
    _flush()
    patching.safely(unwritten_files.remove)
    if reason in ("steps", "timeout"):
        patching.safely(session.remove_torch_folder)
        patching.safely(made_folders.remove_empty)
    try:
        details = write(reason, exit_code) or {}
        name, text = exception or (None, None)
        done = {"reason": reason, "exit_code": exit_code, "exception_type": name, "exception": text}
        return {**done, **details, "optimizer_steps": steps.counter.rounds}
    except Exception as error:
        session.error("cannot_write", f"the {what} could not be written: {type(error).__name__}: {error}", final=False)
        patching.print_traceback_if_debugging()
        return {"reason": "failed"}


def give_up(code, message, **details):
    """Nothing can be captured here. Does not return, except under `gpucast doctor` and in a fork server."""
    process.state = process.OFF
    returns = session.mode() in ("doctor", "fork_server")
    build = process.build
    session.error(code, message, final=not returns, torch=build.version, cuda=build.cuda, python=sys.executable, **details)
    if not returns:
        _flush()
        hold()


# ---- temporary folders -----------------------------------------------------------------------------------------------------------


def keep_sockets_in_session():
    """A killed process would leave multiprocessing's folders; the session's folder is removed. Workers of this process do the same."""
    folder = os.path.join(session.FOLDER, "multiprocessing")
    config = multiprocessing.process.current_process()._config
    if config.get("tempdir") is None and len(folder) + len("/listener-12345678") < 108:  # the longest socket path (sun_path)
        os.makedirs(folder, exist_ok=True)
        config["tempdir"] = folder


# ---- waiting for the kill --------------------------------------------------------------------------------------------------------------


def _flush():
    """The process may be killed soon: the script's output must not be lost."""
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
    """The supervisor was killed: nothing else will end this process, and nothing needs it."""
    if process.state == process.ARMED and not supervisor_alive():
        _real_exit(1)


def wait_for_go():
    """The script has ended. Its shell must not start the next command, so the supervisor first stops all other processes."""
    usleep = ctypes.PyDLL(None).usleep
    deadline = time.monotonic() + _GO_TIMEOUT_S
    while not os.path.exists(session.path("go")) and supervisor_alive() and time.monotonic() < deadline:
        usleep(1000)


def leave(status):
    """Ends this process like os._exit, but with all files written."""
    for found in gc.get_objects():
        if type(found) in _BUFFERS:
            with contextlib.suppress(Exception):  # closed, or detached from its file
                found.flush()
    _flush()
    _real_exit(status)


def hold():
    """Like gpucast_vgpu_hold, for processes without the virtual GPU's core."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    usleep = ctypes.PyDLL(None).usleep
    while supervisor_alive():
        usleep(10_000)
    _real_exit(1)
