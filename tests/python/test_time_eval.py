"""eval/operations: adapters on tables made by hand, arithmetic with paper and pencil, and the command from end to end with a gpucast that answers
from a table."""

import argparse
import csv
import gzip
import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest

from eval.steps import fit_steps, predict, split
from eval.steps import step_rows as measured
from eval.steps import step_tables as tables

ROOT = Path(__file__).resolve().parent.parent.parent


pytestmark = pytest.mark.once


def write_csv(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def timm_line(model, mode, ms, batch=256, image=224):
    return {"model": model, f"{mode}_step_time": ms, f"{mode}_batch_size": batch, f"{mode}_img_size": image}


@pytest.fixture
def data(tmp_path):
    """Two rows of every kind, in the layout of --data."""
    folder = tmp_path / "data"
    timm = folder / "timm_benchmarks"
    write_csv(timm / measured.TRAIN["nhwc"], [timm_line("resnet50", "train", 100), timm_line("tf_efficientnet_b0_ns", "train", 50)])
    write_csv(timm / measured.TRAIN["nchw"], [timm_line("resnet50", "train", 120), timm_line("vgg11", "train", "")])
    for card, (_, files) in measured.INFER.items():
        for file in files.values():
            time_ms = {"rtx3090": 20, "rtx4090": 10, "rtx5090": 8}[card]
            write_csv(timm / file, [timm_line("resnet50", "infer", time_ms, "256.0"), timm_line(f"only_{card}", "infer", 5)])
    neusight = folder / "neusight"
    (neusight / "label").mkdir(parents=True)
    (neusight / "dlmodel_configs").mkdir()
    (neusight / "dlmodel_configs/bert_large.json.gz").write_bytes(gzip.compress(b'{"model_type": "bert"}'))
    label = {"e2e_latency": 300.0, "fw_latency": 100.0, "bwall_latency": 200.0}
    for name in ("Tesla_V100-PCIE-32GB__bert_large-train-512-8", "NVIDIA_L4__bert_large-train-512-8-dp4", "AMD_X__bert_large-inf-512-8"):
        (neusight / "label" / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(label).encode()))
    (neusight / "label/Tesla_T4__bert_large-inf-512-8.json").write_text(json.dumps({**label, "e2e_latency": 80.0}))
    (neusight / "label/Tesla_T4__unknown-inf-512-8.json").write_text(json.dumps(label))
    (neusight / "label/NVIDIA_L4__switch4-inf-512-1.json").write_text(json.dumps({**label, "e2e_latency": 50.0}))
    (neusight / "prediction").mkdir()
    (neusight / "prediction/Tesla_T4__bert_large-inf-512-8.json").write_text(json.dumps({"e2e_latency": 88.0}))
    torchvision = {"card": "TITAN_V", "precision": "fp16", "model": "resnet34", "protocol": "2018_input_on_gpu", "batch": 12, "image": 224}
    copied = {"card": "GeForce_RTX_2080_TI", "precision": "fp32_second_run", "protocol": "with_h2d_copy", "median_ms": 30}
    write_csv(folder / "kernel_times/torchvision_train_steps.csv", [{**torchvision, "median_ms": 17.5}, {**torchvision, **copied}])
    run = {"gpu": "NVIDIA_A10", "num_gpu": 1, "precision": "FP32", "batch_size_per_gpu": 200}
    rate = "median_compute_ips_after_10"
    runs = [{**run, rate: 400}, {**run, rate: 500}, {**run, rate: 800}, {**run, "num_gpu": 2, rate: 9}, {**run, "gpu": "TPU", rate: 9}]
    write_csv(folder / "lambda_benchmarks/resnet50_synthetic_all_runs.csv", [*runs, {**run, "gpu": "Quadro_RTX_8000", rate: 100}])
    line = {"framework": "PyTorch", "card": "V100", "gpu_mem_gb": 32, "precision": "AMP", "batch_per_gpu": -1, "other_cells": ""}
    resnet = {**line, "model": "ConvNets/resnet50v1.5", "heading": "Training performance", "throughput": 1280}
    pretraining = "Accumulation steps (FP32 and FP16)=512 and 256; Sequence length=512"
    bert = {**line, "model": "BERT", "heading": "Pre-training", "batch_per_gpu": 2048, "other_cells": pretraining, "throughput": 80}
    other = {**line, "model": "Jasper", "heading": "Training performance", "throughput": 10}
    write_csv(folder / "kernel_times/nvidia_examples_training.csv", [resnet, bert, other])
    return folder


