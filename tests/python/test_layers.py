"""The capture layer's modules import each other in one direction: down the list in python/gpucast/__init__.py."""

import ast
import re
from pathlib import Path

LAYER = Path(__file__).resolve().parent.parent.parent / "python/gpucast"


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
