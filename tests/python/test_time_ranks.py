"""`gpucast time` of several ranks: the step is the job's."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_time import report, times

# Two layers, each on one rank of a pair (a pipeline), and pairs that share their gradients.
PIPELINE = """
import os, torch, torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
copies = [dist.new_group(list(range(stage, world, 2))) for stage in range(2)][rank % 2]
layer = torch.nn.Linear(4096, 4096, device="cuda")
optimizer = torch.optim.SGD(layer.parameters(), 0.1)
for step in range(3):
    x = torch.zeros(4096, 4096, device="cuda", requires_grad=rank % 2 == 1)
    if rank % 2 == 0:
        out = layer(x)
        dist.batch_isend_irecv([dist.P2POp(dist.isend, out, rank + 1)])[0].wait()
        gradient = torch.empty_like(out)
        dist.batch_isend_irecv([dist.P2POp(dist.irecv, gradient, rank + 1)])[0].wait()
        out.backward(gradient)
    else:
        dist.batch_isend_irecv([dist.P2POp(dist.irecv, x, rank - 1)])[0].wait()
        layer(x).sum().backward()
        dist.batch_isend_irecv([dist.P2POp(dist.isend, x.grad, rank - 1)])[0].wait()
    for parameter in layer.parameters():
        dist.all_reduce(parameter.grad, group=copies)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def stages(gpucast_bin, tmp_path_factory):
    """The captures of both stages of a job of eight ranks: four copies of a pipeline of two."""
    folder = tmp_path_factory.mktemp("stages")
    (folder / "train.py").write_text(PIPELINE)
    words = ["run", "--gpu", "a100-80", "--world-size", "8", "--ranks", "0,1", "-o", folder / "train.gpucast"]
    done = subprocess.run(
        [gpucast_bin, *map(str, words), "--", sys.executable, "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "train.gpucast", folder / "train.rank1.gpucast"


@pytest.mark.once
def test_stages_wait_for_each_other(gpucast_bin, stages):
    result = report(gpucast_bin, stages[0], "--cpu-speed", "100")
    job, (first, second) = result["job"], result["ranks"]
    assert (job["machine"], job["ranks"], job["nodes"], job["replicas"]) == ("dgx-a100-80", 8, 1, 4)
    assert result["samples_per_s"] == pytest.approx(4 * 4096 / (job["step"]["expected_ns"] * 1e-9), rel=1e-6)
    for rank in (first, second):
        parts = [rank["compute_ns"], rank["communication"]["exposed_ns"], rank["bubble_ns"], rank["idle_ns"]]
        assert sum(parts) == pytest.approx(rank["step_ns"], rel=1e-6)
        kinds = {(part["purpose"], part["kind"], part["ranks"]) for part in rank["by_communication"]}
        assert ("data", "all_reduce", 4) in kinds and any(purpose == "pipeline" for purpose, _, _ in kinds)
    # The first stage waits for the second one's forward and backward, three products of the same size as its own two.
    product = next(part for part in result["by_kind"] if part["name"] == "gemm")
    one = product["gpu_ns"] / product["launches"]
    assert first["bubble_ns"] + first["communication"]["exposed_ns"] > 2.5 * one
    # Both captures by name, in any order, are the same job.
    assert report(gpucast_bin, stages[1], stages[0], "--cpu-speed", "100")["job"] == job


@pytest.mark.once
def test_one_stage_alone_says_what_is_missing(gpucast_bin, stages, tmp_path):
    alone = shutil.copy(stages[0], tmp_path / "alone.gpucast")
    result = report(gpucast_bin, alone)
    (note,) = result["job"]["notes"]
    assert "exchange messages with rank 1, which was not captured" in note and "--ranks 0,1" in note
    assert result["job"]["missing_ranks"] == [1] and "not the whole job" in times(gpucast_bin, alone).stdout


@pytest.mark.once
def test_more_nodes_cost_more(gpucast_bin, stages):
    step = {}
    for machine in ("dgx-a100-80", "aws-p4de"):
        result = report(gpucast_bin, stages[0], "--machine", machine)
        step[machine] = result["job"]["step"]["expected_ns"]
        assert result["job"]["machine"] == machine
    small = report(gpucast_bin, stages[0], "--machine", str(four_card_node(stages[0].parent)))
    assert small["job"]["nodes"] == 2
    assert {part["nodes"] for rank in small["ranks"] for part in rank["by_communication"] if part["kind"] == "all_reduce"} == {2}
    assert small["job"]["step"]["expected_ns"] > step["dgx-a100-80"]


def four_card_node(folder):
    path = Path(folder) / "node.json"
    path.write_text('{"like": "dgx-a100-80", "cards_per_node": 4, "network_cards": 1}')
    return path


@pytest.mark.once
def test_the_trace_has_a_process_for_each_rank(gpucast_bin, stages, tmp_path):
    path = tmp_path / "job.json"
    result = report(gpucast_bin, stages[0], "--trace", path)
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {"rank 0", "rank 1"}
    slices = [event for event in events if event["ph"] == "X"]
    assert any(event["name"] == "data: all_reduce of 4" for event in slices) and any(event["args"]["critical"] for event in slices)
    assert max(event["ts"] + event["dur"] for event in slices) >= 0.99e-3 * result["job"]["step"]["expected_ns"]
    sends, receives = ({event["id"]: event for event in events if event["ph"] == phase} for phase in "sf")
    assert len(sends) == 2 and sends.keys() == receives.keys()
    assert all(sends[one]["ts"] <= receives[one]["ts"] and sends[one]["pid"] != receives[one]["pid"] for one in sends)
    kept = times(gpucast_bin, stages[0], "--trace", path)
    assert kept.returncode == 2 and "exists" in kept.stderr


@pytest.mark.once
def test_what_cannot_be(gpucast_bin, stages, tmp_path):
    (tmp_path / "lonely.json").write_text('{"like": "dgx-a100-80", "cards_per_node": 4, "network_cards": 0}')
    for words, says in (
        ([stages[0], stages[0]], "two captures are of rank 0"),
        ([stages[0], "--world-size", "4"], "this is a file"),
        ([stages[0], "--machine", tmp_path / "lonely.json"], "which has no network"),
        (["--ranks", "1", "--", sys.executable, "-c", "0"], "--world-size"),
        (["--scale", "1,2", "--", "torchrun", "train.py"], "torchrun would, too"),
        (["--scale", "2,8", "--machine", tmp_path / "lonely.json", "--", sys.executable, "-c", "0"], "no network, and --scale names 8"),
        ([stages[0], "--scale", "2"], "this is a file"),
    ):
        done = times(gpucast_bin, *words)
        assert done.returncode == 2 and says in done.stderr, done.stderr


DATA_PARALLEL = """
import os, torch, torch.distributed as dist
world = int(os.environ.get("WORLD_SIZE", "1"))
model = torch.nn.Linear(8192, 8192, device="cuda")
if world > 1:
    dist.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    model(torch.zeros(8192, 8192, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.once
def test_more_cards_bring_less_each(gpucast_bin, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(DATA_PARALLEL)
    words = ["--gpu", "a100-80", "--machine", "aws-p4de", "--cpu-speed", "100"]
    result = report(gpucast_bin, *words, "--scale", "1,8,16", "--", sys.executable, path)
    one, node, two = result["scale"]
    assert [point["ranks"] for point in result["scale"]] == [1, 8, 16] and [node["nodes"], two["nodes"]] == [1, 2]
    assert one["efficiency"] == 1 and one["communication"]["exposed_ns"] == 0
    assert one["step"]["expected_ns"] < node["step"]["expected_ns"] < two["step"]["expected_ns"]
    assert two["samples_per_s"] == pytest.approx(16 * 8192 / (two["step"]["expected_ns"] * 1e-9), rel=1e-6)
    assert two["efficiency"] == pytest.approx(one["step"]["expected_ns"] / two["step"]["expected_ns"], rel=1e-6)
    for wrong in ("8,8", "0", "x", "8"):
        done = times(gpucast_bin, *words, "--scale", wrong, "--world-size", "2", "--", sys.executable, path)
        assert done.returncode == 2, wrong
