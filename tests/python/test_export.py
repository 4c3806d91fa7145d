"""Exported snapshots under PyTorch's own viewers, and read back."""

import importlib.util
import json
import pickle
import pickletools
import subprocess
from pathlib import Path

import pytest
from conftest import train_script

pytestmark = pytest.mark.once

CASES = Path(__file__).resolve().parent.parent / "cases"
SNAPSHOTS = ["whole", "ring_buffer", "expandable"]

# What the memory_viz page can unpickle (torch/utils/viz/MemoryViz.js): less than Python.
VIEWER_OPCODES = [
    "APPENDS",
    "BINGET",
    "BININT",
    "BININT1",
    "BININT2",
    "EMPTY_DICT",
    "EMPTY_LIST",
    "FRAME",
    "LONG1",
    "LONG_BINGET",
    "MARK",
    "MEMOIZE",
    "PROTO",
    "SETITEMS",
    "SHORT_BINUNICODE",
    "STOP",
    "TUPLE2",
    "APPEND",
    "NEWFALSE",
    "BINPUT",
    "BINUNICODE",
    "EMPTY_TUPLE",
    "NEWTRUE",
    "NONE",
    "BINFLOAT",
    "TUPLE",
    "TUPLE1",
    "TUPLE3",
    "LONG_BINPUT",
    "LIST",
    "DICT",
    "SETITEM",
]


