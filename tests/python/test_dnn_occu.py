"""DNN-occu next to the computed occupancy: graphs, steps of inference, the network and the command's output."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT

pytestmark = pytest.mark.once

MODEL = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).cuda().eval()
x = torch.zeros(16, 64, device="cuda")
"""
INFERENCE = (
    MODEL
    + """
with torch.no_grad():
    for _ in range(3):
        y = model(x)
"""
)


@pytest.fixture
def occupancy(gpucast_bin, tmp_path):
    """`gpucast occupancy` of a script: the report, or its message if it ends with code 2."""

    def run(script, *options, code=0, what=("--", sys.executable, "script.py")):
        (tmp_path / "script.py").write_text(script)
        words = [gpucast_bin, "occupancy", "--format", "json", *options, *what]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if code == 0 else done.stderr

    return run


def test_graph(gpucast, tmp_path, monkeypatch):
    monkeypatch.setenv("GPUCAST_GRAPH", str(tmp_path / "graph.json"))
    gpucast(INFERENCE, fresh=True)
    graph = json.loads((tmp_path / "graph.json").read_text())
    assert graph["python"] == sys.executable
    first, relu, last = graph["nodes"]
    assert [node["operator"] for node in graph["nodes"]] == ["aten::addmm", "aten::relu", "aten::addmm"]
    assert first["inputs"] == [[128], [16, 64], [64, 128]] and first["outputs"] == [[16, 128]]
    assert first["flops"] == 2 * 16 * 64 * 128 and relu["flops"] == 16 * 128
    assert first["input_bytes"] == 4 * (128 + 16 * 64 + 64 * 128) and last["output_bytes"] == 4 * 16 * 32
    assert relu["temporary_bytes"] == last["temporary_bytes"] == 0 < first["temporary_bytes"]  # cuBLAS' workspace
    assert graph["edges"] == [[0, 1, 4 * 16 * 128], [1, 2, 4 * 16 * 128]]


def test_a_step_of_inference(occupancy):
    result = occupancy(INFERENCE)
    assert sorted(kernel["name"] for kernel in result["kernels"]) == ["aten::addmm", "aten::addmm", "aten::clamp_min"]
    assert result["step_observed"] == 2 and "dnn_occu" not in result["occupancy"]


def test_what_ran_before_training_is_no_step(occupancy):
    training = """
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    result = occupancy(INFERENCE + training)
    assert "optimizer_step" in {part["name"] for part in result["by_phase"]}


def test_guess_beside_what_is_computed(occupancy):
    result = occupancy(INFERENCE, "--method", "dnn-occu", "--gpu", "a100-80,p40")
    for card in result["cards"]:
        assert 0 < card["occupancy"]["dnn_occu"] < 1


def test_what_cannot_be_asked(occupancy, tmp_path):
    assert "a capture does not hold the graph" in occupancy(
        "", "--method", "dnn-occu", code=2, what=[str(ROOT / "tests/cases/time_small/input.jsonl")]
    )
    assert "no network is used" in occupancy("", "--weights", "none.npz", code=2)
    assert "cannot be read" in occupancy("", "--method", "dnn-occu", "--weights", "none.npz", code=2)
    assert "for one step" in occupancy("", "--method", "dnn-occu", "--sweep", "batch=1,2", code=2)
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 nothing")
    assert "no weights of DNN-occu" in occupancy(INFERENCE, "--method", "dnn-occu", "--weights", "bad.npz", code=2)
    bare = INFERENCE.replace("model(x)", "nn.functional.relu(x)")
    assert "no whole step was observed" in occupancy(bare, "--method", "dnn-occu", code=2)


NETWORKS = """
import json, os, sys, torch
torch.zeros(1, device="cuda")
torch.set_num_threads(1)
sys.path.insert(0, PYTHON)
os.chdir(FOLDER)
os.mkdir("whole")
from dnn_occu import graphs, networks, training

def graph(nodes, batch):
    one = lambda n: {"operator": "aten::addmm" if n % 2 else "aten::relu", "hyperparameters": [1], "inputs": [[batch, 64]],
                     "outputs": [[batch, 64]], "input_bytes": 256 * batch, "output_bytes": 256 * batch, "temporary_bytes": 0, "flops": batch}
    edges = [[n, n + 1, 256 * batch] for n in range(nodes - 1)]
    card = dict.fromkeys(graphs.CARD, 1e12)
    return graphs.graph({"nodes": [one(n) for n in range(nodes)], "edges": edges}, card)

some = [graph(nodes, batch) for nodes in (1, 5, 9) for batch in (4, 64, 1024)]
truth = [0.2, 0.4, 0.8] * 3
result = {}
for kind in networks.NETWORKS:
    network, _ = training.train(kind, some, truth, 2, 1, ".")
    alone = [training.predict(network, [one])[0] for one in some]
    result[kind] = max(abs(a - b) for a, b in zip(alone, training.predict(network, some)))
again, _ = training.train("DNN-occu", some, truth, 40, 1, ".")
whole, _ = training.train("DNN-occu", some, truth, 40, 1, "whole")
result["resumed"] = max((a - b).abs().max().item() for a, b in zip(again.parameters(), whole.parameters()))
result["error"] = max(abs(a - b) for a, b in zip(training.predict(whole, some), truth))
training.save(whole, "weights.npz")
result["half"] = max(abs(a - b) for a, b in zip(training.predict(training.load("DNN-occu", "weights.npz"), some), training.predict(whole, some)))
json.dump(result, open("result.json", "w"))
"""


@pytest.mark.slow
def test_networks_learn(gpucast, tmp_path):
    """A graph's answer does not depend on the other graphs in its batch; an interrupted training ends with the same result."""
    script = NETWORKS.replace("PYTHON", repr(str(ROOT / "python"))).replace("FOLDER", repr(str(tmp_path)))
    run = gpucast(script, "--until-end", fresh=True)
    assert (tmp_path / "result.json").exists(), run.err
    result = json.loads((tmp_path / "result.json").read_text())
    assert set(result) == {"DNN-occu", "MLP", "LSTM", "Transformer", "DNNPerf", "BRP-NAS", "resumed", "error", "half"}
    assert all(value < 1e-5 for name, value in result.items() if name not in ("error", "half"))
    assert result["error"] < 0.1 and result["half"] < 0.01