def read(table, data, tmp_path, **options):
    return measured.TABLES[table](measured.Options(data, "python", folder=tmp_path / "captures", **options))


def words_of(row):
    return dict(zip(row.job["command"][2::2], row.job["command"][3::2]))


def test_timm_training_rows(data, tmp_path):
    rows = read("timm-train", data, tmp_path, old_timm="old")
    assert [(row.model, row.group, row.measured_ms) for row in rows] == [
        ("resnet50", "NHWC", 100),
        ("tf_efficientnet_b0_ns", "NHWC", 50),
        ("resnet50", "NCHW", 120),
    ]
    assert {row.card for row in rows} == {"rtx3090"}
    assert rows[0].job["command"][0] == "old" and rows[0].job["environment"] == {"TIMM_FUSED_ATTN": "0"}
    expected = {"--model": "resnet50", "--batch": "256", "--image": "224", "--layout": "nhwc", "--mode": "train"}
    assert words_of(rows[0]) == expected
    assert len({row.job["name"] for row in rows}) == len({row.name for row in rows}) == 3


def test_timm_inference_takes_models_that_all_cards_have(data, tmp_path):
    rows = read("timm-infer", data, tmp_path)
    assert {row.model for row in rows} == {"resnet50"}
    assert sorted({(row.card, row.measured_ms) for row in rows}) == [("rtx3090", 20), ("rtx4090", 10), ("rtx5090", 8)]
    # One capture serves every card, as long as batch and size are the same.
    assert len({row.job["name"] for row in rows}) == 2


def test_a_model_with_less_parameters_than_it_trains_was_measured_folded(data, tmp_path):
    counts = {"rtx3090": 9.11, "rtx4090": 9.11, "rtx5090": 8.31}
    for card, (_, files) in measured.INFER.items():
        for file in files.values():
            lines = [{**timm_line("repvgg_a0", "infer", 10), "param_count": counts[card]}]
            write_csv(data / "timm_benchmarks" / file, [*lines, {**timm_line("resnet50", "infer", 10), "param_count": 25.56}])
    folded = {(row.card, row.model) for row in read("timm-infer", data, tmp_path) if "--reparameterize" in row.job["command"]}
    assert folded == {("rtx5090", "repvgg_a0")}
    names = {row.card: row.job["name"] for row in read("timm-infer", data, tmp_path) if (row.model, row.group) == ("repvgg_a0", "NCHW")}
    assert names["rtx5090"] == names["rtx3090"] + "-folded" and names["rtx4090"] == names["rtx3090"], "another capture"


def test_neusight_rows(data, tmp_path):
    train, switch, infer = sorted(read("neusight", data, tmp_path), key=lambda row: (row.group, row.model), reverse=True)
    assert (train.card, train.measured_ms, train.parts_ms) == ("v100-32-pcie", 300, {"forward": 100, "backward": 200})
    assert (infer.card, infer.group, infer.measured_ms, infer.published_ms) == ("t4", "infer", 80, {"NeuSight": 88})
    config = Path(words_of(train)["--config"])
    assert json.loads(config.read_text()) == {"model_type": "bert"}
    assert words_of(train)["--batch"] == "8" and words_of(train)["--length"] == "512"
    # The data have no configuration of it; ours is from its label's operators.
    assert (switch.card, switch.model, switch.measured_ms) == ("l4", "switch4", 50)
    assert json.loads(Path(words_of(switch)["--config"]).read_text())["num_experts"] == 4


