"""The result of `gpucast run`, with typed fields over the JSON of docs/reference/report-json.md."""

from __future__ import annotations

import html
import json
import os
import shlex
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from .command import Error, run_command

PathLike = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Interval:
    """An amount of bytes with its bounds."""

    low_bytes: int
    expected_bytes: int
    high_bytes: int


@dataclass(frozen=True)
class Place:
    """A moment of the run. `module` is "" outside of modules."""

    phase: str
    step: int
    module: str


@dataclass(frozen=True)
class Report:
    verdict: str  # fits, tight, grows, does_not_fit
    verdict_reason: str
    gpu: str
    capacity_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_allocated_at: Place
    device: Interval  # includes the card's memory outside PyTorch's allocator
    request_bytes: int  # the request for a scheduler, so the job runs with the probability `confidence`
    confidence: float
    min_capacity_bytes: int | None
    min_capacity_expandable_segments_bytes: int | None
    categories: dict[str, int]  # bytes allocated at the peak
    steps: int
    end_reason: str
    torch: str
    command: list[str]
    warnings: list[str]
    cards: dict[str, str]  # verdict by card, when no card was named
    json: dict[str, Any] = field(repr=False)  # everything
    capture: Path | None = field(default=None, repr=False)

    @property
    def fits(self) -> bool:
        """Does it run on this card? "tight" and "grows" count as yes, as with the command's exit code."""
        return self.verdict != "does_not_fit"

    @classmethod
    def from_json(cls, report: Mapping[str, Any], capture: Path | None = None) -> Report:
        peak, device = report["peak"], report["device"]
        at = peak["allocated_at"]
        return cls(
            verdict=report["verdict"],
            verdict_reason=report["verdict_reason"],
            gpu=report["gpu"]["name"],
            capacity_bytes=report["gpu"]["capacity_bytes"],
            peak_allocated_bytes=peak["allocated_bytes"],
            peak_reserved_bytes=peak["reserved_bytes"],
            peak_allocated_at=Place(at["phase"], at["step"], at["module"]),
            device=Interval(device["low_bytes"], device["expected_bytes"], device["high_bytes"]),
            request_bytes=device["request_bytes"],
            confidence=device["confidence"],
            min_capacity_bytes=report["min_capacity_bytes"],
            min_capacity_expandable_segments_bytes=report["min_capacity_expandable_segments_bytes"],
            categories={category["name"]: category["bytes"] for category in report["categories"]},
            steps=report["steps"],
            end_reason=report["end_reason"],
            torch=report["environment"]["torch"],
            command=list(report["command"]),
            warnings=[warning["message"] for warning in report["warnings"]],
            cards={card["name"]: card["verdict"] for card in report.get("cards") or []},
            json=dict(report),
            capture=capture,
        )

    def to_html(self, path: PathLike) -> Path:
        """Writes the page of `gpucast export --to html`; an existing file is replaced."""
        if self.capture is None:
            raise Error("this report has no capture to make a page of", to_do="give the job an output: output='train.gpucast'")
        gpu = ["--gpu", self.gpu] if self.json.get("profile") else []  # captures know their card
        run_command(["export", str(self.capture), "--to", "html", "-o", str(path), "--force", *gpu])
        return Path(path)

    def _repr_html_(self) -> str:
        """For a notebook: a table without a script or its own colours, so it suits a light and a dark page."""
        mib = [("Peak reserved", self.peak_reserved_bytes), ("Peak allocated", self.peak_allocated_bytes)]
        mib.append(("Device memory", self.device.expected_bytes))
        mib.append((f"To ask for ({100 * self.confidence:g} %)", self.request_bytes))
        if self.min_capacity_bytes is not None:
            mib.append(("Smallest card", self.min_capacity_bytes))
        rows = [(name, _mib(size), "") for name, size in mib]
        for name, size in sorted(self.categories.items(), key=lambda category: -category[1]):
            rows.append((name.replace("_", " "), _mib(size), _bar(size / max(self.peak_allocated_bytes, 1))))
        line = "border-top:1px solid rgba(128,128,128,.4)"
        cells = "".join(
            f'<tr style="background:none{";" + line if i == len(mib) else ""}"><td style="text-align:left">{html.escape(name)}</td>'
            f'<td style="text-align:right;font-variant-numeric:tabular-nums">{size}</td><td style="min-width:8em">{bar}</td></tr>'
            for i, (name, size, bar) in enumerate(rows)
        )
        verdict = {
            "fits": "&#10003; fits",
            "tight": "&#9888; tight",
            "grows": "&#9888; grows",
            "does_not_fit": "&#10007; does not fit",
        }.get(self.verdict, self.verdict)
        return (
            f'<div style="color:inherit"><b>{verdict}</b> on {html.escape(self.gpu)} ({_mib(self.capacity_bytes)}): '
            f'{html.escape(self.verdict_reason)}<br><code style="color:inherit;background:none">{html.escape(shlex.join(self.command))}</code>'
            f'<table style="color:inherit;border-collapse:collapse;margin:.5em 0">{cells}</table></div>'
        )


