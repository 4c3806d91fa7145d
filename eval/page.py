"""Pages of docs/results. The table under the title names the command that made the figures, the date and the rows. A script's tables
are between its markers. `write` renews both, so a page never shows new figures under an old date."""

import datetime
import re


def between(document, name, text):
    """The document with `text` between the markers of `name`."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if begin not in document or end not in document:
        raise SystemExit(f"the page has no markers {begin} and {end}")
    before, rest = document.split(begin)
    return f"{before}{begin}\n{text.strip()}\n{end}{rest.split(end)[1]}"


def opening(*rows, day=None):
    """The table under a page's title: `rows` are pairs of a command and a few words on its rows."""
    lines = ["| command | date | rows |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| `{command}` | {day or datetime.date.today()} | {words} |" for command, words in rows)])


def dated(document, command, rows, day=None):
    """The document with `day` (today) and `rows` in the row of `command`. The row is found by the words before the first option."""
    words = command.split(" --")[0]
    row = opening((command, rows), day=day).splitlines()[-1]
    renewed, found = re.subn(rf"^\| `{re.escape(words)}(`| --).*$", lambda _: row, document, count=1, flags=re.MULTILINE)
    if not found:
        raise SystemExit(f"the page's table of commands has no row of {words}")
    return renewed


def write(path, command, rows, tables):
    """Renews a page: `tables` by the name of their markers, the command, today's date and a few words on the rows."""
    document = path.read_text()
    for name, text in tables.items():
        document = between(document, name, text)
    path.write_text(dated(document, command, rows))
