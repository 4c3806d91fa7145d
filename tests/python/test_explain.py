"""`gpucast explain`: its output for a capture, and the savings of running the script again under what-ifs."""

import json
import os
import pickle
import subprocess
import sys

import pytest

pytestmark = pytest.mark.once

# Gradients are kept through zero_grad; the softmax keeps most.
SCRIPT = """
import argparse
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.out(F.softmax(q @ k.transpose(-1, -2), dim=-1) @ v)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), Attention(width)

    def forward(self, x):
        return x + self.attention(self.norm(x))


parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
batch = parser.parse_args().batch
model = nn.Sequential(*(Block(128) for _ in range(3)), nn.Linear(128, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(3):
    x = torch.zeros(batch, 512, 128).cuda()
    optimizer.zero_grad(set_to_none=False)
    model(x).sum().backward()
    optimizer.step()
"""


class Captured:
    """One capture of SCRIPT with --batch 8, in a folder of its own."""

    def __init__(self, gpucast_bin, open_batch, folder):
        self.bin, self.batch, self.folder, self.capture = gpucast_bin, open_batch, folder, folder / "train.gpucast"
        (folder / "train.py").write_text(SCRIPT)
        self.report = json.loads(self.run(capture=self.capture))

    def run(self, *options, batch=8, capture=None):
        command = [sys.executable, "train.py", "--batch", batch]
        done = self.batch.gpucast(self.folder, command, "--gpu", "rtx3060", *options, capture=capture)
        assert done.code == 0, done.err
        return done.out


@pytest.fixture(scope="module")
def captured(gpucast_bin, open_batch, tmp_path_factory):
    return Captured(gpucast_bin, open_batch, tmp_path_factory.mktemp("job"))


def explain(gpucast_bin, file, *options, cwd="/"):
    words = [gpucast_bin, "explain", str(file), *options]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=300)


def remedies(text):
    return {remedy["name"]: remedy for remedy in json.loads(text)["remedies"]}


def test_names_what_takes_the_memory(captured):
    done = explain(captured.bin, captured.capture)
    assert done.returncode == 0 and not done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 100
    said = " ".join(done.stdout.split())
    assert "nn.functional.softmax in Attention made" in said
    assert "*.attention (Attention), by nn.functional.softmax, at train.py:15 forward" in said
    assert "run the script 6 times" in said
    facts = json.loads(explain(captured.bin, captured.capture, "--format", "json").stdout)
    peak = facts["peak"]
    assert peak["allocated_bytes"] == sum(line["bytes"] for line in facts["categories"]) == captured.report["peak"]["allocated_bytes"]
    assert [remedy["name"] for remedy in facts["remedies"] if remedy["by"] == "rerun"] == [
        "set-to-none",
        "half-batch",
        "micro-batch:2",
        "checkpoint:Block",
        "bf16",
    ], "no-foreach is not among them: this optimizer's step allocates nothing for a while"
    softmax = next(block for block in facts["largest_blocks"] if block["operator"] == "nn.functional.softmax")
    assert (softmax["size_bytes"], softmax["count"]) == (8 * 512 * 512 * 4, 3)


