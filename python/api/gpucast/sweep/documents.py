"""A spec's text as plain data, and where each part of it is. Nothing in the text is executed."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from typing import Any, Callable

from ..command import Error

Path = tuple  # of keys and places in lists, from the outside


@dataclass(frozen=True)
class Document:
    name: str
    data: Any
    position: Callable[[Path], tuple[int, int] | None]  # line and column, from 1

    def where(self, *path) -> str:
        for length in range(len(path), -1, -1):
            found = self.position(path[:length])
            if found:
                return f"{self.name}, line {found[0]}, column {found[1]}"
        return self.name


def read_document(path: str) -> Document:
    name = os.path.basename(path)
    reader = {".yaml": _yaml, ".yml": _yaml, ".toml": _toml, ".json": _json}.get(os.path.splitext(name)[1].lower())
    if reader is None:
        raise Error("the spec is no YAML, TOML or JSON file by its name", path, "name it sweep.yaml, sweep.toml or sweep.json")
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        raise Error(f"cannot read the spec: {error.strerror}", path, "gpucast sweep SPEC.yaml") from None
    except UnicodeDecodeError as error:
        raise Error("the spec is not UTF-8", f"{path}, byte {error.start}", "save it as UTF-8") from None
    return reader(name, text)


def _not_readable(kind: str, name: str, problem: str, line: int | None, column: int | None) -> Error:
    where = f"{name}, line {line}, column {column}" if line else name
    return Error(f"the spec is not {kind}: {problem}", where, "check quotes, brackets, colons and indentation there")


def _json(name: str, text: str) -> Document:
    try:
        data = json.loads(text, object_pairs_hook=_without_doubles)
    except json.JSONDecodeError as error:
        raise _not_readable("JSON", name, error.msg, error.lineno, error.colno) from None
    except KeyError as error:
        line, column = _line_and_column(text, text.rfind(json.dumps(error.args[0])))
        raise _twice(name, error.args[0], line, column) from None
    return Document(name, data, lambda path: _find_keys(text, path))


def _without_doubles(pairs: list) -> dict:
    out = {}
    for key, value in pairs:
        if key in out:
            raise KeyError(key)
        out[key] = value
    return out


def _twice(name: str, key: Any, line: int, column: int) -> Error:
    return Error(f'"{key}" is there twice', f"{name}, line {line}, column {column}", "keep one of them")


def _toml(name: str, text: str) -> Document:
    try:
        import tomllib
    except ImportError:
        try:
            import tomli as tomllib
        except ImportError:
            to_do = f"{sys.executable} -m pip install tomli; or write the spec as JSON"
            raise Error("reading TOML needs Python 3.11 or the package tomli", name, to_do) from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at = re.search(r" \(at line (\d+), column (\d+)\)$", message)
        line, column = map(int, at.groups()) if at else _line_and_column(text, len(text))
        raise _not_readable("TOML", name, re.sub(r" \(at [^()]*\)$", "", message), line, column) from None
    return Document(name, data, lambda path: _find_keys(text, path))


def _find_keys(text: str, path: Path) -> tuple[int, int] | None:
    """The last key of a path in a JSON or TOML text. Keys are searched one after the other, each as it is written there."""
    at = 0
    for key in (key for key in path if isinstance(key, str)):
        bare = re.escape(key)
        found = re.compile(rf"""(?:^|(?<=[\s{{,.\["']))["']?{bare}["']?(?=\s*[:=.\]])""", re.MULTILINE).search(text, at)
        if not found:
            return None
        at = found.start()
    return _line_and_column(text, at)


def _line_and_column(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1


def _yaml(name: str, text: str) -> Document:
    try:
        import yaml
    except ImportError:
        to_do = f"{sys.executable} -m pip install 'gpucast[sweep]' (or pyyaml); or write the spec as TOML or JSON"
        raise Error("reading YAML needs the package PyYAML", name, to_do) from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = ", ".join(filter(None, (error.context, error.problem)))
        raise _not_readable("YAML", name, problem, mark and mark.line + 1, mark and mark.column + 1) from None
    except yaml.reader.ReaderError as error:
        line, column = _line_and_column(text, error.position)
        raise _not_readable("YAML", name, f"a character that YAML does not allow (U+{error.character:04X})", line, column) from None
    positions: dict[Path, tuple[int, int]] = {}
    data = _plain(yaml, name, root, (), positions) if root else None
    return Document(name, data, positions.get)


# YAML 1.2's plain words: in 1.1, `on` is true, 1:30 is 90 and 2026-01-01 is a date.
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "~": None, "": None}


def _plain(yaml, name: str, node, path: Path, positions: dict) -> Any:
    positions.setdefault(path, (node.start_mark.line + 1, node.start_mark.column + 1))
    if len(path) > 20:
        line, column = positions[path[:1]]
        raise Error("the spec is too deep, or contains itself", f"{name}, line {line}, column {column}", "write the values out")
    if isinstance(node, yaml.SequenceNode):
        return [_plain(yaml, name, entry, (*path, i), positions) for i, entry in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        out = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else "?"
            at = key_node.start_mark.line + 1, key_node.start_mark.column + 1
            if key in out:
                raise _twice(name, key, *at)
            positions[(*path, key)] = at
            out[key] = _plain(yaml, name, value_node, (*path, key), positions)
        return out
    if node.style is not None:  # quoted
        return node.value
    if node.value in _WORDS:
        return _WORDS[node.value]
    if re.fullmatch(r"[-+]?[0-9]+", node.value):
        return int(node.value)
    if re.fullmatch(r"[-+]?[0-9]+\.[0-9]*", node.value):
        return float(node.value)
    return node.value  # 1e-4 too: the command gets it as it is written
