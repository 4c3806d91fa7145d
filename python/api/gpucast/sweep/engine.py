"""Where a sweep's jobs run: an engine is a function from jobs to judged rows, in the order in which they are done."""

from __future__ import annotations

import os
import queue
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..cluster import SET_BY_RAY, run_on_ray
from ..command import Error
from ..local import Job
from .judge import judged_rows

Engine = Callable[[Iterable[Job]], Iterator[dict[str, Any]]]
MOST_JOBS_PER_TASK = 25


def local_engine(cards: list[list[str]], jobs_at_once: int | None) -> Engine:
    options = [] if jobs_at_once is None else ["--jobs", str(jobs_at_once)]
    return lambda jobs: judged_rows(jobs, options, cards)


class OpenBatch:
    """The local engine for many short lists of jobs: one `gpucast batch` for all of them, so PyTorch is imported once."""

    def __init__(self, cards: list[list[str]], jobs_at_once: int | None):
        self._jobs: queue.Queue = queue.Queue()
        self._rows = local_engine(cards, jobs_at_once)(iter(self._jobs.get, None))

    def __call__(self, jobs: Iterable[Job]) -> Iterator[dict[str, Any]]:
        count = 0
        for job in jobs:
            self._jobs.put(job)
            count += 1
        for _ in range(count):
            yield next(self._rows)

    def close(self) -> None:
        self._jobs.put(None)
        self._rows.close()


def close(engine: Engine) -> None:
    """Ends what the engine started, and leaves the Ray cluster."""
    if isinstance(engine, OpenBatch):
        engine.close()
    ray = sys.modules.get("ray")
    if ray and ray.is_initialized():
        ray.shutdown()


def ray_engine(cards: list[list[str]], jobs_at_once: int | None, job_count: int, address: str | None) -> Engine:
    ray = _connected(address)
    cpus = max(int(ray.cluster_resources().get("CPU", 1)), 1)
    # Each task imports PyTorch once; each CPU gets some tasks, so that none is left alone with the last one.
    jobs_per_task = max(1, min(MOST_JOBS_PER_TASK, job_count // (8 * cpus)))

    def rows_of_task(task_jobs, options):  # on a worker
        return list(judged_rows(task_jobs, [*options, "--jobs", "1"], cards, SET_BY_RAY))

    def rows(jobs):
        try:
            yield from run_on_ray(jobs, [], jobs_at_once, jobs_per_task, rows_of_task)
        except (ray.exceptions.RayError, ConnectionError) as error:
            raise cluster_lost(str(error).split("\n")[0]) from None

    return rows


def cluster_lost(where: str) -> Error:
    return Error("the Ray cluster is lost", where, "the same command goes on from here, with a new cluster or with --engine local")


def _connected(address: str | None):
    try:
        import ray
    except ImportError:
        raise Error("Ray is not installed in this Python", sys.executable, f"{sys.executable} -m pip install 'gpucast[ray]'") from None
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        _check_port(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        to_do = "start one (ray start --head), name one with --address, or run here: --engine local"
        raise Error(f"no Ray cluster can be reached: {first_line}", address, to_do) from None
    return ray


def _check_port(address: str) -> None:
    """Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), 10).close()