def run(
    command: str | Sequence[str],
    *,
    gpu: str | None = None,
    gpus: int = 1,
    steps: int | str = 3,
    timeout_s: float | None = None,
    environment: Mapping[str, str | None] | None = None,
    folder: PathLike | None = None,
    what_if: Sequence[str] = (),
    output: PathLike | None = None,
    enforce_capacity: bool = False,
    cudnn: PathLike | None = None,
    confidence: float = 0.99,
    max_length: int | None = None,
) -> Report:
    """`gpucast run`: the report of a training command on a virtual GPU. Raises Error when it cannot be made."""
    words = shlex.split(command) if isinstance(command, str) else [os.fsdecode(word) for word in command]
    if not words:
        raise Error("the command is empty", to_do="name the command that trains: gpucast.run(['python', 'train.py'])")
    temporary = None if output is not None else tempfile.mkdtemp(prefix="gpucast-report-")
    # The command refuses to overwrite, and so do we.
    capture = Path(output).absolute() if output is not None else Path(temporary) / "run.gpucast"
    arguments = ["run", "--format", "json", "--steps", str(steps), "--confidence", str(confidence), "-o", str(capture)]
    if gpu is not None:
        arguments += ["--gpu", gpu]
    if gpus != 1:
        arguments += ["--gpus", str(gpus)]
    if timeout_s is not None:
        arguments += ["--timeout", str(timeout_s)]
    if enforce_capacity:
        arguments.append("--enforce-capacity")
    if cudnn is not None:
        arguments += ["--cudnn", os.fspath(cudnn)]
    if max_length is not None:
        arguments += ["--max-length", str(max_length)]
    for name in what_if:
        arguments += ["--what-if", name]
    try:
        printed = run_command([*arguments, "--", *words], folder, environment)
        result = json.loads(printed)
        judged = [rank["capture"] for rank in result.get("ranks", ()) if rank["judged"]]
        report = Report.from_json(result, Path(judged[0]) if judged else capture)
    except BaseException:
        _remove(temporary)
        raise
    if temporary is not None:
        weakref.finalize(report, _remove, temporary)  # removed at the end of the interpreter too
    return report


def analyze(capture: PathLike, *, gpu: str | None = None, confidence: float = 0.99) -> Report:
    """`gpucast analyze`: the report of a kept capture, also for another card or confidence."""
    arguments = ["analyze", os.fspath(capture), "--format", "json", "--confidence", str(confidence)]
    arguments += ["--gpu", gpu] if gpu is not None else []
    return Report.from_json(json.loads(run_command(arguments)), Path(capture).absolute())


def _remove(folder: str | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.2f} MiB"


def _bar(share: float) -> str:
    return f'<div style="width:{100 * share:.1f}%;height:.7em;background:rgba(128,128,128,.6)" title="{100 * share:.1f} %"></div>'
