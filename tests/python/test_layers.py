"""Includes and imports go one way: C++ by the table of rooms in CONTRIBUTING.md, the capture layer down the list in its __init__.py."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LAYER = ROOT / "python/gpucast"
INCLUDE = re.compile(r'^#include "((?:src|gpucast)/[^"]+)"', re.MULTILINE)
# Circles of files that stay: a list and its entries name each other.
CIRCLES = {
    frozenset({"src/cli/arguments", "src/cli/subcommand"}),
    frozenset({"src/orchestrate/method_dnnmem", "src/orchestrate/method_veritasest", "src/orchestrate/rules"}),
    frozenset({"src/time/duration", "src/time/kinds"}),
}


def listed():
    return re.findall(r"^    (\w+)  +\S", ast.get_docstring(ast.parse((LAYER / "__init__.py").read_text()), clean=False), re.MULTILINE)


def imports(path):
    """Modules of the layer that one of its modules imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.level == 1 or (node.module or "").startswith("_gpucast")):
            below = (node.module or "").replace("_gpucast", "").strip(".")
            found.update([below] if below else [alias.name for alias in node.names])
    return found


def test_imports_go_down_the_list():
    modules = listed()
    assert sorted(modules) == sorted(path.stem for path in LAYER.glob("*.py") if path.stem != "__init__")
    upwards = []
    for place, name in enumerate(modules):
        upwards += [f"{name} imports {other}" for other in imports(LAYER / f"{name}.py") if other not in modules[place + 1 :]]
    assert upwards == []


class Rooms:
    """The table of rooms in CONTRIBUTING.md."""

    def __init__(self):
        text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Rooms")[1].split("\n## ")[0]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")][2:]
        self.may_include = {room: {name.strip() for name in others.split(",")} for room, _, others in rows}
        self.may_include["cli"] = self.may_include.keys() - {"vgpu"}
        self.of_header = {name.strip(): room for room, headers, _ in rows for name in headers.split(",") if name.strip()}

    def room_of(self, path):
        """Of a path such as "src/work/observe_step.cc", "gpucast/trace.h", "include/gpucast/trace.h"."""
        parts = Path(path).parts
        return parts[1] if parts[0] == "src" else self.of_header[Path(path).stem]


def source_files():
    for folder in ("src", "include"):
        for path in sorted((ROOT / folder).rglob("*")):
            helper = path.name.startswith(("test_", "hand_made_")) or path.stem.endswith(("_test", "_bench"))
            if path.suffix in (".h", ".cc") and not helper:
                yield path.relative_to(ROOT).as_posix(), INCLUDE.findall(path.read_text(encoding="utf-8"))


def upward_includes(rooms, files):
    found = []
    for path, included in files:
        room = rooms.room_of(path)
        found += [f"{path} includes {other}" for other in included if rooms.room_of(other) not in rooms.may_include[room] | {room}]
    return found


def circles(files):
    """Sets of files (a header and its source are one) that include each other: strongly connected components, by Tarjan."""
    edges = defaultdict(set)
    for path, included in files:
        unit = path.rpartition(".")[0]
        for other in included:
            other = ("include/" if other.startswith("gpucast/") else "") + other.rpartition(".")[0]
            if other != unit:
                edges[unit].add(other)
    index, low, stack, found = {}, {}, [], set()

    def visit(unit):
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        for other in edges[unit]:
            if other not in index:
                visit(other)
            if other in stack:
                low[unit] = min(low[unit], low[other])
        if low[unit] == index[unit]:
            members = stack[stack.index(unit) :]
            del stack[stack.index(unit) :]
            if len(members) > 1:
                found.add(frozenset(members))

    for unit in list(edges):
        if unit not in index:
            visit(unit)
    return found


@pytest.mark.once
def test_includes_follow_the_table_of_rooms():
    rooms = Rooms()
    assert {path.name for path in (ROOT / "src").iterdir() if path.is_dir()} == set(rooms.may_include)
    assert {path.stem for path in (ROOT / "include/gpucast").glob("*.h")} == set(rooms.of_header)
    assert upward_includes(rooms, source_files()) == []


@pytest.mark.once
def test_the_table_itself_has_no_circle():
    rooms = list(Rooms().may_include.items())
    lower = {""}
    for room, others in rooms[: [room for room, _ in rooms].index("cli")]:
        assert others <= lower, f"{room} may include {others - lower}, which stand below it in the table"
        lower.add(room)


@pytest.mark.once
def test_an_include_against_the_table_is_found():
    rooms = Rooms()
    assert upward_includes(rooms, [("src/time/duration.cc", ["src/cli/arguments.h"])]) == [
        "src/time/duration.cc includes src/cli/arguments.h"
    ]
    assert upward_includes(rooms, [("src/report/text_report.cc", ["src/lifetime/lifetime.h"])]) != []
    files = [("src/a/one.h", ["src/a/two.h"]), ("src/a/two.cc", ["src/a/three.h"]), ("src/a/three.h", ["src/a/one.h"])]
    assert circles(files) == {frozenset({"src/a/one", "src/a/two", "src/a/three"})}


@pytest.mark.once
def test_no_new_circles_of_files():
    core = {circle for circle in circles(source_files()) if not all(unit.startswith("src/vgpu/core/") for unit in circle)}
    assert core == CIRCLES


def imports_of_package(folder):
    return [(f"{path.stem}.py", [f"{name}.py" for name in imports(path)]) for path in folder.glob("*.py") if path.stem != "__init__"]


@pytest.mark.once
def test_the_api_has_no_circle():
    assert circles(imports_of_package(ROOT / "python/api/gpucast")) == set()


# Functions that glibc has since 2.18 or later. The wheel is built for 2.17, which `make wheel` alone would show.
NEWER_THAN_THE_WHEEL = """close_range copy_file_range explicit_bzero getrandom gettid memfd_create mlock2 pidfd_open preadv2 pwritev2 reallocarray
renameat2 statx strerrorname_np"""


def test_sources_compile_for_the_wheels_glibc():
    call = re.compile(rf"(?<![\w:.>])(?:::)?({'|'.join(NEWER_THAN_THE_WHEEL.split())})\(")
    calls = [f"{path}: {name}" for path, _ in source_files() for name in call.findall((ROOT / path).read_text(encoding="utf-8"))]
    assert calls == []