def test_torchvision_rows(data, tmp_path):
    titan, ti = read("torchvision", data, tmp_path)
    assert (titan.card, titan.group, titan.measured_ms) == ("titanv", "fp16", 17.5)
    assert "--copy" not in titan.job["command"]
    assert (ti.card, ti.group) == ("rtx2080ti", "fp32")
    assert ti.job["command"][-1] == "--copy" and ti.job["name"].endswith("-copy")


def test_lambda_rows_are_medians_of_runs_on_one_gpu(data, tmp_path):
    a10, rtx8000 = read("lambda", data, tmp_path)
    assert (a10.card, a10.group, a10.measured_ms) == ("a10", "TF32", pytest.approx(1000 * 200 / 500))
    assert (rtx8000.card, rtx8000.group) == ("rtx8000", "FP32")  # a card without TF32


def test_nvidia_rows(data, tmp_path):
    resnet, bert = read("nvidia", data, tmp_path)
    assert (resnet.card, resnet.measured_ms) == ("v100-32", pytest.approx(200))  # 256 images at 1280 a second
    assert words_of(resnet)["--layout"] == "nhwc"
    assert words_of(bert)["--batch"] == "8" and words_of(bert)["--task"] == "pretraining"  # 2048 in 256 parts
    assert bert.measured_ms == pytest.approx(100)


@pytest.mark.parametrize("table", [table for table in measured.TABLES if table != "own"])  # whose rows are in the repository
def test_no_data_is_no_rows(table, tmp_path):
    assert read(table, tmp_path / "nothing", tmp_path) == []


@pytest.mark.parametrize("text", ["", None, "nan", "inf", "-1", "0", "many"])
def test_a_figure_that_is_none(text):
    assert measured.number(text) is None


def test_a_sample_is_spread_over_families_and_has_no_model_twice():
    models = (
        [f"resnet{n}" for n in range(10)]
        + [f"vit_{n}" for n in range(10)]
        + ["tf_efficientnet_b0", "tf_efficientnet_b0_ns", "efficientnet_b0"]
    )
    some = measured.spread(models, 7)
    assert some == measured.spread(reversed(models), 7)
    assert len({split.architecture(model) for model in some}) == len(some) == 7
    families = [measured.family(model) for model in some]
    assert {families.count("resnet"), families.count("vit")} <= {3, 4} and families.count("efficientnet") <= 1
    assert sorted(measured.spread(models, 0)) == sorted(models)


def test_a_model_by_another_name_is_the_same_architecture():
    same = ["tf_efficientnet_b2", "efficientnet_b2", "tf_efficientnet_b2_ap", "tf_efficientnet_b2_ns", "efficientnet_b2a"]
    assert {split.architecture(model) for model in same} == {"efficientnet_b2"}
    assert split.architecture("gluon_resnet50_v1b") != split.architecture("resnet101")
    assert split.architecture("vit_base_patch16_224.augreg_in1k") == "vit_base_patch16_224"
    assert len({split.half(model) for model in same}) == 1
    fitted = split.random_half(["a", "b", "tf_b", "c", "d"], 3)
    assert len(fitted) == 2 and fitted == split.random_half(["d", "c", "b", "a"], 3)


def test_a_model_of_another_size_is_not_the_one_that_was_measured():
    line = {"report": {"categories": [{"name": "activations", "bytes": 9}, {"name": "parameters", "bytes": 40_000_000}]}}
    assert predict.other_model(line, 10.2e6) is None
    assert "10.00 M parameters, and 11.00 M" in predict.other_model(line, 11e6)
    assert predict.other_model(line, 0) is None and predict.other_model({"report": None}, 1e6) is None


def prediction(expected, low=None, high=None, roofline=0.0, **kinds):
    return predict.Prediction(expected, low or expected, high or expected, roofline, "gpu", {}, kinds or {"gemm": expected})


def a_row(name, measured_ms, card="rtx3090", model=None, group="NHWC"):
    return measured.Row(name, "t", card, model or name, group, measured_ms, {"name": name})


