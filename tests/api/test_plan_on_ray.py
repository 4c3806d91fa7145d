"""eval/packing/plan_on_ray.py: the same answer on one worker, on four, and on a cluster of two nodes; and it is the best of its rows."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def jobs(tmp_path):
    rng = random.Random(7)
    rows = ["name,memory_gib,occupancy,nvml_utilization,dram,kernels,step_ms,steps,arrival_s"]
    for n in range(400):
        share = rng.uniform(0.1, 0.9)
        rows.append(f"job{n},{rng.uniform(1, 20):.2f},{share * rng.uniform(0.2, 1):.3f},{share:.3f},{share / 2:.3f},{rng.randint(50, 5000)},100,{rng.randint(10, 2000)},{rng.uniform(0, 60):.2f}")  # fmt: skip
    table = tmp_path / "jobs.csv"
    table.write_text("\n".join(rows) + "\n")
    return table


def answer(jobs, *options):
    words = [
        sys.executable,
        "-m",
        "eval.packing.plan_on_ray",
        jobs,
        "--gpus",
        "12xp40",
        "--seeds",
        "3",
        "--gpucast",
        os.environ["GPUCAST_BIN"],
        *options,
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_workers_make_no_difference(jobs, tmp_path):
    one, _ = answer(jobs, "--workers", "1", "-o", str(tmp_path / "one.json"))
    four, _ = answer(jobs, "--workers", "4", "-o", str(tmp_path / "four.json"))
    assert one == four
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "four.json").read_bytes()
    rows = [line.split(" | ") for line in one.splitlines() if line.startswith("| ") and "policy" not in line]
    assert len(rows) == 4 + 3
    most = max(int(row[3]) for row in rows)
    assert float(rows[0][4]) == min(float(row[4]) for row in rows if int(row[3]) == most)

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    try:
        two, said = answer(jobs, "--address", cluster.address)
    finally:
        cluster.shutdown()
    assert "on 2 machines" in said
    assert two == one
