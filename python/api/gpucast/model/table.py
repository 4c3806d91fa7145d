"""`gpucast model --table`: precision (of inference: length) by batch by card. Each row is a run of each compute capability."""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..command import Error
from ..sweep.judge import judged_rows
from ..sweep.main import groups_of, known_capabilities
from ..sweep.summary import duration_text
from .configs import Model
from .inference import Inference, inference_script, stages_of
from .kinds import Kind, check_length, default_length, longest
from .script import Environment, training_script

_CARDS = "rtx4090,l40s,a100-80,h100-80,h200"
_PRECISIONS, _BATCHES, _LENGTHS = "bf16,bf16-mixed,fp32", "1,4,16", "1024,4096,16384"
_KNOWN_PRECISIONS = ("bf16", "bf16-mixed", "fp16", "fp16-mixed", "fp32")
_SIGNS = {"fits": " ", "tight": "~", "does_not_fit": "x"}


@dataclass
class TableRow:
    name: str  # the precision, or the length
    batch: int
    text: str  # the script
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)
    stages: dict[str, int] = field(default_factory=dict)
    problem: str = ""


def print_table(model: Model, kind: Kind, options: argparse.Namespace, environment: Environment, training_of: Callable) -> int:
    """`training_of(options, batch, length)`: what is trained."""
    cards = _cards(options.gpu)
    length = options.seq or default_length(model, kind)
    rows = _inference_rows(model, kind, options, environment) if options.inference else []
    if not rows:
        check_length(model, kind, length)
        for precision, batch in itertools.product(_precisions(options), _numbers("--batches", options.batches or _BATCHES)):
            chosen = argparse.Namespace(**{**vars(options), "precision": precision})
            rows.append(TableRow(precision, batch, training_script(model, kind, training_of(chosen, batch, length), environment)))
    _run(rows, cards, options)
    if options.format == "json":
        _print_json(model, rows)
    else:
        what = (
            _inference_title(options)
            if options.inference
            else f"{training_of(options, 1, length).without_precision()}; {length:,} {kind.length}"
        )
        print(f"{model.name}   config: {model.source}\n  {what}; transformers {importlib.metadata.version('transformers')}\n")
        _print_text(rows, cards, bool(options.inference))
    fits = [card["status"] != "does_not_fit" for row in rows for card in row.cards.values()]
    return (0 if any(fits) else 1) if fits else 2


def _inference_rows(model: Model, kind: Kind, options: argparse.Namespace, environment: Environment) -> list[TableRow]:
    lengths = [options.seq] if options.seq else _numbers("--lengths", options.lengths or _LENGTHS)
    if not options.seq and not options.lengths:
        lengths = [one for one in lengths if one <= (longest(model) or one)] or [default_length(model, kind)]
    rows = []
    for length, batch in itertools.product(lengths, _numbers("--batches", options.batches or _BATCHES)):
        check_length(model, kind, length)
        one = Inference(batch, length, options.new_tokens, options.precision, options.attention)
        rows.append(TableRow(f"{length:,}", batch, inference_script(model, one, environment)))
    return rows


def _inference_title(options: argparse.Namespace) -> str:
    return str(Inference(1, 1, options.new_tokens, options.precision, options.attention))


def _cards(names: str) -> list[list[str]]:
    """Groups of cards that share a run."""
    capabilities = known_capabilities()
    chosen = list(capabilities) if names == "all" else list(dict.fromkeys((names or _CARDS).split(",")))
    unknown = [name for name in chosen if name not in capabilities]
    if unknown:
        raise Error(f"no card is named {unknown[0]!r}", "--gpu", "`gpucast gpus` lists the cards")
    return groups_of(chosen, capabilities)


def _precisions(options: argparse.Namespace) -> list[str]:
    names = (options.precisions or _PRECISIONS).split(",")
    unknown = [name for name in names if name not in _KNOWN_PRECISIONS]
    if unknown:
        raise Error(f"no precision is named {unknown[0]!r}", "--precisions", f"choose of {', '.join(_KNOWN_PRECISIONS)}")
    return names


