"""`gpucast check` of jobs with several ranks: the rank that needs most decides, and every form names it."""

import json
import sys
from pathlib import Path

import pytest
from test_check import Project

pytestmark = pytest.mark.once

# Rank 1 has twice the batch of rank 0; the argument is its MiB.
TRAIN = """
import os, sys, torch
import torch.distributed as dist
from torch import nn

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
net = nn.parallel.DistributedDataParallel(nn.Linear(8, 8, device="cuda"))
batch = torch.ones(int(sys.argv[1]) * (1 + dist.get_rank()) // 2, 1 << 18, device="cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    net(batch[:, :8]).sum().backward()
    optimizer.step()
"""


def job(name, size_mib, more="world_size = 2\nranks = [0, 1]", launcher=()):
    words = [*launcher, "train.py", str(size_mib)] if launcher else [sys.executable, "train.py", str(size_mib)]
    return f'[[job]]\nname = "{name}"\ncommand = {json.dumps(words)}\n{more}\n'


@pytest.mark.slow
def test_growth_counts_on_the_rank_that_needs_most(gpucast_bin, own_cache, tmp_path):
    project = Project(gpucast_bin, tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    project.config(job("four", 978), job("six", 978))
    written = project.check("--update-baseline")
    assert written.returncode == 0, written.stdout + written.stderr
    project.config(job("four", 1018), job("six", 1038))
    forms = {"json": "check.json", "sarif": "check.sarif", "junit": "check.xml", "markdown": "check.md"}
    done = project.check(*(f"--write={form}={name}" for form, name in forms.items()))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL six on rtx3090, rank 1 of 2: Peak reserved grew by 60.00 MiB" in done.stdout, done.stdout
    assert "gpucast run --gpu rtx3090 --world-size 2 --ranks 0,1 -- " in done.stdout
    for name in list(forms.values())[1:]:
        assert "rank 1 of 2" in (tmp_path / name).read_text(), name
    four, six = json.loads((tmp_path / "check.json").read_text())["jobs"]
    assert [limit["outcome"] for limit in four["cards"][0]["limits"]] == ["passed", "passed"]
    assert [(limit["outcome"], limit["rank"]) for limit in six["cards"][0]["limits"]] == [("passed", 1), ("broken", 1)]


@pytest.mark.slow
def test_a_command_that_starts_torchrun(gpucast_bin, own_cache, tmp_path):
    project = Project(gpucast_bin, tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    torchrun = [str(Path(sys.executable).parent / "torchrun"), "--nproc-per-node", "2"]
    project.config(job("a", 978, 'gpu = "a100-80"\nmachine = "dgx-a100-80"\nlimits = { step_time = "10 s" }', torchrun))
    done = project.check("--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    (card,) = json.loads(done.stdout)["jobs"][0]["cards"]
    assert (card["ranks"], card["rank"]) == (2, 1) and card["step_ns"] > 0
    (step_time,) = [limit for limit in card["limits"] if limit["figure"] == "step_time"]
    assert step_time["outcome"] == "passed" and step_time["rank"] is None


def test_a_world_size_and_a_launcher(gpucast_bin, tmp_path):
    project = Project(gpucast_bin, tmp_path)
    project.config(job("both", 1, "world_size = 2", ["torchrun"]))
    done = project.check()
    assert done.returncode == 2 and "gpucast.toml:8:14" in done.stderr
    assert "'world_size' starts the ranks itself, and torchrun would, too" in done.stderr
