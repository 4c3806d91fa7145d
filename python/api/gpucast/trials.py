"""Judging the trials of a search before they start: one open `gpucast batch` for the process, so PyTorch is imported once."""

from __future__ import annotations

import atexit
import itertools
import os
import shlex
import threading
from collections.abc import Mapping, Sequence

from .local import OpenBatch
from .report import PathLike, Report
from .rows import Row

_lock = threading.Lock()  # studies run trials in threads
_opened: list[OpenBatch] = []
_numbers = itertools.count(1)


def judge(
    command: str | Sequence[PathLike],
    gpu: str,
    *,
    steps: int | str = 2,
    folder: PathLike | None = None,
    environment: Mapping[str, str | None] | None = None,
    timeout_s: float | None = None,
) -> Report:
    """The report of a trial's command on the virtual GPU. Raises gpucast.Error when it cannot be made."""
    words = shlex.split(command) if isinstance(command, str) else [os.fspath(word) for word in command]
    job = {"name": f"trial {next(_numbers)}", "command": words, "gpu": gpu, "steps": steps, "folder": os.path.abspath(folder or ".")}
    if environment:
        job["environment"] = dict(environment)
    if timeout_s is not None:
        job["timeout_s"] = timeout_s
    with _lock:
        if not _opened:
            _opened.append(OpenBatch(["--jobs", "1"]))
            atexit.register(_close)
        try:
            row = Row.from_json(_opened[0].run(job))
        except BaseException:
            _close()  # interrupted
            raise
    if row.error is not None:
        raise row.error
    return row.report


def _close() -> None:
    while _opened:
        _opened.pop().close()
