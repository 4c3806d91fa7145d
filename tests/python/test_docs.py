"""The documentation holds together: links lead somewhere, the index lists every page, one version is everywhere."""

import datetime
import itertools
import re
import subprocess
import urllib.parse
from pathlib import Path

import pytest

from eval import page as results_page

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"
PAGES = sorted(page for page in DOCS.rglob("*.md") if page != INDEX)
READ = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", INDEX, *PAGES, *sorted((ROOT / "eval").rglob("*.md"))]


def without_code(text):
    """Fenced blocks, indented blocks and code in a line hold no links and no headings."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def links(page):
    """Relative targets of a page's links and images."""
    targets = re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text()))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page):
    """What GitHub makes of a page's headings."""
    found = []
    for heading in re.findall(r"^#+ +(.*?) *$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        again = sum(1 for other in found if other == anchor or re.fullmatch(re.escape(anchor) + r"-\d+", other))
        found.append(f"{anchor}-{again}" if again else anchor)
    return found


def broken(page):
    """Links of a page that point at no file, or at no heading of it."""
    missing = []
    for link in links(page):
        path, _, anchor = urllib.parse.unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    return missing


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "other.md").write_text("# A heading: `code`, twice\n## Twice\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md#a-heading-code-twice) [b](other.md#twice-1) [c](gone.md) [d](other.md#gone) [e](https://x.y) `[f](gone)`\n    [g](gone)\n"
    )
    assert broken(page) == ["gone.md", "other.md#gone"]


def test_index_lists_every_page():
    listed = [(DOCS / link).resolve() for link in links(INDEX) if link.endswith(".md")]
    assert [page for page in PAGES if page not in listed] == []


def test_pages_that_the_source_names_exist():
    found = subprocess.run(
        [
            "git",
            "-C",
            ROOT,
            "grep",
            "-IohE",
            r"docs/(tutorial|howto|explanation|reference|results|images)/[a-z_/-]+\.(md|py|svg|png)",
            "--",
            "*.py",
            "*.cc",
            "*.h",
            "Makefile",
            "data",
            "tools",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [name for name in sorted(set(found.stdout.split())) if not (ROOT / name).exists()] == []


def test_readme_is_short_and_answers_first():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert any("FITS on" in line for line in lines[:25])
    assert {"    make demo", "    make test"} <= {line[:13] for line in lines}


def test_one_version(gpucast_bin):
    """CMake's is the wheel's (pyproject.toml reads it from there), the command's and the newest release's in CHANGELOG."""
    pattern = re.search(r"^regex = \'(.*)\'$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    version = re.search(pattern, (ROOT / "CMakeLists.txt").read_text())["value"]
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", headings[1])
    assert subprocess.run([gpucast_bin, "--version"], capture_output=True, text=True, check=True).stdout == f"gpucast {version}\n"


@pytest.mark.parametrize("page", sorted((DOCS / "results").glob("*.md")), ids=lambda page: page.stem)
def test_results_open_with_command_date_and_rows(page):
    lines = page.read_text().splitlines()
    assert lines[1:4] == ["", "| command | date | rows |", "|---|---|---|"]
    rows = list(itertools.takewhile(lambda line: line.startswith("|"), lines[4:]))
    assert rows
    for row in rows:
        command, rows_used = re.fullmatch(r"\| `(.+)` \| \d{4}-\d\d-\d\d \| (.*\w.*) \|", row).groups()
        words = command.split()
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
        if words[0] == "python":
            assert (ROOT / f"{words[2].replace('.', '/')}.py").exists(), command
        assert re.search(r"\d|million", rows_used), row


PAGE = """# Title

| command | date | rows |
|---|---|---|
| `python -m eval.thesis.tables ncf --csv F` | 2026-01-01 | 1 row |
| `python -m eval.thesis.tables resnet50` | 2026-01-01 | 2 rows |

<!-- ncf: begin -->
old
<!-- ncf: end -->
after
"""


def test_a_page_of_results_is_renewed(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    results_page.write(path, "python -m eval.thesis.tables ncf --csv G", "3 rows", {"ncf": "| new |"})
    today = str(datetime.date.today())
    assert path.read_text() == PAGE.replace("F` | 2026-01-01 | 1 row", f"G` | {today} | 3 rows").replace("old", "| new |")
    with pytest.raises(SystemExit, match="no row of python -m eval.thesis.tables vgg"):
        results_page.write(path, "python -m eval.thesis.tables vgg", "3 rows", {})
    with pytest.raises(SystemExit, match="no markers"):
        results_page.write(path, "python -m eval.thesis.tables ncf", "3 rows", {"resnet50": ""})
