"""`gpucast batch` as tasks on a Ray cluster: the same rows, none lost or doubled when a node dies."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .command import Error
from .local import Job, run_local

Run = Callable[[list[Job], list[str]], list[dict[str, Any]]]
ATTEMPTS = 4  # for a task whose node died: a job that kills its node must end some time
# Ray sets these for its workers; a job must see the same environment as without Ray.
SET_BY_RAY = {"CUDA_VISIBLE_DEVICES": None, "OMP_NUM_THREADS": None}


def run_on_ray(
    jobs: Iterable[Job], options: list[str], jobs_at_once: int | None, jobs_per_task: int, run: Run | None = None
) -> Iterator[dict[str, Any]]:
    """`run` turns the jobs of a task into rows, on a worker. Default: the rows of `gpucast batch`."""
    try:
        import ray
    except ImportError:
        raise Error("Ray is not installed in this environment", to_do="pip install 'gpucast[ray]'") from None
    if not ray.is_initialized():
        raise Error("no Ray cluster is connected", to_do="call ray.init(address='auto') before, or ray.init() for this machine alone")
    return _rows(ray, iter(jobs), options, jobs_at_once, jobs_per_task, run or _run_jobs)


def _rows(ray, jobs: Iterator[Job], options: list[str], jobs_at_once: int | None, jobs_per_task: int, run: Run) -> Iterator[dict[str, Any]]:
    # No retries by Ray itself: a dead node's jobs are sent again from here, because only this process knows the rows that arrived.
    task = ray.remote(num_cpus=1, max_retries=0)(run)
    running: dict[Any, tuple[list[Job], int]] = {}  # result: its jobs, the number of the attempt
    refused: list[dict[str, Any]] = []
    jobs = _checked(jobs, refused)

    def send(chunk: list[Job], attempt: int) -> None:
        running[task.remote(chunk, options)] = (chunk, attempt)

    try:
        while True:
            # Twice the number that the cluster runs at once, so no node waits for the driver.
            limit = jobs_at_once or 2 * max(int(ray.cluster_resources().get("CPU", 1)), 1)
            while len(running) < limit:
                chunk = list(itertools.islice(jobs, jobs_per_task))
                if not chunk:
                    break
                send(chunk, 1)
            yield from refused
            refused.clear()
            if not running:
                return
            for result in ray.wait(list(running), num_returns=1)[0]:
                chunk, attempt = running.pop(result)
                try:
                    rows = ray.get(result)
                except ray.exceptions.RayError as error:
                    # Another try helps if a node or a worker died, or gpucast was ended because its node shuts down.
                    failed = error.cause if isinstance(error, ray.exceptions.RayTaskError) else None
                    if attempt < ATTEMPTS and (failed is None or isinstance(failed, Error)):
                        send(chunk, attempt + 1)
                        continue
                    if failed is not None:
                        raise failed from None
                    rows = [_lost(job, error) for job in chunk]
                yield from rows
    finally:
        for result in running:
            ray.cancel(result, force=True)


def _checked(jobs: Iterable[Job], refused: list[dict[str, Any]]) -> Iterator[Job]:
    """Jobs that can be sent anywhere: with a name of their own, and a folder that is not the worker's."""
    seen = set()
    for number, job in enumerate(jobs, 1):
        line = f"line {number}"
        name = job.get("name", line)
        problem = None
        if not isinstance(name, str):
            problem = ('"name" must be text', "")
        elif name in seen:
            problem = (f"another job is named '{name}' already", "give each job a name of its own")
        if problem:
            refused.append(_failed(line, "bad_job", problem[0], f"{line} of the jobs", problem[1]))
            continue
        seen.add(name)
        folder = job.get("folder") or "."  # a capture's and a log's paths are relative to it
        yield {**job, "name": name, "folder": os.path.abspath(folder) if isinstance(folder, (str, os.PathLike)) else folder}


def _run_jobs(jobs: list[Job], options: list[str]) -> list[dict[str, Any]]:
    """On a worker."""
    return list(run_local(jobs, [*options, "--jobs", "1"], SET_BY_RAY))


def _lost(job: Job, error: Exception) -> dict[str, Any]:
    message = f"the node or worker of this job, or of one sent with it, died {ATTEMPTS} times"
    return _failed(job["name"], "node_died", message, str(error).split("\n")[0], "run it alone: gpucast.run(...)")


def _failed(name: str, code: str, message: str, where: str, to_do: str) -> dict[str, Any]:
    """The line of `gpucast batch` for a job that never ran."""
    error = {"code": code, "message": message, "where": where, "to_do": to_do}
    return {
        "schema_version": 1,
        "name": name,
        "status": "failed",
        "exit_code": 2,
        "seconds": 0.0,
        "forked": False,
        "report": None,
        "error": error,
        "printed": "",
    }
