"""The session folder: messages between a captured process and the supervisor (`gpucast run`). docs/explanation/architecture.md names the files."""

import contextlib
import json
import os
import sys

FOLDER = os.environ.get("GPUCAST_SESSION", "")
in_fork_server_child = False

_settings = None


def enter(folder):
    """In a child of the fork server: `folder` is its own session from now on."""
    global FOLDER, _settings, in_fork_server_child
    FOLDER, _settings, in_fork_server_child = folder, None, True


def settings():
    """session.json: mode, steps, deadline_unix_s, library_dir, supervisor_pid, capacity_bytes by CUDA major."""
    global _settings
    if _settings is None:
        with open(os.path.join(FOLDER, "session.json"), encoding="utf-8") as file:
            _settings = json.load(file)
    return _settings


def mode():
    """run, clock, profile, doctor or fork_server."""
    return settings().get("mode")


def path(kind):
    return os.path.join(FOLDER, f"{os.getpid()}.{kind}")


def write(kind, content=""):
    """Writes all or nothing: the supervisor must not read half a file."""
    text = content if isinstance(content, str) else json.dumps(content)
    temporary = path(kind + ".tmp")
    with open(temporary, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    os.replace(temporary, path(kind))


def remove(kind):
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path(kind))


def error(code, message, final, **details):
    """The reason why nothing can be captured here. The supervisor makes it the command's error message; a final one ends the command."""
    write("error", {"code": code, "message": message, "final": final, **details})


def remove_torch_folder():
    """Older PyTorch releases make one at import and remove it at exit; but this process is killed."""
    instantiator = sys.modules.get("torch.distributed.nn.jit.instantiator")
    folder = getattr(instantiator, "_TEMP_DIR", None)
    if folder is not None and not in_fork_server_child:
        folder.cleanup()
