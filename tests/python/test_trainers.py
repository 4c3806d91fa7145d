"""The counters that run_trainers.py compares a report with."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

COUNTING = Path(__file__).resolve().parents[1] / "programs/trainers/counting"
SCRIPT = """
import torch
torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
torch.cuda.reset_peak_memory_stats()
kept = torch.zeros(32 << 20, dtype=torch.uint8, device="cuda")
"""


def test_peaks_before_a_reset_count(gpucast_bin, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    words = [gpucast_bin, "run", "--gpu", "rtx3060", "--format", "json", "--", sys.executable, "script.py"]
    done = subprocess.run(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(COUNTING)}, capture_output=True, text=True, check=True)
    peak = json.loads(done.stdout)["peak"]
    assert peak["allocated_bytes"] == 64 << 20
    assert re.findall(r"^@0\.0=(\d+),(\d+)$", done.stderr, re.MULTILINE) == [(str(64 << 20), str(peak["reserved_bytes"]))]
