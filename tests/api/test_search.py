"""examples/search_optuna.py, as docs/howto/prune-a-search-by-memory.md shows it."""

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "examples/search_optuna.py"


def test_what_does_not_fit_is_pruned():
    done = subprocess.run([sys.executable, SCRIPT, "--gpu", "rtx3060", "--trials", "4"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    trials = re.findall(r"^ +\d+ .* (\d+) MiB  (?:(\d+) M parameters|pruned: does not fit)$", done.stdout, re.MULTILINE)
    assert len(trials) == 4
    card_mib = 12622168064 / 2**20
    fitting = [int(parameters) for reserved, parameters in trials if parameters]
    assert fitting and len(fitting) < len(trials)
    assert all(int(reserved) < card_mib for reserved, parameters in trials if parameters)
    assert (
        f"the largest that fits on rtx3060: trial {[bool(p) and int(p) for _, p in trials].index(max(fitting))}, {max(fitting)} M"
        in done.stdout
    )
