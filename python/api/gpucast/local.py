"""`gpucast batch` on this machine: jobs are sent as they come, and rows are returned as they are done."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .command import changed_environment, error_from, find_command, stop

Job = Mapping[str, Any]


def run_local(jobs: Iterable[Job], options: list[str], environment: Mapping[str, str | None] | None = None) -> Iterator[dict[str, Any]]:
    """Yields the lines of `gpucast batch -` while it runs. Jobs are read from the iterable when the command reads them."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as messages:
        process = subprocess.Popen(
            [find_command(), "batch", "-", *options],
            env=changed_environment(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            encoding="utf-8",
        )
        feeder = _Feeder(jobs, process.stdin)
        feeder.start()
        rows = 0
        try:
            for line in process.stdout:
                yield json.loads(line)
                rows += 1
            process.wait()
        finally:
            stop(process)
            process.stdout.close()
        feeder.join(1)  # if the command has failed, it may still wait for the user's next job
        if feeder.error is not None:
            raise feeder.error
        if feeder.is_alive() or rows != feeder.written:
            messages.seek(0)
            raise error_from(messages.read(), process.returncode)


class OpenBatch:
    """One `gpucast batch` for jobs one after the other: PyTorch is imported once."""

    def __init__(self, options: list[str], environment: Mapping[str, str | None] | None = None):
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        self._rows = run_local(iter(self._jobs.get, None), options, environment)

    def run(self, job: Job) -> dict[str, Any]:
        """The job's line of `gpucast batch`. The first call starts the command, so it has this moment's environment."""
        self._jobs.put(job)
        return next(self._rows)

    def close(self) -> None:
        self._rows.close()
        self._jobs.put(None)  # ends the thread that waits for a job


class _Feeder(threading.Thread):
    """Writes jobs to the command's standard input."""

    def __init__(self, jobs: Iterable[Job], stdin):
        super().__init__(daemon=True)
        self._jobs, self._stdin = jobs, stdin
        self.written = 0
        self.error: Exception | None = None

    def run(self):
        try:
            for job in self._jobs:
                self.written += 1
                self._stdin.write(_line(job))
                self._stdin.flush()
        except BrokenPipeError:  # the command has ended, and its message gives the reason
            pass
        except Exception as error:  # raised by the user's iterable
            self.error = error
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()


def _line(job: Job) -> str:
    """A job as `gpucast batch` reads it. JSON allows only UTF-8, so any other word (sys.argv may have some) is sent as its bytes."""
    job = dict(job)
    if isinstance(job.get("command"), (list, tuple)):
        job["command"] = [_word(word) for word in job["command"]]
    return json.dumps(job, default=os.fspath) + "\n"


def _word(word: Any) -> Any:
    try:
        word = os.fsencode(word)
        return word.decode()
    except UnicodeDecodeError:
        return {"hex": word.hex()}
    except TypeError:  # not a word: the command reports the error
        return word
