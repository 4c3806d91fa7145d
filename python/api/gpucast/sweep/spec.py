"""What a spec says, checked: docs/reference/sweep.md describes each key."""

from __future__ import annotations

import difflib
import os
import shlex
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from ..command import Error
from .conditions import BadCondition, Condition, parse_condition
from .documents import Document, read_document

KEYS = ("command", "vary", "list", "exclude", "require", "gpus", "steps", "what_if", "world_size", "ranks", "gpus_per_node")
KEYS += ("timeout_s", "confidence", "cudnn", "environment", "folder", "study")
SETTINGS = ("steps", "what_if", "world_size", "ranks", "gpus_per_node")  # of a run, which may vary, too
DEFAULT_SETTINGS = ("timeout_s", "confidence", "cudnn")
MOST_CASES = 1_000_000
# A variable with such a name would hide a column of the results.
COLUMNS = ("case", "gpu", "status", "capacity_bytes", "peak_reserved_bytes", "peak_allocated_bytes", "device_expected_bytes")
COLUMNS += ("request_bytes", "step_ns", "step_low_ns", "step_high_ns", "samples_per_s", "seconds", "error_code", "error", "run", "capture")
OBJECTIVES = ("samples_per_s", "step_ns", "peak_reserved_bytes", "device_expected_bytes", "request_bytes")


@dataclass(frozen=True)
class Study:
    trials: int
    objective: str
    maximise: bool
    seed: int
    at_once: int


@dataclass(frozen=True)
class Spec:
    command: list[str]
    variables: dict[str, list[Any]]  # of "vary": every combination
    entries: list[dict[str, Any]]  # of "list": each with every combination
    gpus: list[str]
    exclude: list[Condition] = field(default_factory=list)
    require: list[Condition] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)  # keys of a job of `gpucast batch`
    environment: dict[str, str | None] = field(default_factory=dict)
    study: Study | None = None
    data: dict[str, Any] = field(default_factory=dict)  # everything that decides the rows, for the journal

    @property
    def names(self) -> list[str]:
        """All names that vary, in the order of columns."""
        return list(dict.fromkeys([name for entry in self.entries for name in entry] + list(self.variables)))


def read_spec(path: str) -> Spec:
    return spec_of(read_document(path))


def spec_of(document: Document) -> Spec:
    data = document.data
    if not isinstance(data, dict):
        raise Error("the spec has no keys", document.where(), "begin with: command: python train.py")
    _check_keys(document, data, KEYS, ())
    command = _command(document, data)
    environment = _environment(document, data)
    variables = {name: _values(document, values, ("vary", name)) for name, values in _mapping(document, data, "vary").items()}
    for name in set(SETTINGS) & set(variables):
        for i, value in enumerate(variables[name]):
            _check_setting(document, name, value, ("vary", name, i))
    entries = _entries(document, data, variables)
    names = list(dict.fromkeys([name for entry in entries for name in entry] + list(variables)))
    words = [*command, *(value for value in environment.values() if value)]
    for name in names:
        at = ("vary", name) if name in variables else ("list",)
        _check_name(document, name, words, at)
    spec = Spec(
        command=command,
        variables=variables,
        entries=entries,
        gpus=_gpus(document, data),
        exclude=_conditions(document, data, "exclude", names),
        require=_conditions(document, data, "require", names),
        settings=_settings(document, data),
        environment=environment,
        study=_study(document, data),
        data=_canonical(data, command, variables, entries),
    )
    _check_size(document, spec)
    return spec


def _canonical(data, command, variables, entries) -> dict[str, Any]:
    canonical = {**data, "command": command, "folder": os.path.abspath(data.get("folder") or ".")}
    if variables:
        canonical["vary"] = variables
    if "list" in data:
        canonical["list"] = entries
    return canonical


def _check_keys(document: Document, data: dict, known, path: tuple) -> None:
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            to_do = f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(known)}"
            inside = f' in "{path[-1]}"' if path else " in a spec"
            raise Error(f'there is no "{key}"{inside}', document.where(*path, key), to_do)


