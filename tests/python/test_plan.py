"""`gpucast plan` from the script to the answer."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.once

# Two stages that send each other messages, which no flag says.
TWO_STAGES = """
import argparse, os, torch, torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=1)
batch = parser.parse_args().batch
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    if rank == 0:
        y = model(torch.ones(batch, 1024, device="cuda"))
        dist.send(y.detach(), 1)
        y.sum().backward()
    else:
        x = torch.empty(batch, 1024, device="cuda")
        dist.recv(x, 0)
        model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def plan(gpucast_bin, folder, *words):
    command = [gpucast_bin, "plan", "--cache", folder.parent / "cache", "--format", "json", *words, "--", sys.executable, "train.py"]
    return subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_text(TWO_STAGES)
    return folder


def test_stages_are_found_and_runs_are_kept(gpucast_bin, job):
    words = ["--gpus", "2", "--vary", "b=--batch:4096,8192", "--require", "b > 4096"]
    first = plan(gpucast_bin, job, *words)
    assert first.returncode == 0, first.stderr
    report = json.loads(first.stdout)
    (best,) = report["plans"]
    assert best["flags"] == {"b": 8192}
    assert best["verdict"] == "fits"
    assert best["captured_gpus"] == best["gpus"] == 2
    assert best["runs"][0].startswith("gpucast run --gpu a100-80 --world-size 2 --ranks 0,1 -- ")
    kept = {path: path.stat().st_mtime for path in (job.parent / "cache").rglob("*.gpucast")}
    again = plan(gpucast_bin, job, *words)
    assert json.loads(again.stdout) == report
    assert {path: path.stat().st_mtime for path in (job.parent / "cache").rglob("*.gpucast")} == kept


def test_an_unknown_flag_is_an_error_with_the_scripts_own_line(gpucast_bin, job):
    done = plan(gpucast_bin, job, "--gpus", "2", "--vary", "tp=--tp:2")
    assert done.returncode == 2
    assert "train.py: error: unrecognized arguments: --tp 2" in done.stderr
