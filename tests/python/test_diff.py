"""`gpucast diff` from the command line: bounds and exit codes. What it prints is in tests/cases/diff_*."""

import gzip
import json
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

CASES = Path(__file__).resolve().parent.parent / "cases"
SMALL = CASES / "real_mlp_torch26" / "input.jsonl"  # 246 MiB reserved
LARGE = CASES / "diff_above" / "input.jsonl"  # 330 MiB


@pytest.fixture
def diff(gpucast_bin):
    def run(*words):
        return subprocess.run([gpucast_bin, "diff", *map(str, words)], capture_output=True, text=True, timeout=60)

    return run


@pytest.mark.parametrize(
    ("bound", "code"),
    [("84MiB", 0), ("83.99MiB", 1), ("0.1 GiB", 0), ("34%", 1), ("35%", 0), ("35 %", 0), ("0", 1), ("0%", 1), ("1000%", 0)],
)
def test_bounds(diff, bound, code):
    done = diff(SMALL, LARGE, "--fail-above", bound)
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("FAIL " if code else "OK ")
    assert diff(LARGE, SMALL, "--fail-above", bound).returncode == 0, "less memory is never too much"


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        ("5", "has no unit"),
        ("", "is no size"),
        ("much", "is no size"),
        ("50MB", "did you mean 50MiB"),
        ("50parsec", "no unit of memory"),
        ("five%", "is no percentage"),
        ("-5%", "is no percentage"),
        ("%", "is no percentage"),
    ],
)
def test_bad_bounds(diff, bound, message):
    done = diff(SMALL, LARGE, "--fail-above", bound)
    assert done.returncode == 2 and not done.stdout
    assert message in done.stderr and "--fail-above" in done.stderr


def test_an_input_that_cannot_be_read(diff, tmp_path):
    for words in (SMALL, tmp_path / "none"), (tmp_path / "none", SMALL):
        done = diff(*words, "--fail-above", "0")
        assert done.returncode == 2 and "none" in done.stderr


@pytest.mark.parametrize("by", ["module", "operator", "phase", "step", "tensor"])
def test_rows_and_categories_add_up(diff, by):
    report = json.loads(diff(SMALL, LARGE, "--by", by, "--format", "json").stdout)
    for key in "before_bytes", "after_bytes", "change_bytes":
        assert sum(row[key] for row in report["rows"]) == report["peak_allocated"][key]
        assert sum(category[key] for category in report["categories"]) == report["peak_allocated"][key]
        for row in report["rows"]:
            assert sum(category[key] for category in row["categories"].values()) == row[key]
    changes = [abs(row["change_bytes"]) for row in report["rows"]]
    assert changes == sorted(changes, reverse=True)


def test_the_same_figures_as_analyze(diff, gpucast_bin, tmp_path):
    (tmp_path / "after.gpucast").write_bytes(gzip.compress(LARGE.read_bytes()))
    report = json.loads(diff(SMALL, tmp_path / "after.gpucast", "--gpu", "l4", "--format", "json").stdout)
    for side, file in ("before", SMALL), ("after", LARGE):
        done = subprocess.run([gpucast_bin, "analyze", file, "--gpu", "l4", "--format", "json"], capture_output=True, text=True, timeout=60)
        expected = json.loads(done.stdout)
        assert report["peak_reserved"][f"{side}_bytes"] == expected["peak"]["reserved_bytes"]
        assert report["peak_allocated"][f"{side}_bytes"] == expected["peak"]["allocated_bytes"]
        assert report["device"][f"{side}_bytes"] == expected["device"]["expected_bytes"]
        assert report[side]["gpu"] == "l4"