def _check_name(document: Document, name: str, words: list[str], at: tuple) -> None:
    if name in COLUMNS:
        raise Error(f'"{name}" is a column of the results', document.where(*at), "give the variable another name")
    is_placed = any("{" + name + "}" in word for word in words)
    if is_placed or name in SETTINGS or name.startswith(("-", "$")) or name.endswith("="):
        return
    near = difflib.get_close_matches(name, SETTINGS, 1, 0.8)
    to_do = f"write {{{name}}} in the command where its value goes; or name a flag (--{name}), an override ({name}=) or ${name}"
    raise Error(f"no word of the command has {{{name}}} in it", document.where(*at), f'did you mean "{near[0]}"?' if near else to_do)


def _mapping(document: Document, data: dict, key: str) -> dict:
    value = data.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Error(f'"{key}" must have names and values', document.where(key), "as in: --batch: [8, 16, 32]")
    return value


def _command(document: Document, data: dict) -> list[str]:
    command = data.get("command")
    if isinstance(command, str):
        try:
            command = shlex.split(command)
        except ValueError:
            raise Error('"command" leaves a quote open', document.where("command"), "close it") from None
    good = isinstance(command, list) and command and all(isinstance(word, (str, int, float)) for word in command)
    if not good:
        what = '"command" must be a text or a list of words' if "command" in data else '"command" is missing'
        raise Error(what, document.where("command"), "name what to run: command: python train.py")
    return [str(word) for word in command]


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


def _values(document: Document, values: Any, path: tuple) -> list[Any]:
    if isinstance(values, dict):
        return _range(document, values, path)
    if _is_scalar(values) and values is not None:
        values = [values]
    if not isinstance(values, list) or not values:
        raise Error(f'"{path[-1]}" has no values', document.where(*path), "as in: [8, 16, 32], or {from: 8, to: 64, times: 2}")
    for i, value in enumerate(values):
        _check_value(document, value, (*path, i))
        if any(_same(value, other) for other in values[:i]):
            raise Error(f'"{path[-1]}" has the value {value} twice', document.where(*path, i), "leave one out")
    return values


def _same(a: Any, b: Any) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _check_value(document: Document, value: Any, path: tuple) -> None:
    if not (_is_scalar(value) or (isinstance(value, list) and all(_is_scalar(part) and part is not None for part in value))):
        raise Error("a value must be a number, a text, true, false, null, or a list of words", document.where(*path), "see sweep.md")


def _range(document: Document, values: dict, path: tuple) -> list[Any]:
    _check_keys(document, values, ("from", "to", "step", "times"), path)
    example = f'as in: "{path[-1]}": {{from: 8, to: 64, times: 2}} (8, 16, 32, 64), or with step: 8'
    kinds = [key for key in ("step", "times") if key in values]
    numbers = {key: value for key, value in values.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}
    if len(numbers) != 3 or len(kinds) != 1:
        raise Error(f'"{path[-1]}" must have from, to, and step or times: numbers', document.where(*path), example)
    first, last, by = (Decimal(str(numbers[key])) for key in ("from", "to", kinds[0]))
    grows = by > 0 if kinds[0] == "step" else by > 1 and first > 0
    if first > last or not grows:
        raise Error(f'"{path[-1]}" never goes from {first} to {last}', document.where(*path), example)
    out = []
    whole = all(isinstance(number, int) for number in numbers.values())
    while first <= last:
        out.append(int(first) if whole else float(first))
        first = first + by if kinds[0] == "step" else first * by
        if len(out) > MOST_CASES:
            raise Error(f'"{path[-1]}" has more than {MOST_CASES:,} values', document.where(*path), "name fewer")
    return out


def _entries(document: Document, data: dict, variables: dict) -> list[dict[str, Any]]:
    entries = data.get("list")
    if entries is None:
        return [{}]
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) and entry for entry in entries):
        raise Error('"list" must be a list of cases', document.where("list"), "as in: - {--model: vit, --batch: 32}")
    seen = set()
    for i, entry in enumerate(entries):
        for name, value in entry.items():
            _check_value(document, value, ("list", i, name))
            if name in variables:
                raise Error(f'"{name}" is in "list" and in "vary"', document.where("list", i, name), "leave one out")
        key = repr(sorted(entry.items()))
        if key in seen:
            raise Error("this case is there twice", document.where("list", i), "leave one out")
        seen.add(key)
    return entries


