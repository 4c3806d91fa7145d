"""Modules of bench/ and tools/ and scripts of eval/ are imported by their bare names, several folders' in one process: a name must say which one."""

import re

import pytest
from conftest import ROOT
from test_eval_package import is_script

pytestmark = pytest.mark.once


def test_an_imported_name_is_one_file():
    modules = [path for folder in ("bench", "tools", "examples", "tests") for path in (ROOT / folder).rglob("*.py")]
    modules += [path for path in (ROOT / "eval").rglob("*.py") if is_script(path)]
    places = {}
    for path in modules:
        places.setdefault(path.stem, set()).add(str(path.relative_to(ROOT)))
    text = "\n".join(path.read_text() for path in modules)
    imported = set(re.findall(r"^(?:import|from) (\w+)\b", text, re.MULTILINE))
    assert {"measure", "step_job", "conftest"} <= imported
    assert {name: sorted(paths) for name, paths in places.items() if name in imported and len(paths) > 1} == {}
