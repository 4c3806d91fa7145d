"""`gpucast breakdown` of real runs: everything adds up, next to nothing is unattributed, the tree of a deep model reads well."""

import csv
import io
import json
import subprocess
import sys

import pytest
from conftest import ROOT

pytestmark = pytest.mark.once

GPT = (ROOT / "examples/train_gpt.py").read_text()
GPT_ARGUMENTS = ("--batch", "2", "--sequence", "128", "--layers", "12", "--width", "192", "--heads", "4")

SEVERAL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 256)
        self.rnn = nn.LSTM(256, 256, num_layers=2, batch_first=True)
        self.norm = nn.BatchNorm1d(256)
        self.head = nn.Linear(256, 1000)

    def forward(self, x):
        y, _ = self.rnn(self.embed(x))
        y = self.norm(y.transpose(1, 2)).transpose(1, 2)
        return self.head(torch.tanh(y) * y)

model = nn.DataParallel(Net().cuda(), device_ids=[0])
optimizer = torch.optim.RMSprop(model.parameters(), momentum=0.9)
for step in range(3):
    optimizer.zero_grad()
    for part in range(2):
        x = torch.randint(0, 1000, (16, 64), device="cuda")
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()) / 2
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


class Breakdown:
    def __init__(self, gpucast_bin, path):
        self._command = [gpucast_bin, "breakdown", str(path)]
        self.json = json.loads(self.print("--format", "json"))

    def print(self, *options):
        return subprocess.run([*self._command, *options], capture_output=True, text=True, check=True, timeout=60).stdout

    def export(self, form, path):
        gpucast_bin, _, capture = self._command
        subprocess.run([gpucast_bin, "export", capture, "--to", form, "-o", str(path)], capture_output=True, check=True, timeout=60)
        return path.read_text()


@pytest.fixture(scope="module")
def ran(open_batch, tmp_path_factory):
    """The run of a script, made once."""
    done = {}

    def of(name):
        if name not in done:
            script, arguments = {
                "gpt": (GPT, GPT_ARGUMENTS),
                "gpt_checkpoint": (GPT, (*GPT_ARGUMENTS, "--checkpoint", "--accumulate", "2")),
                "several": (SEVERAL, ()),
            }[name]
            folder = tmp_path_factory.mktemp(name)
            (folder / "train.py").write_text(script)
            command = [sys.executable, "train.py", *arguments]
            done[name] = open_batch.gpucast(folder, command, "--gpu", "rtx3060", capture=folder / "train.gpucast")
            assert done[name].code == 0, done[name].err
        return done[name]

    return of


@pytest.fixture(scope="module", params=["gpt", "gpt_checkpoint", "several"])
def broken_down(request, ran, gpucast_bin):
    run = ran(request.param)
    return run.report, Breakdown(gpucast_bin, run.capture_path)


def total(figures):
    return sum(category["bytes"] for category in figures["categories"].values())


def test_adds_up_and_explains_nearly_all(broken_down):
    report, breakdown = broken_down
    moments = breakdown.json["moments"]
    for name in ("peak", "forward_end", "end"):
        moment = moments[name]
        assert total(moment) == moment["total_bytes"] == moment["allocated_bytes"]
        assert moment["allocated_bytes"] + moment["free_but_reserved_bytes"] == moment["reserved_bytes"]
        assert moment["categories"].get("unattributed", {"bytes": 0})["bytes"] < 0.02 * moment["allocated_bytes"]
        for rows in breakdown.json["by"].values():
            assert sum(row[name]["total_bytes"] for row in rows if row.get("parent") is None) == moment["allocated_bytes"]
            assert all(total(row[name]) == row[name]["total_bytes"] for row in rows)
    assert moments["peak"]["allocated_bytes"] == report["peak"]["allocated_bytes"]
    assert breakdown.json["peak_reserved_bytes"] == report["peak"]["reserved_bytes"]
    on_card = breakdown.json["peak_reserved_bytes"] + sum(line["expected_bytes"] for line in breakdown.json["ledger"])
    assert on_card == breakdown.json["device"]["expected_bytes"] == report["device"]["expected_bytes"]
    # Children add up to their parent.
    modules = breakdown.json["by"]["module"]
    for index, parent in enumerate(modules):
        below = [row["peak"]["total_bytes"] for row in modules if row["parent"] == index]
        assert not below or sum(below) == parent["peak"]["total_bytes"]


def test_forward_keeps_activations_and_backward_hands_gradients_on(broken_down):
    _, breakdown = broken_down
    moments = breakdown.json["moments"]
    assert moments["forward_end"]["phase"] == "forward"
    assert moments["forward_end"]["categories"]["activations"]["bytes"] > 0
    assert moments["maximum"]["categories"]["intermediate_gradients"]["bytes"] > 0
    operators = [row["name"] for row in breakdown.json["by"]["operator"]]
    assert any(name.endswith("Backward0") for name in operators)
    assert any(name.startswith("optim.") for name in operators)


def test_csv_says_what_json_says(broken_down, tmp_path):
    _, breakdown = broken_down
    assert breakdown.export("json", tmp_path / "all.json") == breakdown.print("--format", "json")
    everything = breakdown.export("csv", tmp_path / "all.csv").splitlines()
    for by, rows in breakdown.json["by"].items():
        text = breakdown.print("--by", by, "--format", "csv")
        assert [line for line in everything if line.startswith(f"{by},")] == text.splitlines()[1:]
        lines = list(csv.DictReader(io.StringIO(text)))
        read = {(line["name"], line["itself"], line["category"]): line for line in lines}
        for row in rows:
            for category, figure in row["maximum"]["categories"].items():
                line = read[row["name"], str(int(row.get("itself", False))), category]
                assert int(line["maximum_bytes"]) == figure["bytes"]
                assert int(line["maximum_requested_bytes"]) == figure["requested_bytes"]
                assert int(line["peak_bytes"]) == row["peak"]["categories"].get(category, {"bytes": 0})["bytes"]


def test_a_tree_of_twelve_layers_reads_well(ran, gpucast_bin):
    run = ran("gpt")
    text = Breakdown(gpucast_bin, run.capture_path).print()
    assert all(len(line) <= 100 for line in text.splitlines())
    tree = text[text.index("By module") :]
    for layer in range(12):
        assert f"    {layer} (Block)" in tree
    assert "GPT " in tree
    assert "  tokens (Embedding)" in tree
    assert "…" not in tree
    assert len(tree.splitlines()) <= 47
    deep = Breakdown(gpucast_bin, run.capture_path).print("--depth", "9")
    assert all(len(line) <= 100 for line in deep.splitlines())
    assert "      attention (Attention)" in deep
    assert "        qkv (Linear)" in deep


def test_bad_options_say_what_is_wrong(gpucast_bin, tmp_path):
    done = subprocess.run([gpucast_bin, "breakdown", "x.gpucast", "--by", "layer"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "module" in done.stderr
    done = subprocess.run([gpucast_bin, "breakdown", "x.gpucast"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot open x.gpucast" in done.stderr
