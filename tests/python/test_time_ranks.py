"""`gpucast time` of several ranks: the step is the job's."""

import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_time import report, times

CASES = Path(__file__).resolve().parent.parent / "cases"

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


def overlapping(slices):
    """Slices that begin before the one before ends, in the same track. Viewers leave them out."""
    out, end = [], {}
    for event in sorted(slices, key=lambda one: one["ts"]):
        track = event["pid"], event["tid"]
        if round(1e3 * event["ts"]) < end.get(track, 0):
            out.append(event)
        end[track] = round(1e3 * event["ts"]) + round(1e3 * event["dur"])
    return out


@pytest.mark.once
def test_the_trace_has_a_process_for_each_rank(gpucast_bin, stages, tmp_path):
    path = tmp_path / "job.json"
    result = report(gpucast_bin, stages[0], "--trace", path)
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {"job", "rank 0", "rank 1"}
    (step,) = [event for event in events if event["ph"] == "X" and event["name"] == "step"]
    assert step["dur"] == pytest.approx(1e-3 * result["job"]["step"]["expected_ns"], abs=0.002)
    slices = [event for event in events if event["ph"] == "X" and event is not step]
    assert any(event["name"] == "data: all_reduce of 4" for event in slices) and any(event["args"]["critical"] for event in slices)
    assert max(event["ts"] + event["dur"] for event in slices) >= 0.99e-3 * result["job"]["step"]["expected_ns"]
    assert not overlapping(slices)
    sends, receives = ({event["id"]: event for event in events if event["ph"] == phase} for phase in "sf")
    assert len(sends) == 2 and sends.keys() == receives.keys()
    assert all(sends[one]["ts"] <= receives[one]["ts"] and sends[one]["pid"] != receives[one]["pid"] for one in sends)
    assert {event["args"].get("waits_for_rank") for event in slices if event["pid"] == step["pid"] + 1} <= {None, 1}
    kept = times(gpucast_bin, stages[0], "--trace", path)
    assert kept.returncode == 2 and "exists" in kept.stderr


def merged(spans):
    """The spans without their overlaps, in order."""
    out = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def length(spans):
    return sum(end - begin for begin, end in spans)


@pytest.fixture(scope="module")
def traces(gpucast_bin, stages):
    """The report of the stages, and the folder with a trace of each."""
    folder = stages[0].parent / "traces"
    return report(gpucast_bin, stages[0], "--trace", f"{folder}/"), folder