@pytest.mark.slow
def test_a_rerun_saves_what_it_really_saves(captured):
    """From another folder than the script's: it is run in its own."""
    done = explain(captured.bin, captured.capture, "--rerun", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["baseline"] == "", "the script as it is takes what it took"
    found = remedies(done.stdout)
    before = captured.report["peak"]
    half = json.loads(captured.run(batch=4))["peak"]
    assert found["half-batch"]["note"] == "--batch 8 became 4"
    for key in ("allocated_bytes", "reserved_bytes"):
        assert found["half-batch"]["peak"][key] == half[key]
        assert found["half-batch"]["saved"][key] == before[key] - half[key] > 0
    for name in ("set-to-none", "checkpoint:Block", "bf16"):
        assert found[name]["computed"] and found[name]["saved"]["allocated_bytes"] > 0, name
    assert found["half-batch"]["verdict"] == "fits"


@pytest.mark.slow
def test_a_script_that_is_another_now(captured):
    script = captured.folder / "train.py"
    try:
        script.write_text(SCRIPT.replace("range(3)", "range(4)"))
        text = " ".join(explain(captured.bin, captured.capture, "--rerun").stdout.split())
        assert "Run again as it is, the script reserves" in text and "What is saved is counted from there." in text
        script.unlink()
        done = explain(captured.bin, captured.capture, "--rerun")
        text = " ".join(done.stdout.split())
        assert done.returncode == 0
        assert "The script could not be run again: the command failed (exit code 2)" in text
        assert "The peak:" in text
    finally:
        script.write_text(SCRIPT)


@pytest.mark.slow
def test_pairs_where_no_single_remedy_is_enough(captured, tmp_path):
    path = tmp_path / "large.gpucast"
    captured.batch.gpucast(captured.folder, [sys.executable, "train.py", "--batch", 3600], "--gpu", "rtx3060", capture=path)
    done = explain(captured.bin, path, "--rerun", "--format", "json")
    assert done.returncode == 1, done.stderr
    by_changes = {1: [], 2: []}
    for name, remedy in remedies(done.stdout).items():
        if remedy["by"] == "rerun" and remedy["computed"]:
            by_changes[name.count("+") + 1].append(remedy["verdict"])
    assert set(by_changes[1]) == {"does_not_fit"} and len(by_changes[2]) == 3 and "fits" in by_changes[2]
    assert "None of this makes it fit" not in explain(captured.bin, path, "--rerun").stdout


def test_out_of_memory_comes_first(gpucast, gpucast_bin, tmp_path):
    script = "import torch\nblocks = [torch.empty(3 << 30, dtype=torch.uint8, device='cuda') for _ in range(5)]\n"
    done = gpucast(script, "--gpu", "rtx3060", "--enforce-capacity")
    assert done.code == 1, done.err
    (capture,) = tmp_path.glob("*.gpucast")
    done = explain(gpucast_bin, capture)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[3] == "Where it ran out of memory"
    assert "3.00 GiB were requested" in lines[4] and "train.py:2" in " ".join(lines[4:7])
    facts = json.loads(explain(gpucast_bin, capture, "--format", "json").stdout)
    assert facts["oom"]["requested_bytes"] == 3 << 30 and facts["oom"]["free_bytes"] < 3 << 30
    assert facts["oom"]["settings_that_get_past"] == []


def test_a_what_if_does_not_pass_for_the_real_run(captured, tmp_path):
    path = tmp_path / "bf16.gpucast"
    captured.run("--what-if", "bf16", capture=path)
    done = explain(captured.bin, path)
    assert "what if: bf16: Sequential and its loss ran under autocast with bfloat16" in done.stdout
    facts = json.loads(explain(captured.bin, path, "--format", "json").stdout)
    assert facts["what_if"][0]["name"] == "bf16"
    assert "bf16" not in remedies(json.dumps(facts)), "it is in place already"
    words = [captured.bin, "analyze", str(path), "--gpu", "a100-80"]
    analyzed = subprocess.run(words, capture_output=True, text=True, timeout=60).stdout
    assert "what if: bf16" in analyzed
    assert "gpucast run --gpu a100-80 --what-if bf16 -- " in analyzed.splitlines()[-1]


def test_only_a_capture_can_be_run_again(gpucast_bin, tmp_path):
    path = tmp_path / "snapshot.pickle"
    trace = [{"action": "alloc", "addr": 0, "size": 512, "stream": 0, "frames": [], "time_us": 1}]
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}, protocol=2))
    done = explain(gpucast_bin, path, "--rerun")
    assert done.returncode == 2
    assert "--rerun was given, and this is no capture of a command" in done.stderr
    assert os.path.basename(path) in done.stderr
