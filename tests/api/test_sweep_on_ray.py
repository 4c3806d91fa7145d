"""`gpucast sweep` with its extras: YAML, Parquet, an Optuna study, and two Ray nodes of which one dies, twice."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from gpucast.command import find_command

CASES = int(os.environ.get("GPUCAST_CASES", "12"))
SCRIPT = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int)
parser.add_argument("--width", type=int)
args = parser.parse_args()
model = torch.nn.Sequential(torch.nn.Linear(64, args.width), torch.nn.ReLU(), torch.nn.Linear(args.width, 4)).cuda()
optimizer = torch.optim.Adam(model.parameters())
if args.width == 96:
    raise ValueError("no width of 96")
for _ in range(3):
    model(torch.zeros(args.batch, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SPEC = f"""
command: {sys.executable} train.py
vary:
  --batch: {{from: 1, to: {CASES // 4}, step: 1}}
  --width: [32, 64, 96, 128]
gpus: [rtx3060, rtx3090]
steps: 2
"""
VARIES = ("seconds", "step_ns", "step_low_ns", "step_high_ns", "samples_per_s")  # the host's time is measured


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "sweep.yaml").write_text(SPEC)
    return tmp_path


def sweep(folder, *options, spec="sweep.yaml"):
    command = [find_command(), "sweep", spec, "--python", sys.executable, "--format", "json", *options]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result_of(process, timeout_s=300):
    out, err = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, err
    return json.loads(out)


def wait_for_runs(process, folder, count):
    journal = folder / "journal.jsonl"
    while process.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") > count):
        time.sleep(0.05)


def rows_of(folder):
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(folder / "rows.parquet").to_pylist()
    return [{name: value for name, value in row.items() if name not in VARIES} for row in rows]


@pytest.fixture
def cluster():
    from ray.cluster_utils import Cluster

    memory = 100 << 20  # Ray's least, about: rows are small
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": memory})
    cluster.more = lambda: cluster.add_node(num_cpus=1, object_store_memory=memory)
    cluster.more()
    yield cluster
    cluster.shutdown()


def kill_a_node(cluster):
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)


def test_a_node_dies_twice_and_the_rows_are_those_of_this_machine(cluster, folder):
    begin = time.monotonic()
    process = sweep(folder, "--engine", "ray", "--address", cluster.address, "-o", "on_ray")
    for part in (1, 2):
        wait_for_runs(process, folder / "on_ray", part * CASES // 3)
        kill_a_node(cluster)
        cluster.more()
    result = result_of(process, 3600)
    print(f"on Ray: {time.monotonic() - begin:.1f} s")
    assert result["runs"] == result["runs_now"] == CASES and result["rows"] == 2 * CASES
    numbers = [json.loads(line)["job"] for line in (folder / "on_ray/journal.jsonl").read_text().splitlines()[1:]]
    assert sorted(numbers) == list(range(CASES))
    begin = time.monotonic()
    local = result_of(sweep(folder, "-o", "local"), 3600)
    print(f"local: {time.monotonic() - begin:.1f} s")
    assert local["statuses"] == result["statuses"] == {"fits": CASES * 3 // 2, "tight": 0, "does_not_fit": 0, "failed": CASES // 2}
    assert rows_of(folder / "on_ray") == rows_of(folder / "local")
    assert all(row["run"].startswith("gpucast run --gpu rtx30") for row in rows_of(folder / "local"))


def test_a_lost_cluster_is_said_and_the_sweep_goes_on(cluster, folder):
    process = sweep(folder, "--engine", "ray", "--address", cluster.address)
    wait_for_runs(process, folder / "sweep.sweep", 1)
    cluster.shutdown()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "the Ray cluster is lost" in err and "to do: the same command goes on" in err
    assert result_of(sweep(folder))["runs"] == CASES


def test_no_cluster_is_an_error(folder):
    for address in ("127.0.0.1:1", "auto"):
        process = sweep(folder, "--engine", "ray", "--address", address)
        assert "no Ray cluster can be reached" in process.communicate(timeout=120)[1] and process.returncode == 2


def test_a_study_with_one_seed_draws_the_same_cases(folder):
    study = {"command": [sys.executable, "train.py"], "gpus": ["rtx3060", "a100-80"], "steps": 2}
    study["vary"] = {"--batch": {"from": 1, "to": 4096, "times": 2}, "--width": [32, 96, 512]}
    study["study"] = {"trials": 10, "maximise": "samples_per_s", "seed": 1, "at_once": 4}
    (folder / "study.json").write_text(json.dumps(study))
    process = sweep(folder, spec="study.json")
    wait_for_runs(process, folder / "study.sweep", 3)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    result = result_of(sweep(folder, spec="study.json"))
    assert 4 < result["runs"] <= 10 and result["runs_now"] < result["runs"]
    assert all(row["status"] in ("fits", "failed") for row in rows_of(folder / "study.sweep"))
