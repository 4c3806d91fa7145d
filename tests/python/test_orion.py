"""ORION: its closed forms against PyTorch's own count, the data pipeline, trees without LightGBM, what is held out, and the evaluation on small
tables made by hand."""

import csv
import json
import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import pytest
from conftest import ROOT

from eval.orion import evaluate as evaluation
from eval.orion import full_rows, judged, orion_tables, own_steps, pictures, published
from python.orion import features, flops, pipeline, steps, trees
from python.orion.__main__ import main as orion_main

pytestmark = pytest.mark.once

NETWORKS = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.all, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
    def forward(self, x):
        q, k, v = self.all(x).chunk(3, dim=-1)
        return self.out(torch.softmax(q @ k.transpose(1, 2), dim=-1) @ v)

class Mixer(nn.Module):
    def __init__(self, tokens, width, token_hidden, channel_hidden):
        super().__init__()
        self.tokens = nn.Sequential(nn.Linear(tokens, token_hidden), nn.GELU(), nn.Linear(token_hidden, tokens))
        self.channels = nn.Sequential(nn.Linear(width, channel_hidden), nn.GELU(), nn.Linear(channel_hidden, width))
    def forward(self, x):
        x = x + self.tokens(x.transpose(1, 2)).transpose(1, 2)
        return x + self.channels(x)

feed_forward = nn.Sequential(nn.Linear(32, 96), nn.GELU(), nn.Linear(96, 32))
images = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(8, 6, (1, 3)), nn.Flatten(), nn.Linear(6 * 8 * 6, 10))
model, x = {
    "transformer": (nn.Sequential(Attention(32), feed_forward, Attention(32), feed_forward), torch.zeros(4, 16, 32)),
    "mlp": (Mixer(16, 32, 24, 64), torch.zeros(4, 16, 32)),
    "cnn": (images, torch.zeros(4, 4, 8, 8)),
}[FAMILY]
model, x = model.cuda(), x.cuda()
optimizer = torch.optim.Adam(model.parameters(), foreach=False)
for _ in range(3):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
CLOSED = {
    "transformer": flops.transformer_all(2, 16, 32, 96),
    "mlp": flops.token_mixing_mlp(1, 16, 32, 24, 64),
    "cnn": flops.cnn([(4, 8, 2, (3, 3), (8, 8)), (8, 6, 1, (1, 3), (8, 6))], [(6 * 8 * 6, 10)]),
}