def _conditions(document: Document, data: dict, key: str, names: list[str]) -> list[Condition]:
    texts = data.get(key) or []
    texts = [texts] if isinstance(texts, str) else texts
    out = []
    for i, text in enumerate(texts if isinstance(texts, list) else [None]):
        if not isinstance(text, str):
            raise Error(f'"{key}" must be a list of comparisons', document.where(key), 'as in: - "--batch * --seq > 65536"')
        try:
            out.append(parse_condition(text, names))
        except BadCondition as error:
            raise Error(str(error), document.where(key, i), "a comparison is like: --batch * --seq <= 65536 and --model != 'vit'") from None
    return out


def _gpus(document: Document, data: dict) -> list[str]:
    gpus = data.get("gpus")
    gpus = [gpus] if isinstance(gpus, str) else gpus
    if not isinstance(gpus, list) or not gpus or not all(isinstance(gpu, str) for gpu in gpus):
        raise Error('"gpus" must name cards', document.where("gpus"), "as in: gpus: [rtx4090, a100-80]; `gpucast gpus` lists them")
    if len(set(gpus)) < len(gpus):
        raise Error('"gpus" names a card twice', document.where("gpus"), "leave one out")
    return gpus


def _environment(document: Document, data: dict) -> dict[str, str | None]:
    out = {}
    for name, value in _mapping(document, data, "environment").items():
        if not _is_scalar(value):
            raise Error(f'"{name}" must be a text, a number, or null', document.where("environment", name), "null removes a variable")
        out[name] = text_of(value) if value is not None else None
    return out


def _settings(document: Document, data: dict) -> dict[str, Any]:
    settings = {key: data[key] for key in (*SETTINGS, *DEFAULT_SETTINGS) if data.get(key) is not None}
    for key, value in settings.items():
        _check_setting(document, key, value, (key,))
    if data.get("folder") is not None:
        if not isinstance(data["folder"], str) or not os.path.isdir(data["folder"]):
            raise Error('"folder" is no folder', document.where("folder"), "name the folder to run the command in")
        settings["folder"] = os.path.abspath(data["folder"])
    return settings


def _check_setting(document: Document, key: str, value: Any, path: tuple) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    good = {
        "steps": (number and isinstance(value, int)) or value in ("auto", "until-end"),
        "what_if": isinstance(value, (str, list)),
        "ranks": isinstance(value, (str, int, list)),
        "cudnn": isinstance(value, str),
        "timeout_s": number,
        "confidence": number,
    }
    kinds = {"steps": "a number of steps, auto or until-end", "what_if": "a name or a list of names", "ranks": "numbers of ranks"}
    kinds.update({"cudnn": "a text", "timeout_s": "a number of seconds", "confidence": "a probability"})
    if value is not None and not good.get(key, number and isinstance(value, int)):
        raise Error(f'"{key}" must be {kinds.get(key, "a whole number")}', document.where(*path), "see `gpucast run --help`")


def _study(document: Document, data: dict) -> Study | None:
    study = data.get("study")
    if study is None:
        return None
    example = "as in: study: {trials: 100, maximise: samples_per_s, seed: 0}"
    if not isinstance(study, dict):
        raise Error('"study" must have keys', document.where("study"), example)
    _check_keys(document, study, ("trials", "maximise", "minimise", "seed", "at_once"), ("study",))
    goals = [key for key in ("maximise", "minimise") if key in study]
    if len(goals) != 1 or study[goals[0]] not in OBJECTIVES:
        to_do = f"name one of: {', '.join(OBJECTIVES)}"
        raise Error('"study" must have maximise or minimise, and a column', document.where("study", *goals[:1]), to_do)
    numbers = {"trials": study.get("trials"), "seed": study.get("seed", 0), "at_once": study.get("at_once", 8)}
    for key, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < (0 if key == "seed" else 1):
            raise Error(f'"{key}" must be a whole number', document.where("study", key), example)
    return Study(numbers["trials"], study[goals[0]], goals[0] == "maximise", numbers["seed"], numbers["at_once"])


def _check_size(document: Document, spec: Spec) -> None:
    size = len(spec.entries)
    for values in spec.variables.values():
        size *= len(values)
    if size > MOST_CASES and spec.study is None:
        to_do = "name fewer values; or search with a study: {trials: 200, maximise: samples_per_s}"
        raise Error(f"{size:,} combinations are more than a sweep runs ({MOST_CASES:,})", document.where("vary"), to_do)


def text_of(value: Any) -> str:
    """A value as a word of a command."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
