"""Reads a settings file (YAML, TOML, JSON) and sets one of its numbers, for `gpucast fit`. Runs in the command's own Python.

    edit.py numbers FILE           the file's whole numbers: {"numbers": {"train.batch_size": 8}}
    edit.py set FILE KEY VALUE     the file with another value there: {"text": "..."}; everything else stays, comments too

Prints one JSON object. {"problem", "line", "column"}: why it could not; line and column count from 1, 0: unknown.
"""

import json
import re
import sys
from pathlib import Path


class Problem(Exception):
    def __init__(self, text, line=0, column=0):
        super().__init__(text)
        self.line, self.column = line, column


def load_json(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Problem(f"it is no JSON: {error.msg}", error.lineno, error.colno) from None


def load_toml(text):
    try:
        import tomllib
    except ImportError:
        try:
            import tomli as tomllib
        except ImportError:
            raise Problem("this Python has no reader of TOML: Python 3.11 has one, or pip install tomli") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+), column (\d+)", str(error))
        raise Problem(f"it is no TOML: {error}", *map(int, place.groups() if place else (0, 0))) from None


def yaml_module():
    try:
        import yaml
    except ImportError:
        raise Problem("this Python has no reader of YAML: pip install pyyaml") from None
    return yaml


def compose_yaml(text):
    yaml = yaml_module()
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise Problem(f"it is no YAML: {error.problem}", *((mark.line + 1, mark.column + 1) if mark else (0, 0))) from None
    except yaml.YAMLError as error:
        raise Problem(f"it is no YAML: {error}") from None


def yaml_scalars(node, path=()):
    """(path, node) of each scalar in mappings and lists."""
    yaml = yaml_module()
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from yaml_scalars(value, (*path, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from yaml_scalars(value, (*path, str(number)))
    elif node is not None:
        yield path, node


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, (*path, str(key)))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from leaves(part, (*path, str(number)))
    else:
        yield path, value


def numbers_of(kind, text):
    if kind == "yaml":
        found = (
            (path, node.value.replace("_", "")) for path, node in yaml_scalars(compose_yaml(text)) if node.tag == "tag:yaml.org,2002:int"
        )
        return {".".join(path): int(value) for path, value in found if value.lstrip("+-").isdigit()}
    values = (load_json if kind == "json" else load_toml)(text)
    return {".".join(path): value for path, value in leaves(values) if isinstance(value, int) and not isinstance(value, bool)}


def set_yaml(text, key, value):
    for path, node in yaml_scalars(compose_yaml(text)):
        if ".".join(path) == key:
            return text[: node.start_mark.index] + value + text[node.end_mark.index :]
    return None


def set_json(text, key, value):
    values = load_json(text)
    *folders, last = key.split(".")
    place = values
    for name in folders:
        place = place[int(name)] if isinstance(place, list) else place.get(name, {})
    if isinstance(place, list):
        place[int(last)] = int(value)
    elif last in place:
        place[last] = int(value)
    else:
        return None
    return json.dumps(values, indent=2) + "\n"


def set_toml(text, key, value):
    """The line of the key under its table's heading, or the dotted key where it stands."""
    table, lines = "", text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        heading = re.match(r"\s*\[([^\[\]]+)\]", line)
        if heading:
            table = re.sub(r"\s|[\"']", "", heading[1]) + "."
            continue
        entry = re.match(r"(\s*)([\w.\"'-]+)(\s*=\s*)([+-]?[\d_]+)(.*)", line, re.DOTALL)
        if entry and table + re.sub(r"[\"']", "", entry[2]) == key:
            lines[number] = entry[1] + entry[2] + entry[3] + value + entry[5]
            return "".join(lines)
    return None


def set_number(kind, text, key, value):
    before = numbers_of(kind, text)
    if key not in before:
        raise Problem(f"it has no whole number '{key}'; it has {', '.join(list(before)[:20]) or 'none'}")
    after = {"yaml": set_yaml, "json": set_json, "toml": set_toml}[kind](text, key, value)
    if after is None or numbers_of(kind, after) != {**before, key: int(value)}:
        raise Problem(f"'{key}' cannot be set where it stands: write it as a plain number on a line of its own")
    return after


def main(action, file, *rest):
    path = Path(file)
    kind = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}.get(path.suffix.lower())
    try:
        if kind is None:
            raise Problem("only .yaml, .yml, .toml and .json files can be read")
        text = path.read_text(encoding="utf-8")
        result = {"numbers": numbers_of(kind, text)} if action == "numbers" else {"text": set_number(kind, text, *rest)}
    except Problem as problem:
        result = {"problem": str(problem), "line": problem.line, "column": problem.column}
    except (OSError, UnicodeDecodeError) as error:
        result = {"problem": f"it cannot be read: {error}", "line": 0, "column": 0}
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
