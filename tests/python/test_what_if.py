"""What a replay says of other settings and smaller cards, against runs that really have them."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parent.parent.parent
SHARED = ROOT.parent / "shared/data"
RESNET = [sys.executable, str(ROOT / "examples/train_resnet50.py"), "--batch", "130"]
GPT = [sys.executable, str(ROOT / "examples/train_gpt.py"), "--batch", "26"]


def run(open_batch, command, *options, capture=None):
    """The report of `gpucast run`."""
    done = open_batch.gpucast(ROOT, command, *options, capture=capture)
    assert done.code in (0, 1), done.err
    return done.report


def run_with(gpucast_bin, alloc_conf, command, *options):
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": alloc_conf}
    words = [gpucast_bin, "run", "--format", "json", *options, "--", *command]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def replays(gpucast_bin, *arguments):
    """The rows of `gpucast replay`."""
    done = subprocess.run([gpucast_bin, "replay", *map(str, arguments), "--format", "json"], capture_output=True, text=True, timeout=240)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)["replays"]


@pytest.fixture(scope="module")
def capture(open_batch, tmp_path_factory):
    """A job with a peak above the rtx3060's memory that runs there: captured without a limit; and its report."""
    path = tmp_path_factory.mktemp("capture") / "resnet50.gpucast"
    report = run(open_batch, RESNET, "--gpu", "rtx3060", capture=path)
    return path, report


def test_a_capture_replays_to_its_own_recording(capture, gpucast_bin):
    path, report = capture
    assert report["matches_recorded"] is True
    assert replays(gpucast_bin, path)[0]["matches_recorded"] is True


@pytest.mark.parametrize(
    "alloc_conf",
    [
        "expandable_segments:True",
        pytest.param("max_split_size_mb:64", marks=pytest.mark.slow),
        pytest.param("roundup_power2_divisions:4", marks=pytest.mark.slow),
    ],
)
def test_other_settings_are_as_a_run_with_them(capture, gpucast_bin, alloc_conf):
    path, _ = capture
    really = run_with(gpucast_bin, alloc_conf, RESNET, "--gpu", "rtx3060")
    (row,) = [row for row in replays(gpucast_bin, path, "--alloc-conf", alloc_conf) if row["alloc_conf"] == alloc_conf]
    for key in ("allocated_bytes", "reserved_bytes"):
        assert row["peak"][key] == really["peak"][key]
    assert really["matches_recorded"] is True


def test_a_smaller_card_is_as_a_run_on_it(capture, gpucast_bin, open_batch, tmp_path):
    """The card's limit enforced, so PyTorch really gives memory back: the same peaks as in the replay with this capacity."""
    path, report = capture
    assert report["verdict"] == "tight" and report["needs_reclaim"], report["verdict_reason"]
    really_path = tmp_path / "enforced.gpucast"
    really = run(open_batch, RESNET, "--gpu", "rtx3060", "--enforce-capacity", capture=really_path)
    with gzip.open(really_path, "rt") as file:
        records = [json.loads(line) for line in file if line.startswith("{")]
    capacity = next(record["capacity_bytes"] for record in records if record["record"] == "header")
    stats = next(record["torch_stats"] for record in records if record["record"] == "end")
    assert stats["alloc_retries"] > 0
    assert really["matches_recorded"] is True
    (row,) = [row for row in replays(gpucast_bin, path, "--capacity", capacity) if row["capacity_bytes"] == capacity]
    assert row["oom"] is None
    assert row["peak"]["allocated_bytes"] == really["peak"]["allocated_bytes"] == stats["peak_allocated_bytes"]
    assert row["peak"]["reserved_bytes"] == really["peak"]["reserved_bytes"] == stats["peak_reserved_bytes"]
    assert row["alloc_retries"] == stats["alloc_retries"]


def test_where_a_smaller_card_is_full(gpucast_bin, open_batch, tmp_path):
    """Its tensors would fit, and yet it runs out of memory: at the same place as PyTorch with the limit enforced."""
    path = tmp_path / "gpt.gpucast"
    report = run(open_batch, GPT, "--gpu", "rtx3060", capture=path)
    assert report["verdict"] == "does_not_fit" and report["oom"] is None
    assert (
        report["peak"]["allocated_bytes"] + report["device"]["low_bytes"] - report["peak"]["reserved_bytes"]
        < report["gpu"]["capacity_bytes"]
    )
    really_path = tmp_path / "enforced.gpucast"
    really = run(open_batch, GPT, "--gpu", "rtx3060", "--enforce-capacity", capture=really_path)
    assert really["oom"]["ended_run"]
    with gzip.open(really_path, "rt") as file:
        capacity = json.loads(file.readline())["capacity_bytes"]
    (row,) = [row for row in replays(gpucast_bin, path, "--capacity", capacity) if row["capacity_bytes"] == capacity]
    assert row["oom"]["free_bytes"] == really["oom"]["free_bytes"]
    assert row["peak"]["allocated_bytes"] == really["peak"]["allocated_bytes"]


def test_the_smallest_card_is_the_smallest(capture, gpucast_bin):
    path, report = capture
    least = report["min_capacity_bytes"] - sum(line["expected_bytes"] for line in report["ledger"])
    enough, too_little = (replays(gpucast_bin, path, "--capacity", least - less)[-1] for less in (0, 2 << 20))
    assert enough["oom"] is None
    assert too_little["oom"] is not None


def real_snapshots():
    return sorted([*SHARED.glob("*snapshots/*.pickle*"), *SHARED.glob("*snapshots/*/*.pickle*")])


def test_real_snapshots_are_there():
    if not real_snapshots():
        pytest.skip(f"{SHARED} is absent: snapshots of real GPUs are not replayed")


@pytest.mark.parametrize("path", real_snapshots(), ids=lambda path: path.name)
def test_real_snapshot_replays_exactly(path, gpucast_bin):
    assert replays(gpucast_bin, path)[0]["matches_recorded"] is True


def test_the_drawn_example_is_what_replay_says(gpucast_bin):
    script = ROOT / "docs/explanation/figures/draw_allocator_example.py"
    done = subprocess.run([sys.executable, str(script), "--gpucast", gpucast_bin, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
