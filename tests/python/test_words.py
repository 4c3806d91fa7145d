"""Texts contain no phrases that tools/check_words.py replaces with plainer words: what a user reads, and comments of the code."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]
# Add a folder or file once its count is zero: tools/check_words.py --unambiguous.
SCOPE = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/index.md", "docs/tutorial", "docs/howto", "docs/reference", "docs/results"]
# Strings and comments of these folders contain none of all phrases.
CODE_SCOPE = ["include", *sorted(str(room.relative_to(ROOT)) for room in (ROOT / "src").iterdir()), "web/src", "python"]
# Places where the phrase is right.
ALLOWED = {
    ("src/ledger/ledger_test.cc", "beside", "eval/memory/beside.csv"),
    ("include/gpucast/allocator.h", "behind which", "of which ... is free"),  # PyTorch's own message
    ("src/cli/replay.cc", "behind which", "of which {} is free"),
    ("src/vgpu/core/board_test.cc", "nobody", '"nobody"'),  # a name
}

spec = importlib.util.spec_from_file_location("check_words", ROOT / "tools" / "check_words.py")
check_words = importlib.util.module_from_spec(spec)
sys.modules["check_words"] = check_words  # dataclasses look their module up
spec.loader.exec_module(check_words)


def read_by_users(places):
    """Not comments, and not a program's output quoted in a page."""
    return [place for place in places if place.kind in ("docs", "strings")]


@pytest.mark.parametrize("name", SCOPE)
def test_no_phrase_that_is_always_replaced(name):
    files = check_words.files_in(ROOT / name)
    assert files
    found = read_by_users(check_words.places(files, check_words.UNAMBIGUOUS))
    assert [f"{place.file}:{place.line}: {place.phrase}" for place in found] == []


@pytest.mark.parametrize("name", CODE_SCOPE)
def test_code_speaks_plain_words(name):
    files = check_words.files_in(ROOT / name)
    assert files
    found = check_words.places(files, check_words.UNAMBIGUOUS | check_words.OTHERS)
    hard = [
        place
        for place in found
        if not any(place.file == file and place.phrase == phrase and text in place.text for file, phrase, text in ALLOWED)
    ]
    assert [f"{place.file}:{place.line}: {place.phrase}: {place.text}" for place in hard] == []


def test_every_kind_of_text_is_read(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("It is told,\nand in the\nplace of two.\n\n    quoted: it comes of this\n\n```\nit comes of that\n```\n")
    code = tmp_path / "code.cc"
    code.write_text(
        '// in the place of\nauto text = "in the "\n            "place of 1\'000";  // so many\nint number = 1\'000;\nauto raw = R"(so many)";\n'
    )
    script = tmp_path / "script.py"
    script.write_text('"""In the place of a module."""\nhelp = "is told"  # comes of\n')
    found = check_words.places([page, code, script], check_words.UNAMBIGUOUS, tmp_path)
    assert [(place.file, place.line, place.kind, place.phrase) for place in found] == [
        ("page.md", 2, "docs", "in the place of"),
        ("page.md", 1, "docs", "is told"),
        ("page.md", 5, "quoted", "come of"),
        ("page.md", 8, "quoted", "come of"),
        ("code.cc", 2, "strings", "in the place of"),
        ("code.cc", 5, "strings", "so many"),
        ("code.cc", 1, "comments", "in the place of"),
        ("code.cc", 3, "comments", "so many"),
        ("script.py", 2, "strings", "is told"),
        ("script.py", 1, "comments", "in the place of"),
        ("script.py", 2, "comments", "come of"),
    ]
