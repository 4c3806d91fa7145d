#!/usr/bin/env python3
"""Counts hard English: phrases that CONTRIBUTING's plain words replace.

    tools/check_words.py                       a table by folder
    tools/check_words.py --phrases             a table by phrase
    tools/check_words.py --lines docs/howto    every place, in these files or folders

Text is counted in four kinds: docs (Markdown), quoted (code blocks in Markdown, mostly a program's output),
strings (literals in code: help, messages, reports) and comments. A count is a place to look at, not always a
fault: "behind" may stand for a place, and "as many as" may be the plainest words there are.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Phrase: (regular expression, better words). A space matches any white space, so a phrase may go over the end of a line.
UNAMBIGUOUS = {
    "in the place of": (r"in (?:the|its|their|his) (?:own )?places? of", "instead of"),
    "is told": (r"(?:is|are|was|were|be|been|being) told", "is reported, is known, gets"),
    "come of": (r"(?:comes?|came|coming) of", "follow from, is caused by"),
    "held against": (r"(?:held|hold|holds|holding) \w* ?against", "compared with"),
    "stand beside": (r"(?:stands?|stood|standing|put|puts) beside", "compared with, next to"),
    "taken as": (
        r"(?:takes?|took|taken|taking) (?:\w+ )?(?:as|for|to (?:be|have|hold|take)) (?!ever|well|long|much|many|few|it|every|\d)",
        "treated as, counted as",
    ),
    "behind which": (r"(?:behind|of|from) (?:which|whom)\b,?", "split the sentence"),
    "whose noun": (r"who(?: \w+)? (?:has|have|had|needs?|takes?|asks?|waits?)", "name it: a job that has"),
    "so many": (r"(?:so|just as|twice as) many", "that many, the number of"),
}
# Right in some sentences.
OTHERS = {
    "behind": (r"behind", "after (of time)"),
    "tells": (r"(?:tells?|telling)", "reports, shows"),
    "taken by": (r"(?:taken|takes?) (?:\w+ )?by", "estimated from"),
    "of which": (r", (?:\w+ )?of (?:which|them|these|those)", "split the sentence"),
    "as of": (r"as of", "since, same as"),
    "what X takes": (r"what (?:\w+ ){1,3}takes?", "X's memory, X's time"),
    "as many as": (r"as many (?:\w+ )?as", "the number of"),
    "nobody": (r"(?:nobody|no one)", "name the thing"),
    "beside": (r"beside", "next to, in addition to, compared with"),
    "be it": (r"(?:be it|that of|those of|the one that|the ones that)", "repeat the noun"),
    "goes by": (r"(?:go|goes|went|gone|going) by", "follows, uses"),
    "it is that": (r"(?:it is|that is) (?:\w+ )?(?:that|which|who)", "say it directly"),
    "ask": (r"(?:is|are|was|were) asked(?: of| for)?", "gpucast asks, requests"),
    "at that": (
        r"(?:for all that|at that(?! (?:moment|time|peak|point)\b)|all the same|as ever|by itself|by themselves)",
        "plainer words",
    ),
}


@dataclass
class Place:
    file: str
    line: int
    kind: str  # docs, quoted, strings, comments
    phrase: str
    text: str  # the line


C_TOKENS = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|R"(?P<mark>\w*)\((?P<raw>.*?)\)(?P=mark)"'
    r"|\b\d[\w'.]*"  # digit separators are not quotes
    r'|(?P<include>\#include[^\n]*)|(?P<string>"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|\'(?:\\.|[^\'\\\n])*\')',
    re.DOTALL,
)
PYTHON_TOKENS = re.compile(
    r"(?P<comment>#[^\n]*|\"\"\".*?\"\"\"|'''.*?''')"  # a doc string is a comment
    r'|(?P<string>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')',
    re.DOTALL,
)


def only(text: str, spans: list[tuple[int, int]]) -> str:
    """`text` with everything outside `spans`, and the signs of comments and strings, blank. Lines stay where they are."""
    kept = [char if char == "\n" else " " for char in text]
    for begin, end in spans:
        kept[begin:end] = re.sub(r"^[ \t]*(?:///?|\*|#)|[\"`]", lambda sign: " " * len(sign[0]), text[begin:end], flags=re.M)
    return "".join(kept)


def kinds_of_markdown(text: str) -> dict[str, str]:
    prose, quoted, fenced, at = [], [], False, 0
    previous_blank, indented = True, False
    for line in text.splitlines(keepends=True):
        fence = line.lstrip().startswith("```")
        indented = line.startswith("    ") and (previous_blank or indented)
        (quoted if fenced or fence or indented else prose).append((at, at + len(line)))
        fenced ^= fence
        previous_blank = not line.strip()
        at += len(line)
    return {"docs": only(text, prose), "quoted": only(text, quoted)}


def kinds_of_code(text: str, tokens: re.Pattern[str]) -> dict[str, str]:
    comments, strings = [], []
    for token in tokens.finditer(text):
        if token["comment"]:
            comments.append(token.span())
        elif token["string"]:
            strings.append(token.span())
        elif token.groupdict().get("raw"):
            strings.append(token.span("raw"))
    return {"strings": only(text, strings), "comments": only(text, comments)}


def kinds(file: Path) -> dict[str, str]:
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix == ".md":
        return kinds_of_markdown(text)
    return kinds_of_code(text, PYTHON_TOKENS if file.suffix == ".py" else C_TOKENS)


def compiled(phrases: dict[str, tuple[str, str]]) -> dict[str, re.Pattern[str]]:
    return {name: re.compile(r"\b(?:" + regex.replace(" ", r"\s+") + r")(?!\w)", re.I) for name, (regex, _) in phrases.items()}


def places(files: list[Path], phrases: dict[str, tuple[str, str]], root: Path = ROOT) -> list[Place]:
    found = []
    patterns = compiled(phrases)
    for file in files:
        lines = None
        for kind, text in kinds(file).items():
            for phrase, pattern in patterns.items():
                for match in pattern.finditer(text):
                    lines = lines or file.read_text(encoding="utf-8", errors="replace").split("\n")
                    number = text.count("\n", 0, match.start()) + 1
                    name = str(file.relative_to(root)) if file.is_relative_to(root) else str(file)
                    found.append(Place(name, number, kind, phrase, lines[number - 1].strip()))
    return found


def files_in(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix in {".md", ".cc", ".h", ".py", ".ts"} and file.is_file())


def default_files(root: Path) -> list[Path]:
    roots = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "src", "python", "web/src"]
    return [file for name in roots if (root / name).exists() for file in files_in(root / name)]


def folder(file: str) -> str:
    parts = file.split("/")
    if parts[0] == "web":
        return "web/src"
    return "/".join(parts[: 2 if len(parts) > 2 else 1])


def print_table(places: list[Place], row_of, names: list[str]) -> None:
    columns = ["docs", "quoted", "strings", "comments"]
    counts = Counter((row_of(place), place.kind) for place in places)
    width = max(map(len, [*names, "all"]))
    print(" " * width, *(f"{column:>9}" for column in columns))
    for name in [*names, "all"]:
        row = [sum(n for (row, kind), n in counts.items() if kind == column and name in (row, "all")) for column in columns]
        if any(row) or name == "all":
            print(f"{name:{width}}", *(f"{count or '.':>9}" for count in row))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders (default: README, CHANGELOG, docs, src, python, web/src)")
    parser.add_argument("--lines", action="store_true", help="print every place")
    parser.add_argument("--phrases", action="store_true", help="a table by phrase")
    parser.add_argument("--unambiguous", action="store_true", help="only phrases that are always replaced")
    parser.add_argument("--root", type=Path, default=ROOT, help="count in this copy of the repository")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    phrases = UNAMBIGUOUS if arguments.unambiguous else UNAMBIGUOUS | OTHERS
    files = [file for path in arguments.paths for file in files_in(path.resolve())] or default_files(root)
    found = places(files, phrases, root)
    if arguments.lines:
        for place in found:
            better = phrases[place.phrase][1]
            print(f"{place.file}:{place.line}: {place.kind}: {place.phrase} ({better}): {place.text[:160]}")
    elif arguments.phrases:
        print_table(found, lambda place: place.phrase, list(phrases))
    else:
        print_table(found, lambda place: folder(place.file), sorted({folder(place.file) for place in found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
