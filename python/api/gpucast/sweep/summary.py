"""What a sweep's rows come to: counts, the fastest row of each card, reasons of failures, arguments that change nothing."""

from __future__ import annotations

import collections
import json
import os
from collections.abc import Iterable
from typing import Any

from .spec import Spec, text_of

STATUSES = ("fits", "tight", "does_not_fit", "failed")
_FIGURES = ("peak_reserved_bytes", "peak_allocated_bytes")
_SHOWN_ERRORS = 5


def summary_of(spec: Spec, rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    statuses = dict.fromkeys(STATUSES, 0)
    errors: collections.Counter = collections.Counter()
    examples: dict[str, str] = {}
    best: dict[str, dict[str, Any]] = {}
    ignored = Ignored(spec)
    for row in rows:
        statuses[row["status"]] += 1
        if row["status"] == "failed":
            error = f"{row['error_code']}: {row['error']}"
            errors[error] += 1
            examples.setdefault(error, row["run"])
        elif row["samples_per_s"] and row["status"] != "does_not_fit":
            former = best.get(row["gpu"])
            if former is None or row["samples_per_s"] > former["samples_per_s"]:
                best[row["gpu"]] = row
        ignored.add(row)
    return {
        "rows": sum(statuses.values()),
        "statuses": statuses,
        "best": [best[gpu] for gpu in spec.gpus if gpu in best],
        "errors": [{"error": error, "rows": count, "run": examples[error]} for error, count in errors.most_common()],
        "same_memory": ignored.names(),
    }


class Ignored:
    """Names that never change the memory: their rows are alike where nothing else differs. A misspelt flag may be the reason."""

    def __init__(self, spec: Spec):
        self._seen: dict[str, dict[int, tuple]] = {name: {} for name in spec.names}
        self._compared: set[str] = set()

    def add(self, row: dict[str, Any]) -> None:
        if row["status"] == "failed":
            return
        figures = tuple(row[name] for name in _FIGURES)
        for name in list(self._seen):
            others = {other: value for other, value in row["values"].items() if other != name}
            key = hash((row["gpu"], json.dumps(others, sort_keys=True)))
            former = self._seen[name].setdefault(key, (row["case"], figures))
            if former[1] != figures:
                del self._seen[name]
            elif former[0] != row["case"]:
                self._compared.add(name)

    def names(self) -> list[str]:
        return [name for name in self._seen if name in self._compared]


def print_summary(spec: Spec, summary: dict[str, Any], kept: int) -> None:
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in summary["statuses"].items() if count)
    print(f"{summary['cases']:,} {'trials' if spec.study else 'cases'} on {cards_text(spec)}, {summary['rows']:,} rows: {counts}")
    if summary["runs_now"]:
        now = f"{summary['runs_now']:,} runs in {duration_text(summary['seconds'])}, {summary['seconds'] / summary['runs_now']:.2f} s each"
        print(now + (f"; {kept:,} were done before" if kept else ""))
    _print_best(summary["best"])
    if summary["errors"]:
        print("\nFailed")
    for error in summary["errors"][:_SHOWN_ERRORS]:
        print(f"  {error['rows']:,} x {error['error']}\n    {error['run']}")
    if summary["same_memory"]:
        print(f"\nMemory does not depend on {', '.join(summary['same_memory'])}")
    print()
    for path in summary["files"]:
        print(os.path.relpath(path))


def _print_best(best: list[dict[str, Any]]) -> None:
    if best:
        print("\nFastest that fits")
    width = max((len(row["gpu"]) for row in best), default=0)
    for row in best:
        values = " ".join(f"{name} {text_of(value)}" for name, value in row["values"].items())
        speed = f"{row['samples_per_s']:,.4g}" if row["samples_per_s"] < 1000 else f"{row['samples_per_s']:,.0f}"
        print(f"  {row['gpu']:{width}}  {speed:>10} samples/s  {row['device_expected_bytes'] / 2**30:7.2f} GiB  {values}")
        print(f"  {'':{width}}  {row['run']}")


def cards_text(spec: Spec) -> str:
    return f"{len(spec.gpus)} card{'s' if len(spec.gpus) > 1 else ''}"


def duration_text(seconds: float) -> str:
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    return f"{seconds // 60} min {seconds % 60} s" if seconds < 3600 else f"{seconds // 3600} h {seconds % 3600 // 60} min"