def _numbers(option: str, text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise Error(f"{text!r} is no list of numbers above 0", option, f"write {option} 1,4,16")
    return [int(word) for word in words]


def _run(rows: list[TableRow], groups: list[list[str]], options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="gpucast-model-") as folder:

        def jobs():
            for number, (row, group) in enumerate(itertools.product(rows, groups)):
                path = Path(folder) / f"{row.name.replace(',', '')}-{row.batch}.py"
                path.write_text(row.text, encoding="utf-8")
                job = {"name": str(number), "command": [sys.executable, str(path)], "gpu": group[0], "folder": folder}
                job["log"] = os.path.join(folder, f"{number}.log")
                yield {**job, "world_size": options.gpus} if options.gpus > 1 else job

        total = len(rows) * len(groups)
        for done, result in enumerate(judged_rows(jobs(), [], groups), 1):
            row = rows[int(result["name"]) // len(groups)]
            row.cards.update(result["cards"])
            log = Path(folder) / f"{result['name']}.log"
            if log.exists():
                row.stages = stages_of(log.read_text(encoding="utf-8", errors="replace")) or row.stages
            if result.get("error"):
                printed = (result.get("printed") or "").strip().splitlines()
                row.problem = ": ".join([result["error"]["message"], *printed[-1:]])
            if sys.stderr.isatty():
                print(f"\r\033[K{done} of {total} runs" if done < total else "\r\033[K", end="", file=sys.stderr, flush=True)


def _print_json(model: Model, rows: list[TableRow]) -> None:
    lines = [
        {"row": row.name, "batch": row.batch, "cards": row.cards, "stages": row.stages, "problem": row.problem or None} for row in rows
    ]
    head = {"name": model.name, "source": model.source}
    print(
        json.dumps({"schema_version": 1, "model": head, "rows": [{k: v for k, v in line.items() if v != {}} for line in lines]}, indent=2)
    )


def _print_text(rows: list[TableRow], groups: list[list[str]], inference: bool) -> None:
    cards = [card for group in groups for card in group]
    stages = (("weights", "weights"), ("kv_cache", "KV cache"), ("prefill_peak", "prefill"), ("decode_peak", "decode")) if inference else ()
    width = 11 if inference else 19
    print(
        f"{'length' if inference else 'precision':>10} {'batch':>6}"
        + "".join(f"{text:>10}" for _, text in stages)
        + "".join(f"{card:>{width}}" for card in cards)
    )
    capacities = {card: values["capacity_bytes"] for row in rows for card, values in row.cards.items()}
    print(
        " " * (17 + 10 * len(stages))
        + "".join(f"{'of ' + _gib(capacities[card]) if card in capacities else '':>{width}}" for card in cards)
    )
    for row in rows:
        figures = "".join(f"{_gib(row.stages.get(name + '_bytes')):>10}" for name, _ in stages)
        cells = "".join(f"{_cell(row.cards.get(card), inference):>{width}}" for card in cards)
        print(f"{row.name:>10} {row.batch:>6}{figures}{cells}")
    print("\nGiB on the card, to ask for" + ("" if inference else ", and a step's time") + "; ~: may not fit, x: does not fit")
    for problem in dict.fromkeys(row.problem for row in rows if row.problem):
        print(f"-: {problem}")


def _gib(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**30:.2f}"


def _cell(card: dict[str, Any] | None, inference: bool) -> str:
    if card is None:
        return "-"
    time = "" if inference else f" {_time(card)}"
    return (
        f"{_SIGNS[card['status']]} {_gib(card['request_bytes'])}{time:>9}"
        if time
        else f"{_SIGNS[card['status']]} {_gib(card['request_bytes'])}"
    )


def _time(card: dict[str, Any]) -> str:
    if card["status"] == "does_not_fit" or "step_ns" not in card:
        return ""
    step_ms = card["step_ns"] / 1e6
    return f"{step_ms:.0f} ms" if step_ms < 1000 else duration_text(step_ms / 1e3) if step_ms >= 60000 else f"{step_ms / 1e3:.2f} s"