def test_errors_with_paper_and_pencil():
    # +10, -20, +30, 0 %: sizes 0, 10, 20, 30.
    assert tables.summary([0.1, -0.2, 0.3, 0.0]) == ["15.0", "15.0", "27.0", "30.0", "+5.0"]
    rows = [a_row("a", 100), a_row("b", 200, group="NCHW")]
    text = tables.overview(rows, {"a": prediction(110, 90, 120, 50), "b": prediction(140, 130, 150)}, [lambda row: row.group])
    every, nchw, nhwc = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    assert every[:9] == ["all", "2", "20.0", "20.0", "28.0", "30.0", "-10.0", "50.0", "20.8"]
    assert nhwc == ["NHWC", "1", "10.0", "10.0", "10.0", "10.0", "+10.0", "100.0", "27.3", "50.0 (50.0)"]
    assert nchw[-1] == "-"  # no roofline was said


def test_misses_are_listed_with_a_cause():
    rows = [a_row("near", 100), a_row("far", 100), a_row("host", 100)]
    host = predict.Prediction(10, 9, 11, 0, "host", {}, {"gemm": 1})
    found = {"near": prediction(120), "far": prediction(150, gemm=120.0, copy=30.0), "host": host}
    text = tables.misses(rows, found, [(lambda row, p: p.bound == "host", "the host")])
    lines = text.splitlines()[2:]
    assert [line.split("|")[1].strip() for line in lines] == ["host", "far"]
    assert "the host" in lines[0] and "gemm 80 %, copy 20 %" in lines[1] and "not known" in lines[1]
    assert tables.misses(rows[:1], found) == "none above 25 %"


def test_a_known_time_corrects_other_cards():
    rows = [a_row("a", 100, "rtx3090", "m"), a_row("b", 55, "rtx4090", "m"), a_row("c", 60, "rtx4090", "other")]
    found = {"a": prediction(80), "b": prediction(40), "c": prediction(50)}
    assert tables.by_known(rows, found, "rtx3090", 1) == [(rows[1], pytest.approx(50))]
    assert tables.by_known(rows, found, "rtx3090", 0) == [(rows[1], pytest.approx(40))]
    assert tables.by_known(rows, found, "rtx3090") == [(rows[1], pytest.approx(40 * 1.25**tables.KNOWN_SHARE))]
    assert tables.known_share(rows, found, "rtx3090") == 1.0
    text = tables.known_overview(rows, found, "rtx3090", lambda row: False)
    assert "| rtx4090, NHWC, not fitted | 1 | 14.6 |" in text and "fits that half" not in text
    assert tables.known_overview(rows, found, "v100-32", lambda row: True) == ""


def test_the_known_share_is_the_one_that_jobs_were_made_with():
    rows, found = [], {}
    for i, off in enumerate((0.8, 0.9, 1.1, 1.3)):
        for card, ms in (("rtx3090", 100 * off), ("rtx4090", 50 * off**0.4)):
            row = a_row(f"{card}{i}", ms, card, f"m{i}")
            rows.append(row)
            found[row.name] = prediction(100 if card == "rtx3090" else 50)
    assert tables.known_share(rows, found, "rtx3090") == 0.4


def test_the_fit_finds_factors_that_it_was_made_with():
    draw = random.Random(1)
    true = {"gemm": 0.7, "convolution": 1.3, "elementwise": 1.1}
    samples = []
    for _ in range(200):
        parts = {kind: draw.uniform(1, 100) for kind in true}
        samples.append((parts, fit_steps.corrected(parts, true)))
    for i in range(0, 200, 10):  # one in ten is nonsense
        samples[i] = (samples[i][0], 3 * samples[i][1])
    found = fit_steps.fit(samples)
    assert found == pytest.approx(true, rel=0.05)


def test_a_kind_that_hardly_takes_time_keeps_its_factor():
    found = fit_steps.fit([({"gemm": 100.0, "copy": 0.01}, 120.0)] * 20)
    assert found["gemm"] == pytest.approx(1.2, rel=0.02)
    assert found["copy"] == pytest.approx(1, rel=0.01)


