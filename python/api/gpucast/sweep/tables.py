"""CSV and Parquet of a sweep's rows, a part at a time: tables of any length use the same memory."""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..command import Error
from .spec import COLUMNS, Spec, text_of

ROWS_AT_ONCE = 2000
_TEXTS = ("case", "gpu", "status", "error_code", "error", "run", "capture")
_REALS = ("samples_per_s", "seconds")


@contextmanager
def replaced(path: str) -> Iterator[str]:
    """A temporary name to write to; at the end it becomes `path`, so a reader never sees half a file."""
    temporary = f"{path}.part"
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise Error(f"cannot write the result: {error.strerror}", path, "make room, or name another folder: -o FOLDER") from None
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def columns(spec: Spec) -> list[str]:
    """The case, its values, and its figures."""
    return [COLUMNS[0], *spec.names, *COLUMNS[1:]]


def write_csv(spec: Spec, rows: Iterable[dict[str, Any]], path: str) -> None:
    with replaced(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns(spec))
        for row in rows:
            values = [_cell(row["values"].get(name, "")) for name in spec.names]
            figures = ["" if row[name] is None else row[name] for name in COLUMNS]
            writer.writerow([figures[0], *values, *figures[1:]])


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(map(text_of, value))
    return text_of(value) if value is None or isinstance(value, bool) else value


def write_parquet(spec: Spec, rows: Iterable[dict[str, Any]], path: str) -> None:
    """Raises ImportError without pyarrow."""
    import pyarrow
    import pyarrow.parquet

    kinds = {name: _kind(pyarrow, spec, name) for name in spec.names}
    for name in COLUMNS:
        kinds[name] = pyarrow.string() if name in _TEXTS else pyarrow.float64() if name in _REALS else pyarrow.int64()
    schema = pyarrow.schema([(name, kinds[name]) for name in columns(spec)])
    rows = iter(rows)
    with replaced(path) as temporary, pyarrow.parquet.ParquetWriter(temporary, schema) as writer:
        while part := list(itertools.islice(rows, ROWS_AT_ONCE)):
            flat = [{**{name: _parquet_cell(row["values"].get(name), kinds[name], pyarrow) for name in spec.names}, **row} for row in part]
            writer.write_table(pyarrow.Table.from_pylist(flat, schema))


def _kind(pyarrow, spec: Spec, name: str):
    """A column of numbers where all values are numbers; else of texts."""
    values = spec.variables.get(name) or [entry[name] for entry in spec.entries if name in entry]
    types = {type(value) for value in values if value is not None}
    if types == {bool}:
        return pyarrow.bool_()
    if types == {int} and all(abs(value) < 2**63 for value in values if value is not None):
        return pyarrow.int64()
    return pyarrow.float64() if types and types <= {int, float} else pyarrow.string()


def _parquet_cell(value: Any, kind, pyarrow) -> Any:
    if value is None or kind != pyarrow.string():
        return value
    return " ".join(map(text_of, value)) if isinstance(value, list) else text_of(value)
