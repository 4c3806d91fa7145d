"""Jobs to rows, on the machine that captures: memory and step time on each card of one capability, from one capture."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..command import Error, run_command
from ..local import Job, run_local

PREFIX = "gpucast-sweep-"  # of folders for captures
MOST_IN_FLIGHT = 256  # jobs that `gpucast batch` holds: a sweep of any length uses the same memory


def judged_rows(
    jobs: Iterable[Job], options: list[str], cards: list[list[str]], environment: Mapping[str, str | None] | None = None
) -> Iterator[dict[str, Any]]:
    """The lines of `gpucast batch` with `cards`, the figures on each card, instead of the report.

    A job's name is its number; the remainder by the number of groups of cards is its group.
    """
    outputs: dict[str, str] = {}  # of jobs in flight
    slots = threading.Semaphore(MOST_IN_FLIGHT)
    with _temporary_folder() as folder:

        def with_captures():
            for job in jobs:
                slots.acquire()
                outputs[job["name"]] = job.get("output") or os.path.join(folder, f"{job['name']}.gpucast")
                yield {**job, "output": outputs[job["name"]], "force": True}

        for row in run_local(with_captures(), options, environment):
            slots.release()
            output = outputs.pop(row["name"], "")
            yield _judged(row, output, cards[int(row["name"]) % len(cards)])
            if output.startswith(folder):
                for name in os.listdir(folder):
                    if name.startswith(f"{row['name']}."):
                        os.remove(os.path.join(folder, name))


@contextlib.contextmanager
def _temporary_folder() -> Iterator[str]:
    """Removes what killed sweeps have left: no process holds the lock of their folders."""
    for lock in glob.glob(os.path.join(tempfile.gettempdir(), PREFIX + "*", "lock")):
        with contextlib.suppress(OSError), open(lock) as file:
            if time.time() - os.stat(lock).st_mtime > 60:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(os.path.dirname(lock), ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder, open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _judged(row: dict[str, Any], output: str, gpus: list[str]) -> dict[str, Any]:
    report = row.pop("report", None)
    row["cards"] = {}
    if row["status"] == "failed" or report is None:
        return row
    ranks = [rank for rank in report.get("ranks") or [] if rank["capture"]]
    judged = row["capture"] = next((rank["capture"] for rank in ranks if rank["judged"]), output)
    try:
        row["cards"][gpus[0]] = memory_of(report)
        confidence = str(report["device"]["confidence"])
        for gpu in gpus[1:]:
            printed = run_command(["analyze", judged, "--gpu", gpu, "--format", "json", "--confidence", confidence])
            row["cards"][gpu] = memory_of(json.loads(printed))
    except Error as error:
        row["error"] = {"code": "no_verdict", "message": error.what, "where": error.where, "to_do": error.to_do}
        return row
    # Without a complete step there is no time. The memory is known even so.
    with contextlib.suppress(Error):
        captures = [rank["capture"] for rank in ranks] or [output]
        times = json.loads(run_command(["time", *captures, "--gpu", ",".join(gpus), "--format", "json"]))
        for card in times["cards"]:
            row["cards"][card["gpu"]].update(time_of(card))
    return row


def memory_of(report: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "status": report["verdict"],
        "capacity_bytes": report["gpu"]["capacity_bytes"],
        "peak_reserved_bytes": report["peak"]["reserved_bytes"],
        "peak_allocated_bytes": report["peak"]["allocated_bytes"],
        "device_expected_bytes": report["device"]["expected_bytes"],
        "request_bytes": report["device"]["request_bytes"],
    }


def time_of(card: Mapping[str, Any]) -> dict[str, Any]:
    step = card["step"]
    return {
        "step_ns": round(step["expected_ns"]),
        "step_low_ns": round(step["low_ns"]),
        "step_high_ns": round(step["high_ns"]),
        "samples_per_s": float(f"{card['samples_per_s']:.6g}") or None,  # 0: unknown
    }
