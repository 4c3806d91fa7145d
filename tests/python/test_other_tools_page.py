"""docs/results/other-tools.md: its table is what its command prints of the kept answers, and the commands that it recommends run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/results/other-tools.md").read_text()
PROFILE = ROOT / "tests/cases/profile_loop/input.trace.json.gz"


def test_table_is_what_its_command_prints(gpucast_bin, tmp_path):
    command = re.search(r"^\| `python (-m \S+)", PAGE, re.MULTILINE)[1].split()
    kept = tmp_path / "answers.json"
    shutil.copy(ROOT / "eval/memory/other_tools.json", kept)  # 18 answers, none is asked again
    words = [sys.executable, *command, "--python", sys.executable, "--gpucast", gpucast_bin, "--cookbook", tmp_path, "--out", kept]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == PAGE.split("<!-- tools: begin -->")[1].split("<!-- tools: end -->")[0].strip()


@pytest.mark.parametrize("command", re.findall(r"`gpucast (analyze [^`]+)`", PAGE))
def test_recommended_commands_run(command, gpucast_bin):
    done = subprocess.run([gpucast_bin, *command.split(), PROFILE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "method xmem" in done.stdout
