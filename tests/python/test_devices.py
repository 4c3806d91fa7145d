"""Several GPUs: ranks with a device each, one process with several, and which of them a process sees. Peaks are compared with the program's
own counters, device by device."""

import json
import subprocess
import sys

import pytest
from conftest import LAUNCH_RANKS, Capture, train_script

# Prints its own counters after each step, so that the last line is from the end.
COUNTERS = """
def say(step, devices):
    for d in devices:
        print(f"rank{RANK}cuda{d}step{step}={torch.cuda.max_memory_reserved(d)}", flush=True)
"""

DDP = (
    """
import os, torch, torch.distributed as dist
from torch import nn
RANK = int(os.environ["LOCAL_RANK"])
SAY
dist.init_process_group("nccl")
torch.cuda.set_device(RANK)
model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).to(f"cuda:{RANK}")
model = nn.parallel.DistributedDataParallel(model, device_ids=[RANK])
optimizer = torch.optim.Adam(model.parameters())
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(256 * (1 + 63 * RANK), 1024, device=f"cuda:{RANK}")).sum().backward()
    optimizer.step()
    say(step, [RANK]) if step < 2 else None
"""
).replace("SAY", COUNTERS)

# The last step ends the run inside the optimizer: it prints before.
TWO_DEVICES = (
    """
import torch
from torch import nn
RANK = 0
SAY
first, second = nn.Linear(2048, 2048).to("cuda:0"), nn.Linear(2048, 512).to("cuda:1")
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()])
for step in range(3):
    optimizer.zero_grad()
    second(first(torch.randn(512, 2048, device="cuda:0")).to("cuda:1")).sum().backward()
    optimizer.step()
    say(step, [0, 1]) if step < 2 else None
"""
).replace("SAY", COUNTERS)


