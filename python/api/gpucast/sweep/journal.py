"""Rows on disk as they come. A line is a job with its rows, so that a job is there whole or not at all; that makes a sweep resumable."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from typing import Any

from ..command import Error

FSYNC_INTERVAL_S = 5.0
AGAIN = ("node_died",)  # not the case's fault: such a job runs again


class Journal:
    def __init__(self, path: str, spec: dict[str, Any], version: str, fresh: bool = False, retry_failed: bool = False):
        self.path = path
        self.done: dict[int, int] = {}  # a job's number: where its line begins
        header = {"schema_version": 1, "spec": spec, "gpucast_version": version}
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._file = open(path, "ab+")  # noqa: SIM115
        except OSError as error:
            raise Error(f"cannot write the rows: {error.strerror}", path, "name another folder: -o FOLDER") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Error("another sweep writes to this journal", path, "wait for it, or name another folder: -o FOLDER") from None
        if fresh:
            self._file.truncate(0)
        self._read(header, retry_failed)
        self._synced = time.monotonic()

    def _read(self, header: dict[str, Any], retry_failed: bool) -> None:
        self._file.seek(0)
        begin = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break  # torn: the sweep was killed while it wrote
            entry = self._entry(line, begin)
            if begin == 0:
                self._check(entry, header)
            elif not self._runs_again(entry, retry_failed):
                self.done[entry["job"]] = begin
            begin += len(line)
        self._file.truncate(begin)
        self._file.seek(begin)
        if begin == 0:
            self._write(header)

    def _entry(self, line: bytes, begin: int) -> dict[str, Any]:
        try:
            entry = json.loads(line)
            if entry["schema_version"] == 1 if begin == 0 else isinstance(entry["job"], int):
                return entry
        except (ValueError, KeyError, TypeError):
            pass
        raise Error("the journal holds something else than rows", f"{self.path}, byte {begin}", "name another folder: -o FOLDER") from None

    def _check(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        before, now = old["spec"], json.loads(json.dumps(new["spec"]))
        changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        if changed:
            what = f"the rows there are of another spec: {', '.join(map(repr, changed))} changed"
            raise Error(what, self.path, "name another folder (-o FOLDER), or drop those rows: --fresh")

    @staticmethod
    def _runs_again(entry: dict[str, Any], retry_failed: bool) -> bool:
        return any(row["status"] == "failed" and (retry_failed or row["error_code"] in AGAIN) for row in entry["rows"])

    def _write(self, entry: dict[str, Any]) -> int:
        begin = self._file.seek(0, os.SEEK_END)
        line = (json.dumps(entry, separators=(",", ":")) + "\n").encode()
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise Error(f"cannot write the rows: {error.strerror}", self.path, "make room, and start the same command again") from None
        return begin

    def append(self, job: int, rows: list[dict[str, Any]]) -> None:
        self.done[job] = self._write({"job": job, "rows": rows})
        if time.monotonic() - self._synced > FSYNC_INTERVAL_S:
            self.sync()

    def sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def rows_of(self, job: int) -> list[dict[str, Any]]:
        self._file.seek(self.done[job])
        return json.loads(self._file.readline())["rows"]

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows in the order of the spec, whatever the order in which they were done."""
        for job in sorted(self.done):
            yield from self.rows_of(job)

    def close(self) -> None:
        self.sync()
        self._file.close()
