"""Pipelines of torch.distributed.pipelining: their bubbles follow from the calls of each rank."""

import subprocess
import sys

import pytest
from test_time import report

# Four equal stages on each rank's card; messages are small.
PIPELINE = """
import os, sys, torch, torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
micro_batches, on_rank = int(sys.argv[1]), int(sys.argv[2])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
parts = [torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda() for _ in range(on_rank)]
stages = [PipelineStage(part, i * world + rank, on_rank * world, torch.device("cuda")) for i, part in enumerate(parts)]
schedule = Schedule1F1B if on_rank == 1 else ScheduleInterleaved1F1B
pipeline = schedule(stages[0] if on_rank == 1 else stages, micro_batches, loss_fn=lambda out, target: (out - target).pow(2).mean())
optimizer = torch.optim.SGD([p for part in parts for p in part.parameters()], 0.1)
x = torch.zeros(micro_batches * 1024, 2048, device="cuda")
for step in range(3):
    if rank == 0:
        pipeline.step(x)
    elif rank == world - 1:
        pipeline.step(target=x)
    else:
        pipeline.step()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.once
@pytest.mark.parametrize(("on_rank", "expected"), [pytest.param(1, 3 / (8 + 3), marks=pytest.mark.slow), (2, 3 / (2 * 8 + 3))])
def test_the_bubble_is_as_published(gpucast_bin, tmp_path, on_rank, expected):
    (tmp_path / "train.py").write_text(PIPELINE)
    words = ["run", "--gpu", "a100-80", "--world-size", "4", "--ranks", "0,1,2,3", "-o", tmp_path / "train.gpucast"]
    done = subprocess.run(
        [gpucast_bin, *map(str, words), "--", sys.executable, "train.py", "8", str(on_rank)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ranks = report(gpucast_bin, tmp_path / "train.gpucast", "--cpu-speed", "100")["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1, 2, 3]
    # The first stage's first layer has no gradient for its input, so rank 0 waits longer.
    waiting = [rank["bubble_ns"] / rank["step_ns"] for rank in ranks[1:]]
    assert waiting == pytest.approx([expected] * 3, abs=0.02)
