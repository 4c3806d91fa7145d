#!/usr/bin/env python3
"""Triton's tutorials, unmodified, under `gpucast run --warp`, compared with the tables in its documentation.

    python -m eval.tutorials.evaluate --pages DIR --python ENV/bin/python [--gpucast BIN] [--logs DIR] [--rows]

figures.json has the published tables. DIR holds the tutorials of that release as the documentation offers them for download
(01-vector-add.py, ...). ENV has torch, triton, matplotlib, pandas and pytest. With --logs, what a tutorial printed is kept there, and a
tutorial whose output is there does not run again.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import tempfile

from eval import jobs
from eval.tables import ERROR_HEAD, error, error_cells, markdown, signed

HERE = pathlib.Path(__file__).resolve().parent


def printed_tables(text):
    """Table -> {x: {column: value}}, as triton.testing prints them: a title, the columns' names, numbered rows."""
    tables, title, columns = {}, None, None
    for line in text.splitlines():
        words = line.split()
        if len(words) == 1 and line.endswith(":"):
            title, columns = line[:-1], None
        elif title and columns is None:
            columns = [name.strip() for name in line.split("  ") if name.strip()]
            tables[title] = {}
        elif title and words and words[0].isdigit() and len(words) == len(columns) + 1:
            values = dict(zip(columns, map(float, words[1:])))
            tables[title][values[columns[0]]] = values
        elif title and words[:1] != [".."]:
            title = None
    return tables


def output_of(options, page):
    kept = options.logs and pathlib.Path(options.logs) / f"{page}.txt"
    if kept and kept.exists():
        return kept.read_text()
    with tempfile.TemporaryDirectory() as folder:  # tutorials save pictures
        script = (pathlib.Path(options.pages) / f"{page}.py").resolve()
        command = [
            jobs.find(options.gpucast),
            "run",
            "--warp",
            "--gpu",
            options.card,
            "--until-end",
            "--",
            os.path.abspath(options.python),
            script,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, "MPLBACKEND": "Agg"})
    if done.returncode != 0:
        raise SystemExit(f"{page}: {done.stderr.strip().splitlines()[-1]}")
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(done.stdout)
    return done.stdout


def rows_of(options, figures):
    """(table, column, x, measured, predicted), in the table's unit."""
    pages = {}
    for title, table in figures["tables"].items():
        page = table["page"]
        if page not in pages:
            pages[page] = printed_tables(output_of(options, page))
        printed = pages[page].get(title, {})
        for row in table["rows"]:
            found = printed.get(row[0], {})
            for column, measured in zip(table["columns"][1:], row[1:]):
                if column in found:
                    yield title, column, row[0], measured, found[column]


def time_error(unit, measured, predicted):
    """The error in time: the more a second, the shorter."""
    return error(predicted, measured) if unit == "ms" else error(measured, predicted)


def report(figures, rows, each):
    errors = collections.defaultdict(list)
    for title, column, _, measured, predicted in rows:
        errors[title, column].append(time_error(figures["tables"][title]["unit"], measured, predicted))
    everything = [one for of_column in errors.values() for one in of_column]
    lines = [[title, column, *error_cells(some)] for (title, column), some in [*errors.items(), (("all", ""), everything)]]
    out = markdown(["table", "column", *ERROR_HEAD], lines, 2)
    if not each:
        return out
    lines = []
    for title, column, x, measured, predicted in rows:
        unit = figures["tables"][title]["unit"]
        figure = signed(time_error(unit, measured, predicted), 1)
        lines.append([title, column, f"{x:g}", unit, f"{measured:.4g}", f"{predicted:.4g}", figure])
    return out + "\n\n" + markdown(["table", "column", "x", "unit", "measured", "gpucast", "error in time"], lines, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    jobs.add_gpucast_option(parser)
    parser.add_argument("--pages", required=True, help="folder with the tutorials")
    parser.add_argument("--python", required=True, help="the Python that runs them")
    parser.add_argument("--logs", help="keep in this folder what they print")
    parser.add_argument("--rows", action="store_true", help="also every row")
    options = parser.parse_args()
    figures = json.loads((HERE / "figures.json").read_text())
    options.card = figures["card"]
    rows = list(rows_of(options, figures))
    print(report(figures, rows, options.rows))


if __name__ == "__main__":
    main()