@pytest.mark.once
def test_a_trace_folder_has_the_profilers_traces(gpucast_bin, stages, traces):
    result, folder = traces
    assert sorted(path.name for path in folder.iterdir()) == ["rank0.pt.trace.json.gz", "rank1.pt.trace.json.gz"]
    for rank in result["ranks"]:
        text = gzip.decompress((folder / f"rank{rank['rank']}.pt.trace.json.gz").read_bytes()).decode()
        assert re.search(r'"rank":\s+(\d+)', text)[1] == str(rank["rank"])
        trace = json.loads(text)
        assert trace["distributedInfo"] == {"backend": "nccl", "rank": rank["rank"], "world_size": 8}
        kernels = [event for event in trace["traceEvents"] if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        launches = {event["args"]["correlation"]: event for event in trace["traceEvents"] if event.get("cat") == "cuda_runtime"}
        assert len(launches) == len(kernels)
        assert all(launches[event["args"]["correlation"]]["ts"] <= event["ts"] for event in kernels)
        assert not overlapping(kernels)
        names = {event["name"] for event in kernels if event["name"].startswith("nccl")}
        assert names == {"ncclDevKernel_AllReduce", "ncclDevKernel_SendRecv"}
        # Holistic Trace Analysis' temporal breakdown: the union of kernels, and the union of those that compute.
        busy = merged((event["ts"], event["ts"] + event["dur"]) for event in kernels)
        compute = merged((event["ts"], event["ts"] + event["dur"]) for event in kernels if event["name"] not in names)
        assert 1e3 * length(compute) == pytest.approx(rank["compute_ns"], rel=1e-4)
        outside = rank["communication"]["exposed_ns"] + rank["bubble_ns"]
        assert outside * (1 - 1e-4) <= 1e3 * (length(busy) - length(compute)) <= (outside + rank["idle_ns"]) * (1 + 1e-4)
    kept = times(gpucast_bin, stages[0], "--trace", folder)
    assert kept.returncode == 2 and "has traces of ranks" in kept.stderr


@pytest.mark.slow
@pytest.mark.once
def test_holistic_trace_analysis_has_the_same_figures(traces, monkeypatch):
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    analysis = pytest.importorskip("hta.trace_analysis").TraceAnalysis(trace_dir=str(traces[1]))
    breakdown = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
    for rank in traces[0]["ranks"]:
        line = breakdown.loc[rank["rank"]]
        assert line["compute_time(us)"] == pytest.approx(1e-3 * rank["compute_ns"], rel=0.01)
        outside = rank["communication"]["exposed_ns"] + rank["bubble_ns"]
        assert line["non_compute_time(us)"] == pytest.approx(1e-3 * outside, rel=0.01)
    assert len(analysis.get_comm_comp_overlap(visualize=False)) == len(traces[0]["ranks"])


@pytest.mark.once
def test_the_page_has_the_report_and_a_lane_for_each_role(gpucast_bin, stages, tmp_path):
    path = tmp_path / "job.html"
    result = report(gpucast_bin, stages[0], "--html", path)
    page = path.read_text()
    assert json.loads(re.search(r'<script id="times"[^>]*>(.*?)</script>', page, re.DOTALL)[1]) == result
    assert [rank["role"] for rank in result["ranks"]] == [0, 1]
    path_ns = sum(part["ns"] for part in result["job"]["critical_path"])
    assert path_ns == pytest.approx(result["job"]["step"]["expected_ns"], rel=1e-6)
    kept = times(gpucast_bin, stages[0], "--html", path)
    assert kept.returncode == 2 and "exists" in kept.stderr


@pytest.mark.once
def test_the_price_is_that_of_all_cards(gpucast_bin, stages):
    result = report(gpucast_bin, stages[0], "--price", "a100-80=2")
    hours = result["job"]["step"]["expected_ns"] / 3600e9
    assert result["cost"] == {"price_per_hour": 2, "cards": 8, "step": pytest.approx(8 * 2 * hours), "epoch": None}
    assert "at 2 an hour for each of 8 cards" in times(gpucast_bin, stages[0], "--price", "a100-80=2").stdout


@pytest.mark.once
def test_captures_get_more_replicas(gpucast_bin, stages, tmp_path):
    words = ["--cpu-speed", "100", "--machine", "aws-p4de"]
    scale = report(gpucast_bin, stages[0], *words, "--scale", "4,8,16")["scale"]
    assert [(point["ranks"], point["nodes"]) for point in scale] == [(4, 1), (8, 1), (16, 2)]
    # A job that was captured with sixteen ranks.
    (tmp_path / "train.py").write_text(PIPELINE)
    run = [gpucast_bin, "run", "--gpu", "a100-80", "--world-size", "16", "--ranks", "0,1", "-o", "train.gpucast"]
    subprocess.run([*run, "--", sys.executable, "train.py"], cwd=tmp_path, capture_output=True, timeout=200, check=True)
    captured = report(gpucast_bin, tmp_path / "train.gpucast", *words)
    assert scale[2]["step"]["expected_ns"] == pytest.approx(captured["job"]["step"]["expected_ns"], rel=0.02)
    assert scale[2]["samples_per_s"] == pytest.approx(captured["samples_per_s"], rel=0.02)
    for wrong, says in (("3", "no multiple"), ("8,8", "from few to many")):
        done = times(gpucast_bin, stages[0], *words, "--scale", wrong)
        assert done.returncode == 2 and says in done.stderr, done.stderr


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
        ([stages[0], "--scale", "3"], "no multiple"),
        ([CASES / "time_small/input.jsonl", "--scale", "2"], "one process trains alone"),
        ([CASES / "time_small/input.jsonl", "--html", tmp_path / "a.html"], "one process trains alone"),
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
