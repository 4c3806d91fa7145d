"""The user's command reaches its program byte for byte, in every command of gpucast that starts one, and comes back from what is kept."""

import ast
import gzip
import json
import os
import shlex
import subprocess
import sys

import gpucast as api
import pytest
from conftest import Capture
from test_cases import CASES

pytestmark = pytest.mark.once

ODD = [
    *(b"[64, 64]", b"[0,1]", b"[[1,2],[3,4]]", b'["a", "b"]', b"[]", b"[", b"]", b"[a", b"a]", b"--layers=[1,2]"),
    *(b"{}", b"{", b"}", b'{"a": [1, 2], "b": {"c": null}}', b"(1, 2)", b"()", b"None", b"-1", b"1e-3"),
    *(b"", b"", b" ", b"  two  words ", b"\t", b"\n", b"a\nb", b"\r\n", b"\x01\x1b[31m", b"\x7f"),
    *(b"--", b"-", b"---", b"--layers", b"-o", b"--gpu", b"h100-80", b"--help", b"-h", b"--version", b"run", b"@file", b"@", b"++", b"%%"),
    *(b"'", b'"', b"it's", b'"quoted"', b"\\", b"\\n", b"`date`", b"$HOME", b"$(id)", b"*", b"?", b"~", b"#", b"a;b", b"|", b"%s"),
    *(b"=", b"a=b", "é".encode(), "日本語".encode(), "🔥".encode(), b"\xff", b"caf\xe9", b"--x=\xff\xfe", b"x" * 5000),
]
SCRIPT = """
import os, sys
with open(os.environ["WORDS"], "a") as file:
    file.write(repr([os.fsencode(word) for word in sys.argv[1:]]) + "\\n")
"""
TRAINS = SCRIPT + "import torch\nmodel = torch.nn.Linear(8, 8, device='cuda')\nmodel(torch.ones(1, 8, device='cuda')).sum().backward()\n"


@pytest.fixture
def job(tmp_path, monkeypatch, gpucast_bin):
    """A folder with train.py, which needs no PyTorch, and words.txt, where it writes its arguments: a line a start."""
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.setenv("WORDS", str(tmp_path / "words.txt"))
    monkeypatch.setenv("GPUCAST_BIN", gpucast_bin)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def started_with(job):
    return [ast.literal_eval(line) for line in (job / "words.txt").read_text().splitlines()]


def command():
    return [os.fsencode(sys.executable), b"train.py", *ODD]


STARTS = [
    ["run", "--"],
    ["run", "--gpu", "rtx3060", "--steps", "1", "--"],
    ["run"],
    ["run", "--world-size", "4", "--ranks", "3", "--"],
    ["run", "--warp", "--"],
    ["profile", "--"],
    ["profile"],
    ["time", "--"],
    ["occupancy", "--"],
]


@pytest.mark.parametrize("words", STARTS, ids=" ".join)
def test_what_follows_reaches_the_program(gpucast_bin, job, words):
    done = subprocess.run([gpucast_bin, *words, *command()], capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
    if "--warp" in words:  # the script runs to its own end
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 2 and b"PyTorch" in done.stderr, done.stderr  # the script imports none
    assert started_with(job) == [ODD]


def test_a_sweep_changes_its_own_word_only(gpucast_bin, job):
    words = ["occupancy", "--sweep", "batch=16", "--", *command(), b"[{batch}]"]
    subprocess.run([gpucast_bin, *words], capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
    assert started_with(job) == [[*ODD, b"[16]"]]


def as_in_json(word):
    try:
        return word.decode()
    except UnicodeDecodeError:
        return {"hex": word.hex()}


@pytest.mark.parametrize("options", [["--fresh"], []], ids=["fresh", "forked"])
def test_jobs_of_a_batch(gpucast_bin, job, options):
    line = json.dumps({"name": "a", "command": [as_in_json(word) for word in command()]}) + "\n"
    done = subprocess.run([gpucast_bin, "batch", "-", *options], input=line, capture_output=True, text=True, timeout=120)
    row = json.loads(done.stdout)
    assert row["error"]["code"] == "nothing_captured" and row["forked"] == (not options)
    assert started_with(job) == [ODD]


def test_the_python_api(job):
    words = [sys.executable, "train.py", *map(os.fsdecode, ODD)]
    with pytest.raises(api.Error, match="importing PyTorch"):
        api.run(words)
    with pytest.raises(api.Error, match="importing PyTorch"):
        api.run(command())
    (row,) = api.batch([{"command": words}], fresh=True)
    assert row.error.code == "nothing_captured"
    assert started_with(job) == [ODD] * 3


def test_the_command_comes_back_from_a_capture(gpucast_bin, job):
    """Run again as it was, shown as JSON, and as a line that a shell reads to the same words."""
    (job / "train.py").write_text(TRAINS)
    subprocess.run([gpucast_bin, "run", "-o", "a.gpucast", "--", *command()], capture_output=True, timeout=120, check=True)
    assert Capture("a.gpucast").one("header")["command"] == [as_in_json(word) for word in command()]
    (job / "train.py").write_text(SCRIPT)  # the next starts are quick
    subprocess.run([gpucast_bin, "explain", "a.gpucast", "--rerun"], capture_output=True, timeout=60, check=True)
    assert started_with(job) == [ODD] * 2

    shown = json.loads(subprocess.run([gpucast_bin, "analyze", "a.gpucast", "--format", "json"], capture_output=True, check=True).stdout)
    assert shown["command"] == [word.decode(errors="replace") for word in command()]
    text = subprocess.run([gpucast_bin, "analyze", "a.gpucast"], capture_output=True, check=True).stdout
    line = text.decode().rstrip("\n").split("\n")[-1]
    assert line.startswith("  gpucast run --gpu ")
    printed = subprocess.run(["bash", "-c", "printf '%s\\0' " + line.partition(" -- ")[2]], capture_output=True, check=True).stdout
    assert printed.split(b"\0")[:-1] == command()


def test_options_are_literal_too(gpucast_bin, job):
    """`-o "[a]"` is a file named so."""
    done = subprocess.run([gpucast_bin, "machines", "[a, b]"], capture_output=True, text=True)
    assert "not expected: [a, b]" in done.stderr
    with gzip.open("[a, b]", "wb") as file:
        file.write((CASES / "mlp_fits" / "input.jsonl").read_bytes())
    for words in (["analyze", "[a, b]"], ["export", "[a, b]", "--to", "snapshot", "--output=[c, d]"]):
        subprocess.run([gpucast_bin, *words], capture_output=True, check=True)
    assert (job / "[c, d]").exists()
    next_line = subprocess.run([gpucast_bin, "analyze", "[a, b]"], capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    assert shlex.split(next_line)[:3] == ["gpucast", "export", "[a, b]"]