@pytest.fixture(scope="module")
def memory_viz():
    """torch.cuda._memory_viz, without importing PyTorch, which would need a GPU's libraries."""
    spec = importlib.util.find_spec("torch")
    if spec is None:
        pytest.skip("PyTorch is not installed in the interpreter that runs the tests")
    path = Path(spec.submodule_search_locations[0]) / "cuda/_memory_viz.py"
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def gpucast_command(gpucast_bin, tmp_path):
    def run(*words, code=0):
        done = subprocess.run([gpucast_bin, *map(str, words)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture
def export(gpucast_command, tmp_path):
    """export(file) -> (path, the snapshot)"""

    def run(file):
        path = tmp_path / "out.pickle"
        gpucast_command("export", file, "--to", "snapshot", "-o", path)
        return path, pickle.loads(path.read_bytes())

    return run


def replay_backwards(snapshot, device):
    """As memory_viz does it: the blocks and segments before the first event. Fails where the end state is not true to the events."""
    segments = {s["address"]: s["total_size"] for s in snapshot["segments"] if s["device"] == device}
    blocks = {}  # address -> freed and waiting?
    for segment in snapshot["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            if block["state"] in ("active_allocated", "active_pending_free"):
                blocks[at] = block["state"] == "active_pending_free"
            at += block["size"]
        assert at == segment["address"] + segment["total_size"], "blocks tile their segment"

    def unmap(address, size):
        begin = max(a for a in segments if a <= address)
        end = begin + segments.pop(begin)
        assert end >= address + size
        if begin < address:
            segments[begin] = address - begin
        if address + size < end:
            segments[address + size] = end - address - size

    for event in reversed(snapshot["device_traces"][device]):
        action, address, size = event["action"], event.get("addr"), event["size"]
        if action == "alloc":
            assert blocks.pop(address) is False
        elif action == "free_completed":
            assert address not in blocks
            blocks[address] = True
        elif action == "free_requested":
            assert blocks[address] is True
            blocks[address] = False
        elif action == "segment_alloc":
            assert segments.pop(address) == size
        elif action == "segment_map":
            unmap(address, size)
        elif action in ("segment_free", "segment_unmap"):
            segments[address] = size
    return segments, blocks


def names_of(frames):
    return [frame["name"] for frame in frames]


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_a_run_in_memory_viz(gpucast, gpucast_command, export, memory_viz, tmp_path, settings):
    gpucast(train_script(steps=2, at_end="del x, y, loss; torch.cuda.empty_cache()"), environment={"PYTORCH_CUDA_ALLOC_CONF": settings})
    (capture,) = tmp_path.glob("*.gpucast")
    path, snapshot = export(capture)
    used = {op.name for op, _, _ in pickletools.genops(path.read_bytes())}
    assert used <= set(VIEWER_OPCODES)

    (trace,) = snapshot["device_traces"]
    assert replay_backwards(snapshot, 0) == ({}, {}), "a whole history begins with nothing"
    allocs = [event for event in trace if event["action"] == "alloc"]
    categories = {event["category"] for event in allocs}
    assert {"parameters", "gradients", "optimizer_state", "activations", "inputs"} <= categories
    assert "unknown" in {event["category"] for event in trace}, "or memory_viz stops"
    assert len({event["category"] for event in trace}) <= 10, "no more colours than memory_viz has"
    assert any(names_of(event["frames"])[0].startswith("activations: forward, step 1, in ") for event in allocs)
    explained = {names_of(event["frames"])[0] for event in allocs}
    assert "parameters: model_to_device, in 0 (Linear), 0.weight" in explained, "a tensor with a name"
    assert any(name.startswith("activations: forward, step 1, in ") and ", by " in name for name in explained), "else the operator"
    at_end = [block for segment in snapshot["segments"] for block in segment["blocks"] if block["state"] == "active_allocated"]
    assert {names_of(block["frames"])[0] for block in at_end} >= {"parameters: model_to_device, in 0 (Linear), 0.weight"}
    assert all(event["frames"][0]["filename"] == "gpucast" and event["user_metadata"] == event["frames"][0]["name"] for event in allocs)
    assert any("train.py" in frame["filename"] for frame in allocs[0]["frames"]), "the stack is there too"
    assert snapshot["allocator_settings"]["expandable_segments"] == bool(settings)
    assert {segment["is_expandable"] for segment in snapshot["segments"]} == {bool(settings)}

    # Every view of torch.cuda._memory_viz.
    def lines(text):
        return text

    assert f"segments: {len(snapshot['segments'])}" in memory_viz.segsum(snapshot)
    assert "parameters: model_to_device, in " in memory_viz.segments(snapshot, format_flamegraph=lines)
    assert "optimizer state: optimizer_step, step 1" in memory_viz.memory(snapshot, format_flamegraph=lines)
    assert f"{len(trace)} entries" in memory_viz.trace(snapshot)
    for plot in (memory_viz.trace_plot(snapshot), memory_viz.trace_plot(snapshot, plot_segments=True), memory_viz.segment_plot(snapshot)):
        assert "add_local_files" in plot
    memory_viz.compare(snapshot["segments"], snapshot["segments"], format_flamegraph=lines)

    # And ours: the same figures as from the capture.
    ours = json.loads(gpucast_command("analyze", path, "--format", "json").stdout)
    theirs = json.loads(gpucast_command("analyze", capture, "--format", "json").stdout)
    for key in "allocated_bytes", "reserved_bytes":
        assert ours["peak"][key] == theirs["peak"][key]
    assert ours["peak"]["allocated_at"]["event"] == theirs["peak"]["allocated_at"]["event"]
    assert ours["peak"]["allocated_at"]["stack"] == theirs["peak"]["allocated_at"]["stack"]


def without_marks_of_others(snapshot):
    """What an export keeps of a snapshot."""
    events = [
        {key: value for key, value in event.items() if key in ("action", "addr", "device_free", "size", "stream", "time_us", "frames")}
        for event in snapshot["device_traces"][0]
        if event["action"] != "snapshot"
    ]
    blocks = [
        {key: block[key] for key in ("address", "size", "requested_size", "state", "frames")}
        for segment in sorted(snapshot["segments"], key=lambda segment: segment["address"])
        for block in segment["blocks"]
    ]
    keys = (
        "address",
        "total_size",
        "allocated_size",
        "active_size",
        "requested_size",
        "stream",
        "segment_type",
        "segment_pool_id",
        "is_expandable",
    )
    segments = [{key: segment[key] for key in keys} for segment in sorted(snapshot["segments"], key=lambda segment: segment["address"])]
    return events, segments, blocks, snapshot["external_annotations"]


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_pytorchs_own_snapshot_comes_back(export, memory_viz, name):
    file = CASES / f"snapshot_{name}" / "input.pickle"
    _, exported = export(file)
    assert without_marks_of_others(exported) == without_marks_of_others(pickle.loads(file.read_bytes()))
    assert all("category" not in event for event in exported["device_traces"][0])
    replay_backwards(exported, 0)
    memory_viz.segsum(exported)
    memory_viz.trace(exported)


def test_an_existing_file_is_kept(gpucast_command, tmp_path):
    file = CASES / "snapshot_whole" / "input.pickle"
    (tmp_path / "out.pickle").write_text("mine")
    done = gpucast_command("export", file, "--to", "snapshot", "-o", "out.pickle", code=2)
    assert "exists" in done.stderr and "--force" in done.stderr
    assert (tmp_path / "out.pickle").read_text() == "mine"
    gpucast_command("export", file, "--to", "snapshot", "-o", "out.pickle", "--force")
    assert pickle.loads((tmp_path / "out.pickle").read_bytes())["segments"]


@pytest.mark.parametrize("form", ["html", "csv", "json", "perfetto", "snapshot"])
def test_the_input_is_never_overwritten(gpucast_command, tmp_path, form):
    file = tmp_path / "input.pickle"
    file.write_bytes((CASES / "snapshot_whole" / "input.pickle").read_bytes())
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.pickle").symlink_to(file)
    (tmp_path / "hard.pickle").hardlink_to(file)
    before = file.read_bytes()
    for output in "input.pickle", file, "folder/../input.pickle", "link.pickle", "hard.pickle":
        for force in [], ["--force"]:
            done = gpucast_command("export", "input.pickle", "--to", form, "-o", output, *force, code=2)
            assert "the output is the input itself" in done.stderr and "overwrite it" not in done.stderr
            assert file.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 4, "no other files are left"


def test_nothing_is_left_of_an_export_that_fails(gpucast_command, tmp_path):
    (tmp_path / "bad.pickle").write_bytes(b"\x80\x04cos\nsystem\n.")
    done = gpucast_command("export", "bad.pickle", "--to", "snapshot", "-o", "out.pickle", code=2)
    assert "os.system" in done.stderr and "byte 2" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bad.pickle"]
    gpucast_command("export", "bad.pickle", "--to", "snapshot", "-o", "no/such/folder/out.pickle", code=2)
