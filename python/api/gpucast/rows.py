"""Many jobs: the rows of `gpucast batch`, from this machine or from a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .cluster import run_on_ray
from .command import Error
from .local import Job, run_local
from .report import Report


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
    """Yields a Row for each job when it is done, in no particular order. `jobs` are dictionaries with the fields of `gpucast batch`.

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
        rows = run_on_ray(jobs, options, jobs_at_once, jobs_per_task)
    else:
        raise Error(f"no engine is named {engine!r}", to_do="choose 'local' or 'ray'")
    return map(Row.from_json, rows)


def _error(error: Mapping[str, Any], printed: str) -> Error:
    return Error(error["message"], error.get("where") or "", error.get("to_do") or "", error["code"], printed)