def test_random_halves_are_judged_on_what_was_not_fitted():
    """Every model has its own factor: the fit says nothing about the others, and the errors show it."""
    draw = random.Random(2)
    pairs = []
    for i in range(20):
        pairs.append((a_row(f"m{i}", 100 * math.exp(draw.gauss(0, 0.3)), model=f"m{i}x"), prediction(100.0)))
    errors, medians = fit_steps.halves(pairs, 5)
    assert len(errors["NHWC"]) == 50 and len(medians["NHWC"]) == 5
    assert min(medians["NHWC"]) > 0.05


FAKE = """#!{python}
import json, sys
words = sys.argv[1:]
if words[0] == "gpus":
    print(json.dumps({{"gpus": [{{"id": "rtx3090"}}, {{"id": "rtx4090"}}]}}))
elif words[0] == "batch":
    out = words[words.index("-o") + 1]
    with open(out, "a") as file:
        for line in sys.stdin:
            job = json.loads(line)
            bad = "vgg" in job["name"] or "efficientnet" in job["name"]
            if not bad:
                open(job["output"], "w").write(job["name"])
            error = {{"code": "script_raised", "message": "no such model"}} if bad else None
            file.write(json.dumps({{"name": job["name"], "status": "failed" if bad else "fits", "error": error, "report": {{}}}}) + "\\n")
elif words[0] == "time":
    cards = []
    for gpu in words[words.index("--gpu") + 1].split(","):
        ns = {{"rtx3090": 110e6, "rtx4090": 60e6}}[gpu]
        step = {{"low_ns": 0.9 * ns, "expected_ns": ns, "high_ns": 1.1 * ns}}
        shares = {{"convolution": 0.6, "elementwise": 0.4}}
        kinds = [{{"name": name, "gpu_ns": part * ns, "ideal_ns": part * ns / 2}} for name, part in shares.items()]
        card = {{"gpu": gpu, "step": step, "bound": "gpu", "gpu_ns": ns, "host_ns": 1e6, "by_phase": [], "by_kind": kinds}}
        cards.append({{**card, "coverage": 1, "unknown_share": 0, "card_measured": True}})
    print(json.dumps({{"cards": cards}}))
"""


@pytest.fixture
def fake_gpucast(tmp_path):
    path = tmp_path / "gpucast"
    path.write_text(FAKE.format(python=sys.executable))
    path.chmod(0o755)
    return path


def run(module, *words):
    return subprocess.run([sys.executable, "-m", f"eval.steps.{module}", *map(str, words)], cwd=ROOT, capture_output=True, text=True)


