"""`engine="ray"` on two local nodes; one dies in the middle: the rows equal the local engine's, each once."""

import os
import sys

import gpucast
import pytest
import ray

CASES = int(os.environ.get("GPUCAST_CASES", "16"))
SCRIPT = "import sys, torch\nx = torch.zeros(int(sys.argv[1]) << 20, device='cuda')\nif len(sys.argv) > 2: raise ValueError(sys.argv[2])\n"


@pytest.fixture
def two_nodes():
    from ray.cluster_utils import Cluster

    memory = 100 << 20  # Ray's least, about: rows are small
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": memory})
    cluster.add_node(num_cpus=1, object_store_memory=memory)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def jobs():
    for i in range(CASES):
        more = ["no data"] if i % 10 == 7 else []
        yield {"name": f"case {i}", "command": [sys.executable, "job.py", str(i + 1), *more], "gpu": "rtx3060"}


def told(rows):
    """The part that must not depend on where and when a job ran."""
    varies = ("seconds", "forked")
    return {row.name: {name: value for name, value in row.json.items() if name not in varies} for row in rows}


def test_a_dying_node_loses_and_doubles_nothing(two_nodes, tmp_path, monkeypatch):
    (tmp_path / "job.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    rows = []
    for row in gpucast.batch(jobs(), engine="ray", jobs_per_task=2):
        rows.append(row)
        if len(rows) == CASES // 3:
            two_nodes.remove_node(next(iter(two_nodes.worker_nodes)), allow_graceful=False)
    assert sorted(row.name for row in rows) == sorted(job["name"] for job in jobs())
    on_ray, local = told(rows), told(gpucast.batch(jobs()))
    assert [name for name in local if on_ray[name] != local[name]] == []
    assert {row.status for row in rows} == {"fits", "failed"}


def test_errors_say_what_to_do(monkeypatch):
    with pytest.raises(gpucast.Error, match="no Ray cluster is connected"):
        next(gpucast.batch([], engine="ray"))
    with pytest.raises(gpucast.Error, match="no engine is named 'dask'"):
        gpucast.batch([], engine="dask")
