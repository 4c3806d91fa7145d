"""An HTML page of a sweep's rows: the page of web/src/cases.ts with the rows in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from ..command import run_command
from .spec import Spec
from .tables import replaced

PLACE = "<!--gpucast:cases-->"


def write_page(spec: Spec, title: str, rows: Iterable[dict[str, Any]], path: str) -> bool:
    """False: this gpucast was built without pages."""
    template = run_command(["sweep", "--page"])
    if PLACE not in template:
        return False
    before, after = template.split(PLACE)
    folder = os.path.dirname(os.path.abspath(path))
    with replaced(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(before + '<script type="application/json" id="cases">')
        file.write(_json({"title": title, "names": spec.names, "gpus": spec.gpus})[:-1] + ',"rows":[')
        for i, row in enumerate(rows):
            if row["capture"]:
                row = {**row, "capture": os.path.relpath(row["capture"], folder)}
            file.write((",\n" if i else "\n") + _json({key: value for key, value in row.items() if value is not None}))
        file.write("]}</script>" + after)
    return True


def _json(value: Any) -> str:
    """Nothing in it ends the script that holds it."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