def analyzed(gpucast_bin, path):
    done = subprocess.run([gpucast_bin, "analyze", str(path), "--format", "json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def reserved_by_step(report):
    return {peak["step"]: peak["reserved_bytes"] for peak in report["step_peaks"]}


@pytest.mark.once
def test_each_rank_has_a_device_and_the_worst_is_judged(gpucast, gpucast_bin):
    (gpucast.job / "launch.py").write_text(LAUNCH_RANKS)
    done = gpucast(DDP, "--gpu", "a100-80", command=[sys.executable, "launch.py", "2", "torch._dynamo", "train.py"])
    assert done.code == 0, done.err
    lines = done.report["ranks"]
    assert [(line["rank"], line["device"]) for line in lines] == [(0, 0), (1, 1)]
    for line in lines:
        report = analyzed(gpucast_bin, line["capture"])
        assert report["peak"]["reserved_bytes"] == line["reserved_bytes"]
        rank = line["rank"]
        highest = max(bytes for step, bytes in reserved_by_step(report).items() if step <= 2)
        assert highest == done.printed(f"rank{rank}cuda{rank}step1")
    # Rank 1 has the larger batch.
    assert lines[1]["request_bytes"] > lines[0]["request_bytes"]
    assert done.report["environment"]["rank"] == 1
    assert done.report["peak"]["reserved_bytes"] == lines[1]["reserved_bytes"]
    assert {"activations", "inputs"} & {line["name"] for line in done.report["rank_differences"] if line["bytes"] > 0}


def test_one_process_with_two_devices(gpucast, gpucast_bin):
    done = gpucast(TWO_DEVICES, "--gpu", "rtx3090", "--gpus", "2")
    assert done.code == 0, done.err
    lines = done.report["ranks"]
    assert [(line["rank"], line["device"]) for line in lines] == [(0, 0), (0, 1)]
    for line in lines:
        report = analyzed(gpucast_bin, line["capture"])
        highest = max(bytes for step, bytes in reserved_by_step(report).items() if step <= 2)
        assert highest == done.printed(f"rank0cuda{line['device']}step1")
        assert report["matches_recorded"] is True
    first, second = (Capture(line["capture"]) for line in lines)
    # A parameter lies on one device, and is named in that one's capture only.
    sizes = lambda capture: sorted(tensor[4] for tensor in capture.of("tensor") if tensor[2] == "parameter")  # noqa: E731
    assert sizes(first) == [2048 * 4, 2048 * 2048 * 4]
    assert sizes(second) == [512 * 4, 2048 * 512 * 4]
    assert first.one("process")["device"] == 0 and second.one("process")["device"] == 1
    assert len(first.marks("step")) == len(second.marks("step")) == 3


@pytest.mark.once
def test_data_parallel(gpucast):
    script = train_script().replace('.to("cuda")\noptimizer', '.to("cuda")\nmodel = nn.DataParallel(model)\noptimizer')
    script = "import os\nos.environ['CUBLAS_WORKSPACE_CONFIG'] = ':16:1'\n" + script
    # A replica's thread may start before the last one's has given its cuBLAS handle back: then there is one workspace more. A small one.
    done = gpucast(script, "--gpus", "2")
    assert done.code == 0, done.err
    assert [line["device"] for line in done.report["ranks"]] == [0, 1]
    # The gradients are added up on device 0.
    assert done.report["ranks"][0]["allocated_bytes"] > done.report["ranks"][1]["allocated_bytes"]


SPAWN = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
def train(rank, world):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29617")
    dist.init_process_group("nccl", rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    BODY
if __name__ == "__main__":
    mp.spawn(train, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
"""


@pytest.mark.once
def test_spawned_ranks(gpucast):
    body = train_script().replace("import torch\n", "", 1)
    done = gpucast(SPAWN.replace("BODY", body.replace("\n", "\n    ")), "--gpus", "2")
    assert done.code == 0, done.err
    assert [(line["rank"], line["device"]) for line in done.report["ranks"]] == [(0, 0), (1, 1)]
    assert [line["judged"] for line in done.report["ranks"]].count(True) == 1
    assert done.report["environment"]["world_size"] == 2


@pytest.mark.once
@pytest.mark.parametrize(("visible", "gpus", "seen"), [("2,3", 1, 2), ("1,x,0", 2, 1)])
def test_which_devices_are_seen(gpucast, visible, gpus, seen):
    script = f"import torch\nassert torch.cuda.device_count() == {seen}, torch.cuda.device_count()\n"
    script += f"for d in range({seen}): assert torch.cuda.get_device_properties(d).total_memory > 0\n" + train_script()
    done = gpucast(script, "--gpus", str(gpus), environment={} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert done.code == 0, done.err


@pytest.mark.once
def test_no_device_is_seen(gpucast):
    done = gpucast("import torch\nassert not torch.cuda.is_available()\n" + train_script(), environment={"CUDA_VISIBLE_DEVICES": ""})
    assert done.code == 2
    assert "No CUDA GPUs are available" in done.err


@pytest.mark.once
def test_more_devices_than_there_are(gpucast):
    done = gpucast(TWO_DEVICES)
    assert done.code == 2
    assert "invalid device ordinal" in done.err and "--gpus" in done.err


def test_memory_of_each_device(gpucast):
    script = """
import torch
MiB = 1 << 20
free = [torch.cuda.mem_get_info(d)[0] for d in (0, 1)]
a = torch.empty(100 * MiB, dtype=torch.uint8, device="cuda:1")
assert torch.cuda.mem_get_info(0)[0] == free[0]
assert torch.cuda.mem_get_info(1)[0] == free[1] - 100 * MiB
assert a.device.index == 1 and a.to("cuda:0").device.index == 0
assert torch.cuda.can_device_access_peer(0, 1)
names = {torch.cuda.get_device_properties(d).uuid for d in (0, 1)} if hasattr(torch.cuda.get_device_properties(0), "uuid") else {0, 1}
assert len(names) == 2
with torch.cuda.device(1):
    stream = torch.cuda.Stream()
    assert stream.device.index == 1
    assert torch.cuda.current_device() == 1
assert torch.cuda.current_device() == 0
"""
    done = gpucast(script + train_script(), "--gpu", "a100-80", "--gpus", "2")
    assert done.code == 0, done.err
