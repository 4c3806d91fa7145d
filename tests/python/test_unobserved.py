"""The steps after the capture, without hooks: they show the host's time, and change nothing else."""

import pytest

SCRIPT = """
import os, signal, sys, torch
from torch import nn
model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(10))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
log = open("log", "a")
for step in range(1, {steps} + 1):
    optimizer.zero_grad()
    model(torch.zeros(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    print(f"[step {{step}}]", flush=True)
    print(step, file=log, flush=True)
    if step > 3:
        {after}
open("end", "w").close()
"""


@pytest.mark.once
def test_their_times_are_the_only_trace(gpucast, tmp_path):
    with_more = gpucast(SCRIPT.format(steps=100, after="print('[after]', flush=True)"), fresh=True)
    ends = gpucast(SCRIPT.format(steps=3, after="pass"), fresh=True)
    times = with_more.capture.one("unobserved_steps")
    assert 3 <= len(times["cpu_ns"]) <= 20
    assert 0 < times["least_ns"] <= min(times["cpu_ns"])
    assert ends.capture.all("unobserved_steps") == []
    assert with_more.capture.allocator() == ends.capture.allocator()
    assert with_more.capture.one("end")["optimizer_steps"] == 3
    for run in (with_more, ends):
        assert "[step 2]" in run.err and "[step 4]" not in run.err and "[after]" not in run.err
        assert not (tmp_path / "job" / "end").exists(), "the file after the loop"


@pytest.mark.once
@pytest.mark.parametrize(
    "after",
    [
        "raise ValueError('bad')",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "sys.exit(3)",
        "open('file', 'w')",
        "os.system('touch file')",
    ],
)
def test_whatever_the_script_does_the_capture_is_whole(gpucast, tmp_path, after):
    run = gpucast(SCRIPT.format(steps=100, after=after), measure_host=True)
    assert run.code == 0, run.err
    assert "ValueError" not in run.err
    end = run.capture.one("end")
    assert end["reason"] == "steps" and end["optimizer_steps"] == 3
    assert {path.name for path in (tmp_path / "job").iterdir()} == {"train.py", "log"}
    assert (tmp_path / "job/log").read_text().split() == ["1", "2"], "the run ends within step 3's optimizer.step()"


@pytest.mark.once
def test_a_script_that_hangs_ends(gpucast):
    run = gpucast(SCRIPT.format(steps=100, after="__import__('time').sleep(1000)"), timeout=60, measure_host=True)
    assert run.code == 0, run.err
    assert run.capture.one("end")["reason"] == "steps"


@pytest.mark.once
def test_a_batch_of_the_loader_is_not_part_of_a_step(gpucast):
    script = """
import torch
from torch.utils.data import DataLoader, Dataset
class Works(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        sum(range(1_000_000))
        return torch.zeros(64)
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(Works(), batch_size=2):
    model(x.cuda()).sum().backward()
    optimizer.step()
"""
    times = gpucast(script, measure_host=True).capture.one("unobserved_steps")
    assert times["least_ns"] < 5e6 and min(times["cpu_ns"]) < 5e6, "a batch takes 10 ms and more"


@pytest.mark.once
def test_values_are_not_followed_in_them(gpucast):
    """The script's second pass depends on known values. Without them a step has half the work, and its time counts twice."""
    script = SCRIPT.replace(
        "    optimizer.step()\n",
        "    if bool((torch.arange(4, device='cuda') < 9).all()):\n        model(torch.zeros(8, 64, device='cuda')).sum().backward()\n    optimizer.step()\n",
    )
    run = gpucast(script.format(steps=100, after="pass"), "--values", "on")
    assert run.code == 0, run.err
    steps = run.capture.one("unobserved_steps")
    plain = gpucast(SCRIPT.format(steps=100, after="pass"), measure_host=True).capture.one("unobserved_steps")
    assert len(steps["cpu_ns"]) >= 3
    assert abs(steps["pieces"] - plain["pieces"]) <= 16 < plain["pieces"]
