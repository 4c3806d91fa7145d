"""The cases of a spec, one by one, and each one's job. Nothing here keeps a list of cases: there may be many."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..command import Error
from .conditions import BadCondition
from .spec import SETTINGS, Spec, text_of


@dataclass(frozen=True)
class Case:
    number: int  # its place among all combinations, the excluded ones counted too
    values: dict[str, Any]

    @property
    def id(self) -> str:
        """The same for the same values in every sweep."""
        text = json.dumps(self.values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def combination_count(spec: Spec) -> int:
    return len(spec.entries) * math.prod(len(values) for values in spec.variables.values())


def case_at(spec: Spec, number: int) -> Case:
    """The case with this number, found without counting to it."""
    rest, digits = number, []
    for values in reversed(spec.variables.values()):
        rest, digit = divmod(rest, len(values))
        digits.append(values[digit])
    return Case(number, {**spec.entries[rest], **dict(zip(spec.variables, reversed(digits)))})


def cases(spec: Spec) -> Iterator[Case]:
    number = itertools.count()
    for entry in spec.entries:
        for combination in itertools.product(*spec.variables.values()):
            case = Case(next(number), {**entry, **dict(zip(spec.variables, combination))})
            if is_wanted(spec, case.values):
                yield case


def is_wanted(spec: Spec, values: dict[str, Any]) -> bool:
    """A condition on a name that a case does not have does not concern the case."""
    try:
        if any(condition.concerns(values) and condition.holds(values) for condition in spec.exclude):
            return False
        return all(condition.holds(values) for condition in spec.require if condition.concerns(values))
    except BadCondition as error:
        shown = ", ".join(f"{name} {text_of(value)}" for name, value in values.items())
        raise Error(str(error), f"the case {shown}", "change the condition, or the values") from None


def words_of(spec: Spec, values: dict[str, Any]) -> list[str]:
    """The command of a case: placeholders filled, flags and overrides at the end."""
    words, added = list(spec.command), []
    for name, value in values.items():
        place = "{" + name + "}"
        if any(place in word for word in spec.command):
            words = [word.replace(place, text_of(value)) for word in words]
        elif name.endswith("="):
            added += [] if value is None else [name + text_of(value)]
        elif name.startswith("-"):
            added += _flag(name, value)
    return words + added


def _flag(name: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [name]
    return [name, *map(text_of, value if isinstance(value, list) else [value])]


def job_of(spec: Spec, case: Case) -> dict[str, Any]:
    """A job of `gpucast batch`, without its name and its card."""
    environment = dict(spec.environment)
    job = {"command": words_of(spec, case.values), **spec.settings}
    for name, value in case.values.items():
        place = "{" + name + "}"
        environment = {key: text and text.replace(place, text_of(value)) for key, text in environment.items()}
        if name.startswith("$"):
            environment[name[1:]] = None if value is None else text_of(value)
        elif name in SETTINGS:
            job[name] = value
    if isinstance(job.get("what_if"), str):
        job["what_if"] = [job["what_if"]]
    if job.get("ranks") is not None:
        job["ranks"] = ",".join(map(str, job["ranks"] if isinstance(job["ranks"], list) else [job["ranks"]]))
    job["gpus"] = job.pop("gpus_per_node", None)
    if environment:
        job["environment"] = environment
    return {key: value for key, value in job.items() if value is not None}


def run_line(job: dict[str, Any], gpu: str) -> str:
    """A line for a shell: the run of this job alone."""
    words = ["gpucast", "run", "--gpu", gpu]
    for key, option in (
        ("gpus", "--gpus"),
        ("world_size", "--world-size"),
        ("ranks", "--ranks"),
        ("steps", "--steps"),
        ("confidence", "--confidence"),
        ("timeout_s", "--timeout"),
        ("cudnn", "--cudnn"),
    ):
        if key in job:
            words += [option, str(job[key])]
    for what_if in job.get("what_if", ()):
        words += ["--what-if", what_if]
    environment = job.get("environment")
    line = shlex.join([*(["env", *_options_first(environment)] if environment else []), *words, "--", *job["command"]])
    return f"cd {shlex.quote(job['folder'])} && {line}" if "folder" in job else line


def _options_first(environment: dict[str, str | None]) -> list[str]:
    """The words of `env`."""
    removed = [word for name, value in environment.items() if value is None for word in ("-u", name)]
    return removed + [f"{name}={value}" for name, value in environment.items() if value is not None]
