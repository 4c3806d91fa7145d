"""The largest batch, or other value, that fits: `gpucast fit`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .command import run_command
from .report import PathLike


@dataclass(frozen=True)
class FitAnswer:
    """One card's answer."""

    gpu: str
    largest: int | None  # runs as expected; None: nothing fits
    largest_99: int | None  # runs with the probability `confidence`
    next: int | None  # the next value, which does not fit; None: the whole range fits
    peak_reserved_bytes: int | None  # with the largest value
    samples_per_s: float | None
    fastest: int | None  # the value with the most samples a second
    runs: list[str] = field(repr=False)  # lines for a shell that make the runs again
    json: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Fit:
    answers: list[FitAnswer]  # in the order of the cards
    notes: list[str]
    json: dict[str, Any] = field(repr=False)

    @property
    def largest(self) -> int | None:
        """The largest value that runs on every card."""
        values = [answer.largest for answer in self.answers]
        return None if None in values else min(values)

    @property
    def largest_99(self) -> int | None:
        values = [answer.largest_99 for answer in self.answers]
        return None if None in values else min(values)


def fit(
    command: str | Sequence[PathLike],
    *,
    gpu: str | Sequence[str],
    vary: str | None = None,
    accumulate: str | int | None = None,
    steps: int | str | None = None,
    timeout_s: float | None = None,
    confidence: float = 0.99,
    folder: PathLike | None = None,
    environment: Mapping[str, str | None] | None = None,
    cache: PathLike | None = None,
    fresh: bool = False,
) -> Fit:
    """`gpucast fit`: the largest batch size, or other value, with which a training command fits each card."""
    words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    arguments = ["fit", "--format", "json", "--gpu", gpu if isinstance(gpu, str) else ",".join(gpu), "--confidence", str(confidence)]
    options = (("vary", vary), ("accumulate", accumulate), ("steps", steps), ("timeout", timeout_s), ("cache", cache))
    for option, value in options:
        if value is not None:
            arguments += [f"--{option}", str(value)]
    if fresh:
        arguments.append("--fresh")
    result = json.loads(run_command([*arguments, "--", *words], folder, environment))
    return Fit([_answer(answer, result["name"]) for answer in result["answers"]], list(result["notes"]), result)


def _answer(answer: Mapping[str, Any], name: str) -> FitAnswer:
    def value(values):
        return values[name] if values else None

    return FitAnswer(
        gpu=answer["gpu"],
        largest=value(answer["values"]),
        largest_99=value(answer["values_99"]),
        next=value(answer["next"] and answer["next"]["values"]),
        peak_reserved_bytes=answer["peak_reserved_bytes"],
        samples_per_s=answer["samples_per_s"],
        fastest=value(answer["fastest"] and answer["fastest"]["values"]),
        runs=[run["run"] for run in answer["runs"]],
        json=dict(answer),
    )
