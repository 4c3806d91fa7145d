"""`--help` and the reference pages name the same options, command by command."""

import re
import subprocess
from pathlib import Path

import pytest

REFERENCE = Path(__file__).resolve().parent.parent.parent / "docs/reference"
OPTION = re.compile(r"(?<![\w-])(--?[a-z][a-z-]*)")
COMMANDS = [
    "run",
    "batch",
    "profile",
    "analyze",
    "breakdown",
    "explain",
    "advise",
    "replay",
    "export",
    "diff",
    "check",
    "time",
    "occupancy",
    "pack",
    "fit",
    "sweep",
    "plan",
    "model",
    "gpus",
    "machines",
    "doctor",
]


def options_of_help(text):
    """Of lines like `  -o,--output TEXT   keep the capture`."""
    found = set()
    for line in text.split("\nOptions:\n")[1].splitlines():
        if re.match(r"  -", line):
            found.update(OPTION.findall(line.split()[0].replace(",", " ")))
    return found - {"-h", "--help"}


def section_of(command):
    """The command's section of the command-line page."""
    text = (REFERENCE / "command-line.md").read_text(encoding="utf-8")
    return re.search(rf"^## gpucast {command}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE).group(1)


def own_page(section):
    link = re.search(r"\[Its own page\]\(([^)#]+)\)", section)
    return (REFERENCE / link.group(1)).read_text(encoding="utf-8") if link else ""


def options_in_code(text):
    return {option for code in re.findall(r"`([^`]+)`", text) for option in OPTION.findall(code)}


def promised_options(text):
    """Options that the text is about: first cells of tables of options, and the list after "Its own page"."""
    found, in_table = set(), False
    for line in text.splitlines():
        if line.startswith("[Its own page]"):
            found |= options_in_code(line)
        if not line.startswith("|"):
            in_table = False
        elif line.startswith("| option"):
            in_table = True
        elif in_table:
            found |= options_in_code(line.split(" | ")[0])
    return found


@pytest.fixture(scope="module", params=COMMANDS)
def command(request):
    return request.param


@pytest.fixture(scope="module")
def offered(gpucast_bin, command):
    return options_of_help(subprocess.run([gpucast_bin, command, "--help"], capture_output=True, text=True, check=True).stdout)


@pytest.mark.once
def test_every_option_is_documented(command, offered):
    section = section_of(command)
    assert offered - options_in_code(section + own_page(section)) == set()


@pytest.mark.once
def test_every_documented_option_exists(command, offered):
    section = section_of(command)
    assert promised_options(section) | promised_options(own_page(section)) <= offered


@pytest.mark.once
def test_these_are_all_commands(gpucast_bin):
    text = subprocess.run([gpucast_bin, "--help"], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  (\w+) ", text.split("\nSubcommands:\n")[1], re.MULTILINE) == COMMANDS


@pytest.mark.once
def test_a_difference_is_found():
    assert options_of_help("x\nOptions:\n  -h,--help   Print\n  -o,--output TEXT  keep\n  --gpu TEXT\n      a word\n") == {
        "-o",
        "--output",
        "--gpu",
    }
    page = "| option | |\n|---|---|\n| `--gpu A`, `--known` | as `--other` |\n\n| `--by` | |\n"
    assert promised_options(page) == {"--gpu", "--known"}
