"""Finding the `gpucast` command, running it, and its error message as an exception."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path

EXIT_YES, EXIT_NO = 0, 1


class Error(Exception):
    """gpucast, or the job it ran, failed: `what` happened, `where`, what `to_do`; `printed` is the end of the earlier output."""

    def __init__(self, what: str, where: str = "", to_do: str = "", code: str = "", printed: str = ""):
        super().__init__(what + (f"\n  where: {where}" if where else "") + (f"\n  to do: {to_do}" if to_do else ""))
        self.what, self.where, self.to_do, self.code, self.printed = what, where, to_do, code, printed

    def __reduce__(self):  # from a Ray task, say
        return (Error, (self.what, self.where, self.to_do, self.code, self.printed))


def find_command() -> str:
    """GPUCAST_BIN if it is set; else the command that was installed with this package; else the one on PATH."""
    chosen = os.environ.get("GPUCAST_BIN")
    if chosen:
        if os.access(chosen, os.X_OK):
            return os.path.abspath(chosen)
        raise Error("GPUCAST_BIN names no program", chosen, "unset it, or name the gpucast command")
    package = Path(__file__).resolve().parent
    # The package lies in ENV/lib/pythonX.Y/site-packages; with `pip install --target` in the folder that bin is in.
    folders = [package.parents[3] / "bin", package.parents[0] / "bin", Path(sysconfig.get_path("scripts"))]
    if package.parent.name == "api":  # PREFIX/lib/gpucast/python/api
        folders.insert(0, package.parents[4] / "bin")
    for folder in folders:
        if os.access(folder / "gpucast", os.X_OK):
            return str(folder / "gpucast")
    on_path = shutil.which("gpucast")
    if on_path:
        return on_path
    raise Error(
        "the gpucast command is not installed",
        ", ".join(map(str, folders)) + ", PATH",
        "install it: pip install gpucast; or set GPUCAST_BIN",
    )


def version() -> str:
    try:
        return importlib.metadata.version("gpucast")
    except importlib.metadata.PackageNotFoundError:  # imported from a source tree
        return run_command(["--version"]).split()[-1]


def changed_environment(changes: Mapping[str, str | None] | None) -> dict[str, str]:
    """This process's environment with changes; None removes a variable."""
    environment = dict(os.environ)
    for name, value in (changes or {}).items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = str(value)
    return environment


def run_command(arguments: list[str], folder: str | os.PathLike | None = None, environment=None) -> str:
    """Runs `gpucast ARGUMENTS...` and returns its standard output. Raises Error if it failed; "no" (exit code 1) is an answer."""
    command = [find_command(), *map(str, arguments)]
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=changed_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise Error(f"cannot start gpucast: {error.strerror}", str(error.filename)) from error
    try:
        out, err = process.communicate()
    finally:
        stop(process)
    if process.returncode in (EXIT_YES, EXIT_NO):
        return out
    raise error_from(err, process.returncode)


def stop(process: subprocess.Popen) -> None:
    """Ends a running command like Ctrl-C, so it cleans up. A notebook's Ctrl-C reaches only the notebook."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def error_from(printed: str, exit_code: int) -> Error:
    """The last message of gpucast in its own and the script's output."""
    lines = printed.rstrip("\n").split("\n")
    starts = [i for i, line in enumerate(lines) if line.startswith("gpucast: ") and not line.startswith("gpucast: the capture ")]
    if not starts:
        return Error(f"gpucast ended with exit code {exit_code} and said nothing", printed="\n".join(lines[-20:]))
    fields = {}
    for line in lines[starts[-1] + 1 :]:
        for label in ("where", "to do"):
            if line.startswith(f"  {label}: "):
                fields.setdefault(label, line[len(label) + 4 :])
    before = "\n".join(lines[: starts[-1]][-20:])
    return Error(lines[starts[-1]][len("gpucast: ") :], fields.get("where", ""), fields.get("to do", ""), printed=before)
