"""Many jobs: the rows of `gpucast batch`, from this machine or from a Ray cluster."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .command import Error, changed_environment, error_from, find_command, stop
from .report import Report

Job = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """The result of one job."""

    name: str
    status: str  # fits, tight, does_not_fit, failed
    seconds: float
    report: Report | None
    error: Error | None
    json: dict[str, Any] = field(repr=False)  # the line that `gpucast batch` wrote

    @property
    def fits(self) -> bool:
        return self.status in ("fits", "tight")

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Row:
        error = row.get("error")
        return cls(
            name=row["name"],
            status=row["status"],
            seconds=row["seconds"],
            report=Report.from_json(row["report"]) if row.get("report") else None,
            error=_error(error, row.get("printed") or "") if error else None,
            json=dict(row),
        )


def batch(
    jobs: Iterable[Job],
    *,
    engine: str = "local",
    jobs_at_once: int | None = None,
    timeout_s: float | None = None,
    gpu: str | None = None,
    steps: int | str | None = None,
    fresh: bool = False,
    jobs_per_task: int = 4,
) -> Iterator[Row]:
    """Yields a Row for each job as it is done, in no particular order. `jobs` are those of `gpucast batch`, as dictionaries.

    engine "local" runs them on this machine, "ray" on the Ray cluster that ray.init found (jobs_per_task of them in each task).
    """
    options = []
    for option, value in (("--gpu", gpu), ("--steps", steps), ("--timeout", timeout_s)):
        if value is not None:
            options += [option, str(value)]
    if fresh:
        options.append("--fresh")
    if engine == "local":
        rows = run_local(jobs, options + (["--jobs", str(jobs_at_once)] if jobs_at_once is not None else []))
    elif engine == "ray":
        from .cluster import run_on_ray

        rows = run_on_ray(jobs, options, jobs_at_once, jobs_per_task)
    else:
        raise Error(f"no engine is named {engine!r}", to_do="choose 'local' or 'ray'")
    return map(Row.from_json, rows)


def run_local(jobs: Iterable[Job], options: list[str], environment: Mapping[str, str | None] | None = None) -> Iterator[dict[str, Any]]:
    """The lines of `gpucast batch -`, while it runs; jobs are read from the iterable as the command reads them."""
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
        feeder.join(1)  # it may still wait for the user's next job when the command has failed
        if feeder.error is not None:
            raise feeder.error
        if feeder.is_alive() or rows != feeder.written:
            messages.seek(0)
            raise error_from(messages.read(), process.returncode)


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
                self._stdin.write(json.dumps(job, default=os.fspath) + "\n")
                self._stdin.flush()
        except BrokenPipeError:  # the command has ended: its message says why
            pass
        except Exception as error:  # of the user's iterable
            self.error = error
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()


def _error(error: Mapping[str, Any], printed: str) -> Error:
    return Error(error["message"], error.get("where") or "", error.get("to_do") or "", error["code"], printed)