@pytest.mark.parametrize("family", CLOSED)
def test_closed_forms_are_what_runs(gpucast, gpucast_bin, family, capsys, tmp_path):
    run = gpucast(NETWORKS.replace("FAMILY", repr(family)))
    step, times = steps.read(gpucast_bin, run.capture_path, ["a100-80", "t4"])
    assert step.forward_flops == 4 * CLOSED[family] and step.samples == 4 and step.trains
    assert step.optimizer_bytes >= flops.optimizer_bytes(step.parameter_bytes, "AdamW") > 0 and step.activation_bytes > 0
    # Every product needs two in the backward pass, except the first, because its input needs no gradient: kappa is not free.
    assert 2 < step.all_flops / step.forward_flops <= 3
    assert (
        judged.family_of(family if family == "mlp" else "net", step) == {"cnn": "CNN", "mlp": "MLP", "transformer": "Transformer"}[family]
    )
    if family != "cnn":
        return
    words = [str(run.capture_path), "--gpucast", gpucast_bin, "--gpu", "a100-80,t4"]
    assert orion_main([*words, "--method", "roofline,gpucast", "--format", "json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert [(line["gpu"], line["method"]) for line in lines] == [
        (gpu, method) for gpu in ("a100-80", "t4") for method in ("roofline", "gpucast")
    ]
    assert lines[2]["step_ms"] == steps.roofline_ms(times["t4"]) < lines[3]["step_ms"] and lines[0]["bound"] == "gpu"
    # The slower of two paths: 4 samples, 2 workers, 1 MB from 100 MB/s.
    feeding = [
        "--one-worker-ms",
        "30",
        "--decode-ms",
        "0.5",
        "--workers",
        "2",
        "--storage",
        "1e8",
        "--batch-bytes",
        "1e6",
        "--alpha",
        "0.1",
    ]
    assert orion_main([*words, "--method", "gpucast", "--format", "json", *feeding]) == 0
    line = json.loads(capsys.readouterr().out)[0]
    assert (line["step_ms"], line["bound"]) == (pytest.approx(10 + 2 + 30 * 1.1 / 2), "pipeline")
    trees.write(tmp_path / "trees.json", {"orion": {**MODEL, "features": list(features.ORION)}})
    assert orion_main([*words, "--trees", str(tmp_path / "trees.json")]) == 0
    assert "orion" in capsys.readouterr().out
    for more, said in (
        (["--method", "prophet"], "no method prophet"),
        (["--method", "prenet"], "--trees"),
        (["--trees", "none.json"], "cannot be read"),
        (["--method", "roofline", "--gpu", "t44"], "t44"),
        (["--method", "gpucast", "--one-worker-ms", "1", "--storage", "tape"], "not 'tape'"),
        (["--method", "gpucast", "--one-worker-ms", "1", "--workers", "0"], "at least 1 worker"),
    ):
        assert orion_main([*words, *more]) == 2
        assert said in capsys.readouterr().err
    assert orion_main(["none.gpucast", *words[1:]]) == 2 and "is no file" in capsys.readouterr().err


def test_the_printed_transformer_is_short_of_a_part():
    vit_b = {"blocks": 12, "length": 197, "width": 768, "feed_forward": 3072}
    printed = flops.transformer(heads=12, **vit_b)
    assert printed == flops.transformer(heads=1, **vit_b)  # heads share the width
    missing = 12 * (4 * 197 * 768**2 + 2 * 197**2 * 768)
    assert flops.transformer_all(**vit_b) == printed + missing
    assert flops.token_mixing_mlp(12, 196, 768, 384, 3072) / 2 == pytest.approx(12.5e9, rel=0.01)  # Mixer-B/16: 12.6 G with its stem


def test_kappa_and_memory():
    assert flops.iteration(10) == 30 and flops.iteration(10, 2.5) == 25
    with pytest.raises(ValueError, match=r"2\.5 to 3\.5"):
        flops.iteration(10, 4)
    assert flops.memory_surrogate(100, flops.optimizer_bytes(100, "SGD"), 50) == 250
    with pytest.raises(ValueError, match="lion"):
        flops.optimizer_bytes(100, "lion")
    assert flops.intensity(500, 250) == 2 and flops.intensity(500, 0) == 0


def test_scalability_is_found_again():
    loader = pipeline.Pipeline(0, 0, 40, contention=0.05, coherency=0.01)
    measured = {workers: pipeline.cpu_ms(loader, workers) for workers in (1, 2, 4, 8)}
    assert measured[1] == 40 and measured[2] == 40 * (1 + 0.05 + 0.02) / 2
    assert pipeline.fit_scalability(measured) == (pytest.approx(0.05), pytest.approx(0.01))
    assert pipeline.fit_scalability({1: 40, 4: 10}) == (0, 0)  # linear, and one point determines contention alone
    assert pipeline.fit_scalability({1: 40, 2: 15, 4: 9}) >= (0, 0)
    # A loader that is slower with more workers: nothing below 0, and beyond contention alone.
    alpha, beta = pipeline.fit_scalability({1: 10, 2: 6, 8: 20})
    assert alpha == 0 and beta > 0
    for bad in ({1: 10}, {2: 5, 4: 3}, {1: 0, 2: 5}):
        with pytest.raises(ValueError, match="1 worker"):
            pipeline.fit_scalability(bad)


def test_storage_and_bound():
    assert 0.4e9 < pipeline.storage_bandwidth("SSD") < 0.7e9 and 2e9 < pipeline.storage_bandwidth("nvme") < 7e9
    assert pipeline.storage_bandwidth("250e6") == 250e6
    for bad in ("disk", "0", "-1", "inf", "nan"):
        with pytest.raises(ValueError, match="storage"):
            pipeline.storage_bandwidth(bad)
    assert pipeline.step_ms(10, 4) == (10, "gpu") and pipeline.step_ms(4, 10) == (10, "pipeline")


# --- Trees -------------------------------------------------------------------------------------------------------------------------------

# x[0] <= 2 ? (x[1] <= 5 ? 1 : 2) : 3, and a tree that is a leaf.
TREE = {
    "feature": [0, 1, -1, -1, -1],
    "threshold": [2, 5, 0, 0, 0],
    "left": [1, 2, 0, 0, 0],
    "right": [4, 3, 0, 0, 0],
    "value": [0, 0, 1, 2, 3],
}
LEAF = {"feature": [-1], "threshold": [0], "left": [0], "right": [0], "value": [0.5]}
MODEL = {"schema_version": 1, "features": ["a", "b"], "logarithm": False, "trees": [TREE, LEAF]}


def test_trees_need_no_library(tmp_path):
    assert [trees.predict(MODEL, row) for row in ((2, 5), (2, 6), (2.1, 0))] == [1.5, 2.5, 3.5]
    assert trees.predict({**MODEL, "logarithm": True}, (3, 0)) == pytest.approx(math.exp(3.5))
    trees.write(tmp_path / "trees.json", {"orion": MODEL})
    assert trees.read(tmp_path / "trees.json") == {"orion": MODEL}
    for content in ("", "[]", '{"schema_version": 2, "methods": {}}', '{"schema_version": 1}'):
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(ValueError, match=r"bad\.json"):
            trees.read(tmp_path / "bad.json")


def test_trained_trees_answer_as_lightgbm_does():
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM, which trains ORION's trees, is not installed")
    numpy = pytest.importorskip("numpy")
    rows = [[float(a), float(b * b), float((a * 7 + b) % 5)] for a in range(12) for b in range(6)]
    times = [1 + row[0] * row[1] + row[2] for row in rows]
    model = trees.train(rows, times, ["a", "b", "c"], count=30)
    settings = {**trees.SETTINGS, **trees.REPEATABLE, "seed": 1}
    theirs = lightgbm.train(settings, lightgbm.Dataset(numpy.array(rows), numpy.log(times), params=settings), 30).predict(numpy.array(rows))
    ours = [trees.predict(model, row) for row in rows]
    assert ours == pytest.approx(list(numpy.exp(theirs)))
    # A factor that is the same for all rows, as kappa is, changes nothing.
    scaled = trees.train([[3.5 * row[0], *row[1:]] for row in rows], times, ["a", "b", "c"], count=30)
    assert [trees.predict(scaled, [3.5 * row[0], *row[1:]]) for row in rows] == pytest.approx(ours)


# --- What is held out --------------------------------------------------------------------------------------------------------------------

CARD = steps.Card("t4", 40, 1590000, 320e9, 16 * 2**30, 4 * 2**20, 70, {"fp32": 8.1e12, "fp16": 65e12})


def step_of(samples=8, convolution=1e9):
    layers = {**dict.fromkeys(steps.LAYERS, (0, 0, 0)), "convolution": (convolution, 1e8, 3)}
    return steps.Step(samples, convolution / 3, convolution, True, 10**6, 2 * 10**6, 10**8, "fp16", layers)


def judged_row(name, model="net", card="t4", ms=10.0, table="lambda", samples=8, seen=False):
    return judged.Judged(name, table, "AMP", card, model, "CNN", "", ms, step_of(samples), ms / 2, ms * 1.1, seen)


ROWS = [
    judged_row(f"{card} {model} {n}", model, card, 10 + n)
    for card in ("t4", "a100-80", "a100-40", "titanv", "v100-16")
    for model in "abcdefg"
    for n in (1, 2)
]


@pytest.mark.parametrize("protocol, key", [("row", lambda row: row.name), ("model", lambda row: row.model), ("card", lambda row: row.chip)])
def test_nothing_is_learned_from_what_is_judged(monkeypatch, tmp_path, protocol, key):
    learned = []

    def train(x, times, names, logarithm, seed):
        learned.append(sorted(times))
        return {"times": sorted(times)}

    monkeypatch.setattr(judged.trees, "train", train)
    monkeypatch.setattr(judged.trees, "predict", lambda model, row: float(len(learned)))
    fits = judged.Fits(dict.fromkeys({row.card for row in ROWS}, CARD), tmp_path)
    found = fits.predictions("orion", ROWS, protocol)
    assert set(found) == {row.name for row in ROWS}
    parts = judged.held_out(ROWS, protocol, 1)
    assert len(parts) == (3 if protocol == "card" else 5) == len(learned)
    for part, times in zip(parts, learned):
        outside = [row for row in ROWS if key(row) not in {key(row) for row in part}]
        assert times == sorted(row.measured_ms for row in outside)
    # Again: nothing is trained. Another time: all that learns from it.
    assert fits.predictions("orion", ROWS, protocol) == found and len(learned) == len(parts)
    changed = [judged_row(ROWS[0].name, ROWS[0].model, ROWS[0].card, 99), *ROWS[1:]]
    fits.predictions("orion", changed, protocol)
    assert len(learned) == 2 * len(parts) - 1
    assert fits.predictions("orion", ROWS[:1], "card") == {}


def test_models_under_several_names():
    def name(model):
        return judged.model_of(SimpleNamespace(model=model))

    assert name("bert_squad") == name("bert_pretraining") == name("bert_large") == "bert_large"
    assert name("tf_efficientnet_b2_ns") == "efficientnet_b2"


def test_features_are_as_many_as_their_names():
    for names, make in features.METHODS.values():
        assert len(names) == len(make(step_of(), CARD)) == len(set(names))
    assert CARD.peak("bf16") == CARD.peak("fp16") == 65e12 and CARD.peak("tf32") == 8.1e12
    half = dict(zip(features.ORION, features.orion(step_of(), CARD, 2.5)))
    assert half["iteration_flops"] == pytest.approx(math.log2(1 + 2.5e9 / 3)) and half["memory_pressure"] == pytest.approx(1.03e8 / 2**34)


def test_step_needs_flops_and_samples():
    times = {
        "by_phase": [{"name": "forward"}],
        "by_kind": [],
        "model_flops": 12.0,
        "hardware_flops": 12.0,
        "samples": 4,
        "peak_precision": "fp32",
    }
    report = {"categories": [{"name": "temporaries", "bytes": 7}]}
    inference = steps.step(times, report)
    assert (inference.trains, inference.forward_flops, inference.activation_bytes) == (False, 12, 7)
    assert features.iteration_flops(inference) == 12  # no backward pass: no kappa
    for missing in ("model_flops", "samples"):
        with pytest.raises(ValueError, match="observed step"):
            steps.step({**times, missing: 0}, report)


# --- Tables and pictures -----------------------------------------------------------------------------------------------------------------


def test_tables_compare_the_same_rows():
    rows = [judged_row("one", ms=10), judged_row("two", ms=20), judged_row("seen", ms=30, seen=True)]
    found = {
        (name, protocol): {"one": 12.0, "two": 20.0, "seen": 30.0}
        for name in ("gpucast", "roofline", "ORION", "ORION on ms", "PreNeT")
        for protocol in ("", "row", "model", "card")
    }
    del found["ORION", "card"]["two"]
    assert [row.name for row in orion_tables.judged_of(rows)] == ["one", "two"]
    table = orion_tables.errors_table("rows", {"all": rows[:2]}, found, orion_tables.METHODS)
    assert table.splitlines()[-1].startswith("| all | 1 | 10.0 | 2.0 / 20.0 |")
    text = "\n".join(orion_tables.steps_part(rows, found, {}, ["a: b"]))
    assert "the other 1 are of the half" in text and "- a: b" in text
    assert orion_tables.errors_table(
        "rows", {"all": rows}, {method: {} for method in orion_tables.METHODS}, orion_tables.METHODS
    ).startswith("no row")
    several = orion_tables.batches_table(
        [judged_row("s", samples=8), judged_row("t", samples=16)], {("ORION", "model"): {"s": 11.0}, ("gpucast", ""): {}}
    )
    assert "| CNN | net | t4, AMP | 8 | 10.0 | 11.0 | +10.0 | - | - |" in several


def write_csv(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def published_line(model, batch, measured, predicted, error):
    return {"Model": model, "Batch Size": batch, "Actual (ms)": measured, "Predicted (ms)": predicted, "Error": error}


def test_published_rows_with_holes(tmp_path):
    lines = [published_line("A", 8, 10, 12, "20.0%"), published_line("", "", "", "", ""), published_line("B", 16, "?", 12, "1%")]
    write_csv(tmp_path / "orion/CNN_ModelbyModel.csv", [*lines, published_line("C", 32, 50, 45, "11%")])
    write_csv(
        tmp_path / "orion/CNN_Unseen.csv",
        [{"GPU": "L4", "ORION_RMSE": 6, "PreNeT_RMSE": 10}, {"GPU": "X", "ORION_RMSE": 1, "PreNeT_RMSE": 0}],
    )
    rows, left_out = published.rows(tmp_path)
    assert [(row.model, row.batch, row.measured_ms, row.predicted_ms, row.stated) for row in rows] == [
        ("A", 8, 10, 12, 0.2),
        ("C", 32, 50, 45, 0.11),
    ]
    assert [line for line in left_out if "CNN" in line] == ["CNN_ModelbyModel.csv, line 4: a cell is missing or no number"]
    assert sum("MLP_ModelbyModel.csv: not in" in line for line in left_out) == 1
    unseen, problems = published.unseen(tmp_path)
    assert unseen == {"CNN": {"L4": (6, 10)}} and any("CNN_Unseen.csv, line 3" in line for line in problems)
    assert published.check_unseen(unseen)[0].found == "on 1 of 1: L4 40.0 %"
    (check,) = published.check_rows(rows)
    assert check.found == "1 of 2; median 15.0 %, RMSE 3.81 ms; 1 are too low; 1 of the stated errors differ"
    drawn = ElementTree.fromstring(pictures.published_rows(rows))
    assert len(drawn.findall(".//{*}g")) == 2 and drawn.get("width")


def test_beside_published_rows(monkeypatch):
    rows = [published.Row("CNN", "VGG16", 64, 30.0, 27.0, 0.1), published.Row("MLP", "AS-MLP", 32, 20.0, 18.0, 0.1)]
    by_row = own_steps.job_rows(own_steps.measured.Options(None, "python"), rows)
    assert list(by_row) == rows[:1]
    words = [dict(zip(job.job["command"][2::2], job.job["command"][3::2])) for job in by_row[rows[0]]]
    assert [(w["--model"], w["--batch"], w["--image"], w["--precision"]) for w in words] == [
        ("vgg16_bn", "64", image, precision) for image in ("32", "64") for precision in ("amp", "tf32")
    ]
    files = {job.job["name"]: job.job["name"] for job in by_row[rows[0]]}
    monkeypatch.setattr(
        own_steps.steps,
        "read",
        lambda gpucast, capture, cards: (None, {"l40s": {"gpu_ns": 1e7 if "amp" in capture else 2e7, "host_ns": 5e6}}),
    )
    (line,) = own_steps.lines(own_steps.beside("gpucast", by_row, files))
    assert line == ["VGG16", 64, "30.0", "27.0", "-10.0", "15.0 (10.0 to 20.0)", "5.0 (5.0 to 5.0)"]
    files.popitem()
    assert own_steps.beside("gpucast", by_row, files) == []


def test_claims_of_the_paper_are_computed():
    average = published.check_table_3()[1].found
    assert "44.36" in average and "76.8 %" in average
    assert "in 6 of 10 rows" in published.check_tables_4_and_5()[0].found


def test_error_picture():
    found = {method: {row.name: row.measured_ms * 1.1 for row in ROWS} for method in orion_tables.METHODS}
    drawn = ElementTree.fromstring(pictures.errors(ROWS, found))
    titles = [title.text for title in drawn.findall(".//{*}title")]
    assert len(titles) == 2 * len(orion_tables.METHODS) and all("median 10.00 %" in title for title in titles)


# --- ORION's own rows --------------------------------------------------------------------------------------------------------------------


def own_line(rate=0.001, storage="SSD", vcpu=4, card="NVIDIA L40S", model="resnet50", **more):
    line = {
        "model": model,
        "dataset": "CIFAR10",
        "optimizer": "SGD",
        "learning_rate": rate,
        "batch_size": 64,
        "precision": 16,
        "gpu_name": card,
    }
    line.update(
        param_bytes=1e8, optimizer_state_bytes=0, flops_train_per_batch=6e11, act_bytes_per_sample_proxy=1e6, vcpu=vcpu, storage=storage
    )
    return {**line, "avg_batch_time_ms": 30, "T_gpu_ms": 25, "disk_bytes_per_sample": "", **more}


def test_own_rows(tmp_path):
    bad = [own_line(card="NVIDIA Z1"), own_line(T_gpu_ms="nan"), own_line(storage="")]
    write_csv(tmp_path / "orion/CNN.csv", [own_line(), own_line(rate=0.002), own_line(storage="NVME"), own_line(card="NVIDIA L4"), *bad])
    rows, left_out = full_rows.rows(tmp_path, "CNN", 100, 1)
    assert [row.storage for row in rows] == ["SSD", "SSD", "NVMe", "SSD"] and len(left_out) == 3
    first = dict(zip(full_rows.ORION, rows[0].features))
    assert (first["multiprocessors"], first["memory_surrogate_bytes"], first["intensity"]) == (142, 1.64e8, 6e11 / 1.64e8)
    assert dict(zip(full_rows.ORION, rows[3].features))["multiprocessors"] == 60
    # The learning rate is nothing that a time depends on.
    assert rows[0].configuration == rows[1].configuration != rows[2].configuration
    few, said = full_rows.rows(tmp_path, "CNN", 2, 1)
    assert len(few) == 2 and any("2 of 4 rows" in line for line in said)
    assert full_rows.rows(tmp_path, "MLP", 100, 1) == ([], [])


def test_tables_of_own_rows(monkeypatch, tmp_path):
    lines = [
        own_line(rate=rate, storage=tier, vcpu=vcpu, card=card)
        for rate in (1, 2)
        for tier in ("SSD", "NVME")
        for vcpu in (4, 8)
        for card in ("NVIDIA L40", "NVIDIA A40")
    ]
    write_csv(tmp_path / "orion/CNN.csv", lines)
    monkeypatch.setattr(full_rows.trees, "train", lambda x, times, names, logarithm, seed: sum(times) / len(times))
    monkeypatch.setattr(full_rows.trees, "predict", lambda model, row: model)
    text = "\n".join(orion_tables.own_part(tmp_path, 100, tmp_path / "fits", 1, lambda text: None))
    # PreNeT says the GPU's 25 of 30 ms. One model alone has no others to learn from.
    assert "| resnet50 | 16 | 30.00 | 5.00 / 0.00 | 5.00 / 0.00 | - | 100.0 | 5.09 / 3.58 | 29.66 |" in text
    assert "| resnet50 | 5.00 / 0.00 | 5.00 / 0.00 | 3.51 / 3.24 / 3.66 |" in text
    assert "| resnet50 | NVIDIA A40 | 64 | 30.00 | 30.00 | +0.0 | 0.0 |" in text


# --- From rows to tables, with a gpucast and trees that answer from a table -----------------------------------------------------------------


def answer(gpucast, *words):
    if words[0] == "gpus":
        peaks = {"fp32": 1e13, "fp16": 1e14}
        figures = {
            "multiprocessors": 80,
            "clock_khz": 1500000,
            "bandwidth_bytes_per_s": 1e12,
            "total_memory_bytes": 2**34,
            "l2_bytes": 2**22,
        }
        return {"gpus": [{"id": card, "peak_flop_per_s": peaks, **figures} for card in ("a10", "a100-80", "rtx4090", "l40s")]}
    if words[0] == "analyze":
        return {"categories": [{"name": "parameters", "bytes": 10**8}, {"name": "activations", "bytes": 10**9}]}
    kinds = [{"name": "convolution", "flops": 3e12, "bytes": 1e10, "launches": 160, "ideal_ns": 6e7}]
    step = {
        "by_kind": kinds,
        "by_phase": [{"name": "backward"}],
        "model_flops": 3e12,
        "hardware_flops": 2.9e12,
        "samples": 128,
        "peak_precision": "fp16",
    }
    cards = words[words.index("--gpu") + 1].split(",")
    return {**step, "cards": [{**step, "gpu": card, "step": {"expected_ns": 1.1e8}, "gpu_ns": 1e8, "host_ns": 1e7} for card in cards]}


@pytest.fixture
def orion_evaluate(monkeypatch):
    module = evaluation
    monkeypatch.setattr(module, "need_lightgbm", lambda: None)
    monkeypatch.setattr(module.predict.jobs, "find", lambda gpucast: gpucast)
    monkeypatch.setattr(module.predict, "captures", lambda gpucast, rows, folder, jobs: ({row.job["name"]: "capture" for row in rows}, {}))
    monkeypatch.setattr(steps, "ask", answer)
    monkeypatch.setattr(steps.os.path, "isfile", lambda path: True)
    monkeypatch.setattr(judged.trees, "train", lambda x, times, names, logarithm, seed: {"mean": sum(times) / len(times)})
    monkeypatch.setattr(judged.trees, "predict", lambda model, row: model["mean"])
    return module


def test_from_rows_to_tables(orion_evaluate, capsys, tmp_path):
    def run(gpu, rate):
        return {"gpu": gpu, "num_gpu": 1, "precision": "AMP", "batch_size_per_gpu": 128, "median_compute_ips_after_10": rate}

    cards = {"NVIDIA_A10": 640, "NVIDIA_A100-SXM4-80GB": 1280, "NVIDIA_GeForce_RTX_4090": 1280, "NVIDIA_H200": 9999}
    write_csv(tmp_path / "data/lambda_benchmarks/resnet50_synthetic_all_runs.csv", [run(gpu, rate) for gpu, rate in cards.items()])
    write_csv(tmp_path / "data/orion/CNN_ModelbyModel.csv", [published_line("VGG16", 64, 120, 90, "25.0%")])
    words = [
        "--data",
        tmp_path / "data",
        "--captures",
        tmp_path / "captures",
        "--figures",
        tmp_path / "figures",
        "--trees",
        tmp_path / "trees.json",
    ]
    orion_evaluate.main([str(word) for word in words])
    out, said = capsys.readouterr()
    assert "torchvision: no rows in" in said
    assert "3 measured steps, of 1 models on 3 cards: lambda 3." in out and "1 rows of h200: `gpucast gpus` does not have it" in out
    # Measured 200, 100, 100 ms: gpucast has 110 for each, the mean of the two other cards is 100, 150, 150. One model has no others.
    assert "no row has a prediction of every method" in out
    assert "| all |" not in out.split("###")[0]
    assert "| a10 | 1 | 200.0 | 90.0 / 45.0 | 140.0 / 70.0 | 100.0 / 50.0 | 100.0 / 50.0 |" in out
    assert "| A100 | 1 | 100.0 | 10.0 / 10.0 | 40.0 / 40.0 | 50.0 / 50.0 | 50.0 / 50.0 |" in out
    assert "| VGG16 | 64 | 120.0 | 90.0 | -25.0 | 100.0 (100.0 to 100.0) | 10.0 (10.0 to 10.0) |" in out
    assert set(trees.read(tmp_path / "trees.json")) == {"orion", "prenet"} and (tmp_path / "figures/orion-published.svg").exists()


def test_models_that_constants_were_fitted_on_judge_nobody(orion_evaluate):
    names = ["resnet18", "resnet34", "resnet50", "vgg16", "densenet121", "tf_efficientnet_b2_ns"]
    rows = [
        SimpleNamespace(name=f"{table} {name}", table=table, card=card, model=name, group="", size="", measured_ms=100, job={"name": "job"})
        for name in names
        for table, card in (("timm-train", "rtx4090"), ("lambda", "a10"))
    ]
    found, _ = judged.judge("gpucast", rows, {"job": "capture"}, lambda table: [], lambda text: None)
    assert {row.model for row in found if row.seen_by_gpucast} == {judged.architecture(name) for name in names if judged.half(name)}
    assert not any(row.seen_by_gpucast for row in found if row.table == "lambda") and len(found) == len(rows)


# --- The command -------------------------------------------------------------------------------------------------------------------------


def evaluate(*words):
    done = subprocess.run([sys.executable, "-m", "eval.orion.evaluate", *map(str, words)], cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_command_checks_the_published_figures_alone(tmp_path):
    write_csv(tmp_path / "orion/MLP_ModelbyModel.csv", [published_line("A", 8, 10, 12, "20.0%")])
    code, out, _ = evaluate("--data", tmp_path, "--figures", tmp_path / "figures", "--markdown", tmp_path / "out.md")
    assert code == 0 and "| MLP (A100) | 1 | 10.0 | 2.0 / 20.0 |" in out and "MLP_Unseen.csv: not in" in out
    assert (tmp_path / "out.md").read_text() == out and (tmp_path / "figures/orion-published.svg").exists()


def test_command_says_what_is_missing(tmp_path):
    code, _, err = evaluate("--data", tmp_path / "none")
    assert code == 1 and "is no folder" in err
    code, _, err = evaluate("--data", tmp_path, "--trees", "trees.json")
    assert code == 1 and "--captures" in err
    code, _, err = evaluate("--data", tmp_path, "--captures", tmp_path / "captures")
    assert code == 1 and ("LightGBM" in err or "has no measured steps" in err)