def test_a_table_from_end_to_end(data, tmp_path, fake_gpucast):
    words = ["--data", data, "--captures", tmp_path / "kept", "--gpucast", fake_gpucast, "--markdown", tmp_path / "out.md"]
    done = run("run_steps", "timm-train", *words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.md").read_text() == done.stdout
    assert "| all | 2 | 9.2 |" in done.stdout  # 110 for 100 and for 120
    assert "Left out of 3 rows" in done.stdout and "no such model" in done.stdout
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").glob("*.gpucast")}
    assert len(kept) == 2
    assert run("run_steps", "timm-train", *words).stdout == done.stdout
    assert kept == {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").glob("*.gpucast")}


def test_cards_that_gpucast_does_not_know_are_said(data, tmp_path, fake_gpucast):
    done = run("run_steps", "timm-infer", "--data", data, "--captures", tmp_path / "kept", "--gpucast", fake_gpucast)
    assert done.returncode == 0, done.stderr
    assert "1 rows of rtx5090" in done.stdout
    assert "from rtx3090" in done.stdout  # 20 ms x 60 / 110 for 10


def test_rows_may_be_captured_with_the_release_that_was_measured(data, tmp_path):
    plain = measured.timm_infer(measured.Options(data, "python", folder=tmp_path))
    rows = measured.timm_infer(measured.Options(data, "python", folder=tmp_path, releases={"2.4": "old-python"}))
    assert [(row.card, row.model, row.group) for row in rows] == [(row.card, row.model, row.group) for row in plain]
    for row in rows:
        python, ending = ("python", False) if row.card == "rtx5090" else ("old-python", True)
        assert row.job["command"][0] == python and row.job["name"].endswith("-torch2.4") == ending
    assert measured.release_option("2.9=ENV/bin/python") == ("2.9", "ENV/bin/python")
    for wrong in ("2.9", "2.5=python", "=python", "2.9="):
        with pytest.raises(argparse.ArgumentTypeError, match=r"2\.4, 2\.9"):
            measured.release_option(wrong)


def two_models(data):
    models = ("resnet50", "resnet101")
    write_csv(data / "timm_benchmarks" / measured.INFER["rtx5090"][1]["nchw"], [timm_line(model, "infer", 8) for model in models])
    for card, ms in (("rtx3090", 90), ("rtx4090", 49.1)):
        for file in measured.INFER[card][1].values():
            write_csv(data / "timm_benchmarks" / file, [timm_line(model, "infer", ms) for model in models])


def test_factors_of_one_card_on_another(data, tmp_path, fake_gpucast):
    two_models(data)
    words = ["--data", data, "--captures", tmp_path / "kept", "--gpucast", fake_gpucast, "--table", "timm-infer"]
    done = run("fit_steps", *words)
    assert done.returncode == 0, done.stderr
    assert "models not fitted" in done.stdout
    done = run("fit_steps", *words, "--from-card", "rtx3090")
    assert done.returncode == 0, done.stderr
    # 110 for 90 there: a factor of about 0.82, and 60 for 49.1 here.
    lines = {line.split("|")[1].strip(): line.split("|")[3].strip() for line in done.stdout.splitlines() if line.startswith("| rtx4090")}
    assert float(lines["rtx4090, NHWC, as it is"]) == pytest.approx(22.2)
    assert float(lines["rtx4090, NHWC, factors of rtx3090"]) < 8


def test_the_fit_of_constants_finds_the_least():
    rate, times, part = ("rates", "a"), ("convolution", "fp16", "forward_few_channels"), ("copy", "all", "strided_fraction")
    draw = random.Random(3)
    shares = [(draw.random(), draw.random(), draw.random()) for _ in range(60)]

    def offs(values):
        made = [(values[rate] / 1.5, values[times] / 0.2, 1.4 / values[part])] * len(shares)
        found = [sum(s * f for s, f in zip(share, factors)) / sum(share) for share, factors in zip(shares, made)]
        return [math.log(value) for value in found[:-3]] + [2.0, -2.0, 2.0]  # and nonsense

    found = fit_steps.least({rate: 1.0, times: 4.0, part: 0.6}, offs)
    assert found[times] == 1 and found[part] == 1  # it may not be faster, nor above the rate
    best = min((sum(abs(off) for off in offs({rate: value / 100, times: 1.0, part: 1.0})), value / 100) for value in range(10, 200))
    assert found[rate] == pytest.approx(best[1], abs=0.08)


def test_constants_are_written_as_gpucast_reads_them():
    text = fit_steps.constants_file("rtx3090", {("rates", "dram_fraction"): 0.9, ("gemm", "fp16", "overlap"): 0.12345678}, "here")
    layer = {"rates": {"dram_fraction": 0.9, "source": "here"}, "gemm": {"fp16": {"overlap": 0.1235, "source": "here"}}}
    assert text == {"schema_version": 1, "operations": {}, "cards": {"rtx3090": layer}}
    text = fit_steps.constants_file("rtx3090", {("convolution", "fp16", "forward_turned"): 0.5}, "here")
    assert text["cards"]["rtx3090"] == {}  # a library's conversions are the same on all cards
    assert text["operations"] == {"convolution": {"fp16": {"forward_turned": 0.5, "source": "here"}}}
