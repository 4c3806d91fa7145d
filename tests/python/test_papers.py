"""The papers' evaluation: its arithmetic on tables made by hand, and one small run from end to end."""

import json
import math
import subprocess
import sys

import pytest
from conftest import ROOT

from eval import jobs
from eval.memory import xmem_rows
from eval.papers import charts, designs, document, estimators, metrics, truth

PAPERS = ROOT / "eval/papers"

pytestmark = pytest.mark.once


def xmem_row(name, ground, real_oom, estimators=None, **more):
    row = {"path": name, "experiment": "montecarlo", "gpu": "card", "total_gpu_memory": 100, "model": "org/net", "arch": "cnn"}
    row.update(optimizer="SGD", batch_size=8, zero_grad_mode=0, ground=ground, real_oom=real_oom, estimators=estimators or {})
    return {**row, **more}


def said(memory, error, oom, second_oom=None, second_error=None):
    return {"memory": memory, "error": error, "oom": oom, "second_oom": second_oom, "second_error": second_error, "runtime_ns": 2e9}


# Card of 100 bytes. Four rows, in turn: good; too low, so the second round fails; out of memory, as said; out of memory, not said.
RAW = [
    xmem_row("good", 50, False, {"solution": said(60, 0.2, False, False, 0.1)}),
    xmem_row("too low", 80, False, {"solution": said(40, 0.5, False, True)}),
    xmem_row("oom", 95, True, {"solution": said(99, 0.04, True)}),
    xmem_row("missed", 95, True, {"solution": said(70, 0.26, False, False, 0.3)}, model="org/other"),
]


def pairs(raws=RAW):
    rows = [truth.from_xmem(raw) for raw in raws]
    return [(row, row.estimates["xMem"]) for row in rows]


def test_measures_by_hand():
    assert [metrics.is_right(*pair) for pair in pairs()] == [True, True, True, False]
    assert [metrics.passes(*pair) for pair in pairs()] == [True, False, True, False]
    # The second round's error where it ran, else the first's; none of runs without a peak.
    assert [metrics.error_of(*pair) for pair in pairs()] == [0.1, 0.5, None, None]
    assert metrics.mre(pairs()) == pytest.approx(0.3)
    assert metrics.pef(pairs()) == 0.5
    # 100 - 60, the whole card lost, the whole card kept, lost.
    assert [metrics.saved_bytes(*pair) for pair in pairs()] == [40, -100, 100, -100]
    assert metrics.mcp(pairs()) == -15
    assert metrics.runtime(pairs()) == 2


def test_an_unsupported_model_has_no_estimate():
    row = truth.from_xmem(xmem_row("x", 50, False, {"LLMem": said(-1, 1.02, True)}))
    assert row.estimates == {}
    assert metrics.pef([]) is None and metrics.mre([]) is None


@pytest.mark.parametrize(
    ("failure", "error", "name"),
    [(0.2, 0.2, "optimal"), (0.1, 0.21, "overestimation"), (0.21, 0.1, "underestimation"), (0.5, 0.5, "worst")],
)
def test_quadrants(failure, error, name):
    assert metrics.quadrant(failure, error) == name


def test_quartiles():
    assert metrics.quartiles([4, 1, None, 3, 2]) == (1, 1.75, 2.5, 3.25, 4)
    assert metrics.quartiles([None]) is None


def test_analysis_of_variance_by_hand():
    # Means 2 and 5, all 3.5: between 2 * 3 * 1.5^2 = 13.5, within 2 + 2. Of the 20 ways to split six values, 2 are as far apart.
    found = metrics.analysis_of_variance({"a": [1, 2, 3], "b": [4, 5, 6]}, seed=1, draws=1999)
    assert (found["between"], found["within"]) == (1, 4)
    assert found["f"] == pytest.approx(13.5)
    assert found["eta2"] == pytest.approx(13.5 / 17.5)
    assert found["p"] == pytest.approx(0.1, abs=0.03)
    assert metrics.analysis_of_variance({"a": [1, 1], "b": [2, 2]}, seed=1)["f"] == math.inf
    assert metrics.analysis_of_variance({"a": [1, 2, 3]}, seed=1) is None
    assert metrics.analysis_of_variance({"a": [1, 1], "b": [1, 1]}, seed=1) is None


def test_bootstrap_has_seeds_and_covers():
    one = metrics.bootstrap(pairs(), metrics.pef, seed=3)
    assert one == metrics.bootstrap(pairs(), metrics.pef, seed=3)
    assert one == (0, 1)  # of four rows with two failures each: no failure with chance 1/16
    same = pairs([RAW[0]] * 5)
    assert metrics.bootstrap(same, metrics.mcp, seed=1) == (40, 40)


def outcome(reserved, oom=False, **device):
    return {"peak_reserved_bytes": reserved, "ledger_bytes": 12, "growth_bytes": 2, "device": device, "oom": oom, "seconds": 1.5}


@pytest.mark.parametrize(("measures", "error"), [("nvml_growth", 2 / 50), ("nvml_used", 12 / 50), ("reserved", 0)])
def test_gpucast_is_compared_with_what_was_measured(measures, error):
    row = truth.from_xmem(xmem_row("x", 50, False))
    row.measures = measures
    truth.add_gpucast(row, outcome(50))
    assert row.estimates["gpucast"].bytes == 62
    assert row.estimates["gpucast"].error == pytest.approx(error)


def test_gpucast_second_round():
    # Limit: 0.62 of the card. The allocator had needed the measured memory minus 2 outside it.
    for ground, virtual, second_oom in ((64, {}, False), (65, {}, True), (50, {("x", "gpucast"): True}, True), (50, None, False)):
        row = truth.from_xmem(xmem_row("x", ground, False))
        truth.add_gpucast(row, outcome(50), virtual)
        assert row.estimates["gpucast"].second_oom is second_oom
    row = truth.from_xmem(xmem_row("x", 95, True))
    truth.add_gpucast(row, outcome(99, oom=True))
    assert row.estimates["gpucast"].second_oom is None
    assert metrics.passes(row, row.estimates["gpucast"])


def test_gpucast_requested_is_a_row_of_its_own():
    row = truth.from_xmem(xmem_row("x", 65, False))
    truth.add_gpucast(row, outcome(50, request_bytes=70))
    assert not metrics.passes(row, row.estimates["gpucast"])
    assert metrics.passes(row, row.estimates["gpucast, requested"])
    assert row.estimates["gpucast, requested"].error == pytest.approx((65 - (70 - 12 + 2)) / 65)  # without the context, as measured


def test_limits_come_in_steps_of_one_per_cent():
    assert xmem_rows.limit_fraction(354, 1000) == 0.35
    assert xmem_rows.limit_bytes(356, 1000) == 360
    assert xmem_rows.limit_fraction(1100, 1000) == 1


def second_round(memory, off, ground=1000):
    return said(memory, 0, False, False, off / ground)


def test_a_second_round_has_the_readings_that_its_limit_leaves():
    """A card of 10000 bytes, with at most 50 bytes for kernels: an estimate of 1000 is a limit of 10 %."""
    row = xmem_row("x", 1000, False, total_gpu_memory=10000)

    def readings(estimator):
        return xmem_rows.measured_again({**row, "estimators": {"solution": estimator}}, {"kernels_high_bytes": 50}, "solution")

    assert readings(second_round(1000, 40)) == [960, 1040]
    assert readings(second_round(1000, 60)) == [940]  # 1060 is above 1000 + 50
    assert readings(second_round(1000, 60) | {"second_oom": True}) == []
    assert readings(second_round(1000, 60) | {"second_error": None}) == []


def test_rows_beside_two_measurements_of_the_job():
    """The first round took 1000, DNNMem's second 700 with a limit of 800, xMem's 900 with one of 1100. We say 890 in all, 790 with the lower limit."""
    rounds = {"solution": second_round(1100, 200), "DNNmem": second_round(800, 100), "SchedTune": second_round(950, 0)}
    row = xmem_row("x", 1000, False, rounds, total_gpu_memory=10000)
    result = {"peak_reserved_bytes": 880, "growth_bytes": 10, "kernels_high_bytes": 20}
    peaks = {("x", 1100): 880, ("x", 800): 780}
    (entry,) = xmem_rows.repeated_rows([row], [result], peaks)
    assert entry["apart"] == pytest.approx([0.1, 0.3])  # SchedTune's ran on another PyTorch
    assert entry["error"] == pytest.approx([0.11])
    assert entry["error_again"] == pytest.approx([0.01, 0.09])
    assert entry["error_nearest"] == pytest.approx([0.01]) and entry["again"] == pytest.approx(900)
    free = xmem_rows.ROUNDS[", limit above the first"]
    assert xmem_rows.repeated_rows([row], [result], peaks, free)[0]["apart"] == pytest.approx([0.1])
    assert xmem_rows.repeated_rows([{**row, "real_oom": True}], [result], peaks) == []
    # A limit that our run does not get through counts for no error.
    (entry,) = xmem_rows.repeated_rows([row], [result], {**peaks, ("x", 800): None})
    assert entry["error_again"] == pytest.approx([0.01])
    table = xmem_rows.large_misses_table([row], [result], peaks, markdown=True)
    assert table.splitlines()[-1].endswith("| 11.00 | 1.00 | yes |")


def test_llmem_by_hand():
    """Two layers of 1024 for 10 texts of 128 tokens: 5 MiB of hidden state, counted as 6; each tensor in steps of 2 MiB."""
    mib = 2**20
    decoder = {"layers": 2, "hidden": 1024, "vocabulary": 8192, "length": 128, "weights_bytes": [32 * mib, 5 * mib, 1]}
    weights = 32 + 6 + 2
    # Base, weights, two states of each, input, embeddings of tokens and places and two layers, logits, and two copies without a token.
    logits, shifted = 10 * 128 * 8192 * 4 // mib, 40  # 39.7 MiB
    expected = 18 + weights + 2 * weights + 2 + 4 * 6 + logits + 2 * shifted
    assert logits == 40
    assert estimators.llmem_bytes({"decoder": decoder, "input_bytes": 3072}, 10, 18 * mib) == expected * mib
    assert estimators.llmem_bytes({"input_bytes": 3072}, 10, 18 * mib) is None


def test_a_tree_splits_where_values_differ_most():
    # By the second feature the values are 1 and 9; the first says nothing.
    tree = estimators.grow([(5, 1), (5, 2), (5, 3), (5, 4)], [1, 1, 9, 9])
    assert tree == (1, 2.5, 1, 9)
    assert [estimators.tree_value(tree, (0, x)) for x in (0, 2.5, 2.6, 100)] == [1, 1, 9, 9]
    assert estimators.grow([(5, 1), (5, 1)], [1, 3]) == 2  # they do not differ
    # A second split inside the first.
    tree = estimators.grow([(1,), (2,), (3,), (4,)], [0, 10, 100, 100])
    assert [estimators.tree_value(tree, (x,)) for x in (1, 2, 3)] == [0, 10, 100]


def test_schedtune_learns_from_other_models_only():
    samples = [("a", (1,), 100), ("a", (2,), 100), ("b", (1,), 500), ("b", (2,), None), ("c", (1,), 500)]
    found = estimators.schedtune_bytes(samples, seed=1)
    assert found[:2] == [500, 500]  # a's own rows are 100
    assert 100 <= found[2] <= 500 and found[2] != 500  # b's forest has a's rows and c's
    assert estimators.schedtune_bytes(samples, seed=1) == found
    assert estimators.schedtune_bytes([("a", (1,), 100)], seed=1) == [None]
    assert estimators.schedtune_bytes([("a", (1,), 100), ("b", (1,), None)], seed=1) == [None, 100]


def test_an_estimator_written_anew_is_judged_as_the_others():
    outcome = {"peak_reserved_bytes": 40, "growth_bytes": 5, "ledger_bytes": 9}
    row = truth.from_xmem(RAW[0])  # the run used 50 of 100, including 5 outside the allocator
    truth.add_other(row, outcome, estimators.LLMEM, 60)
    low = row.estimates[estimators.LLMEM]
    assert low.error == pytest.approx(0.2) and low.says_oom is False and low.second_oom is False
    truth.add_other(row, outcome, estimators.LLMEM, 44)
    assert row.estimates[estimators.LLMEM].second_oom is True  # the allocator needed 45
    truth.add_other(row, outcome, estimators.LLMEM, 60, {("good", estimators.LLMEM): True})
    assert row.estimates[estimators.LLMEM].second_oom is True
    truth.add_other(row, outcome, estimators.LLMEM, 101)
    assert row.estimates[estimators.LLMEM].says_oom and row.estimates[estimators.LLMEM].second_oom is None


def test_model_statistics(open_batch, tmp_path):
    """A network with known sizes: VGG16 for 1000 classes has 138357544 parameters."""
    command = [sys.executable, "-m", "eval.papers.model_statistics", tmp_path / "out.jsonl", "VGG16"]
    done = open_batch.gpucast(ROOT, command, "--gpu", "rtx3060")
    assert done.code == 0, done.err
    (line,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert line["parameters_bytes"] == 4 * 138357544
    assert line["input_bytes"] == 4 * 3 * 86 * 86
    # Two layers of 64 x 86 x 86 with their ReLUs are its first outputs.
    assert line["outputs_bytes"] > 4 * 4 * 64 * 86 * 86
    assert "decoder" not in line


def test_the_matrix_is_a_truth_table():
    prediction = {"profile gpucast": {"peak_reserved_bytes": 110}, "profile xmem": {"peak_reserved_bytes": 80}}
    prediction.update({"bare gpucast": {"peak_reserved_bytes": 1}, "profile dnnmem": {"error": "no"}})
    line = {"gpu": "rtx3060", "truth": {"peak_reserved_bytes": 100}, "predictions": prediction}
    row = truth.from_matrix({"case": "regnet_x_400mf-b96-sgd-before_backward", **line})
    assert (row.model, row.batch, row.optimizer, row.place, row.kind) == ("regnet_x_400mf", 96, "sgd", "before backward", "CNN")
    assert {name: said.error for name, said in row.estimates.items()} == {"gpucast": 0.1, "xmem's method": 0.2}
    assert truth.from_matrix({"case": "gpt2-b4-adamw-after_step-s128", **line}).kind == "transformer"
    assert metrics.pef([(row, row.estimates["gpucast"])]) is None  # no card was filled


def test_designs():
    anova = designs.anova(repeats=2, models=["VGG16", "t5-base"])
    assert len(anova) == 2 * (5 * 6 + 4 * 11) and len({one.name for one in anova}) == len(anova)
    drawn = designs.monte_carlo(50, seed=7)
    assert drawn == designs.monte_carlo(50, seed=7) != designs.monte_carlo(50, seed=8)
    for one in drawn:
        optimizers, batches = next(rest for model, *rest in designs.factors() if model == one.model)
        assert one.optimizer in optimizers and batches[0] <= one.batch <= batches[-1]


def test_report_has_every_estimator_and_escapes():
    rows = [truth.from_xmem(raw) for raw in RAW]
    rows[0].model = "<b>|x"
    blocks = document.blocks_of({"test": rows}, {("good", "xMem"): True}, {"date": "today"}, seed=1, draws=20)
    text, page = document.markdown(blocks), document.html(blocks)
    assert "| CNN: xMem | 4 | 35.00 | 50.00 | 30.00 |" in text
    assert "| xMem | 1 | 1 | 1 | 0 | 1 | 0 |" in text  # of the second rounds: one, ran out of memory, the real one did not
    assert "<b>\\|x" in text and "&lt;b&gt;|x" in page and "<b>|x" not in page
    assert page.count("<svg") == page.count("</svg>") == 3
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")  # nothing to load


def test_plots_keep_high_errors_inside():
    picture = charts.box_plots("x", {"net": {"xMem": [0.1, 3.0]}})
    assert "<path" in picture and "300.00 %" in picture
    assert charts.box_plots("x", {})
    assert 'cy="44.0"' in charts.quadrants("x", [("xMem", "net", 0.5, 9)])


def measured(**more):
    """A line of measure_on_gpu.py."""
    job = {"model": "mlp", "batch": 64, "precision": "fp32", "optimizer": "Adam", "zero_grad": "before_backward"}
    source = {"card": "NVIDIA GeForce RTX 3060", "torch": "2.0.0", "properties": {"total_memory": 12 * 2**30}}
    peaks = {"max_memory_reserved_bytes": 90, "max_memory_reserved_3_steps_bytes": 70}
    return {"part": "job", "job": job, **peaks, "source": source, **more}


def test_measured_jobs(tmp_path):
    path = tmp_path / "card.jsonl"
    lines = [measured(), measured(device_used_before_bytes=100, device_used_peak_bytes=300), {"part": "allocator"}, measured(error="no")]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    reserved, used = truth.read_measured(path)
    assert (reserved.measures, reserved.truth_bytes, used.measures, used.truth_bytes) == ("reserved", 70, "nvml_used", 200)
    assert reserved.name == "NVIDIA GeForce RTX 3060 mlp 64 fp32 Adam before_backward"
    assert (reserved.kind, reserved.place, reserved.source) == ("no convolutions", "before backward", "card")
    path.write_text('{"part": "job"}\n')
    with pytest.raises(SystemExit, match="line 1: no 'job'"):
        truth.read_measured(path)


def test_a_part_that_there_is_not():
    """measure_on_gpu.py says so before it asks for a card."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "eval/truth/measure_on_gpu.py"), "-o", "x", "--only", "provenance"], capture_output=True, text=True
    )
    assert done.returncode == 2 and "choose from" in done.stderr


FAKE = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
while read -r job; do
  echo "$job" >> CALLS
  name=$(echo "$job" | sed 's/.*"name": "\\([^"]*\\)".*/\\1/')
  echo "{\\"name\\":\\"$name\\",\\"status\\":\\"$(cat STATUS)\\",\\"error\\":null}" >> "$2"
done
"""


def test_jobs_run_again_when_they_failed_or_changed(tmp_path):
    fake, calls, status = tmp_path / "gpucast", tmp_path / "calls", tmp_path / "status"
    fake.write_text(FAKE.replace("CALLS", str(calls)).replace("STATUS", str(status)))
    fake.chmod(0o755)
    results = tmp_path / "results.jsonl"

    def run(*todo):
        calls.write_text("")
        found = jobs.run(str(fake), todo, results)
        return set(found), [json.loads(line)["name"] for line in calls.read_text().splitlines()]

    a, b = {"name": "a", "command": ["x"]}, {"name": "b", "command": ["y"]}
    status.write_text("failed")
    assert run(a) == ({"a"}, ["a"])
    status.write_text("fits")
    assert run(a, b) == ({"a", "b"}, ["a", "b"])  # a had failed
    assert run(a, b) == ({"a", "b"}, [])
    assert run(b) == ({"b"}, [])
    with results.open("a") as file:
        file.write('{"name":"c","status"')  # half written
    assert run(a, {**b, "command": ["z"]}) == ({"a", "b"}, ["b"])
    assert set(jobs.read_lines(results)) == {"a", "b"}


def test_data_may_be_a_folder_or_a_file(tmp_path):
    file = tmp_path / "xmem/runs.jsonl"
    file.parent.mkdir()
    file.write_text("")
    for data in (tmp_path, file.parent, file):
        assert xmem_rows.rows_file(data) == file
    with pytest.raises(SystemExit, match="no measured runs"):
        xmem_rows.rows_file(tmp_path / "other")


def test_from_end_to_end(gpucast_bin, tmp_path):
    """A measured job of a card through both rounds; its limits by replay and by running it."""
    (tmp_path / "truth").mkdir()
    (tmp_path / "truth/card.jsonl").write_text(json.dumps(measured(max_memory_reserved_3_steps_bytes=100 * 2**20)) + "\n")
    words = [
        sys.executable,
        "-m",
        "eval.papers.run_papers",
        "--gpucast",
        gpucast_bin,
        "--out",
        tmp_path / "out",
        "--draws",
        10,
        "--jobs",
        1,
    ]
    words += ["--data", tmp_path / "none", "--matrix", tmp_path / "none", "--truth", tmp_path / "truth"]
    found = []
    for way in "run", "replay":
        done = subprocess.run([*map(str, words), "--second-round", way], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found += map(json.loads, (tmp_path / "out/rows.jsonl").read_text().splitlines())
    assert "jobs fit" not in done.stderr  # a replay needs no further run
    run, replayed = (row["estimators"] for row in found)
    assert run == replayed
    lines = jobs.read_lines(tmp_path / "out/runs.jsonl")
    assert all("at most" in name for name in list(lines)[1:]) and len(lines) > 1
    peak = next(iter(lines.values()))["report"]["peak"]["reserved_bytes"]
    ours = run["gpucast"]
    assert ours["second_oom_on_virtual_gpu"] is False
    assert ours["error"] == pytest.approx(abs(peak / (100 * 2**20) - 1))
    assert "gpucast" in (tmp_path / "out/report.html").read_text()


def test_rows_of_a_card_beside_the_virtual_gpu(gpucast_bin, tmp_path):
    """compare_truth.py on a job and the allocator's sequence; a row of another PyTorch release is marked, one that failed left out."""
    row = measured(max_memory_reserved_3_steps_bytes=100 * 2**20, device_used_before_bytes=0, device_used_peak_bytes=2**30)
    allocator = {"part": "allocator", "count": 3000, "reserved_changes": [[0, 1]], "source": row["source"]}
    unknown = {**row, "source": {**row["source"], "card": "Some card"}}
    words = [sys.executable, "-m", "eval.truth.compare_truth", "--gpucast", gpucast_bin, "--data", str(tmp_path / "truth")]
    none = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert none.returncode == 1 and "compare_truth.py: no rows in" in none.stderr, none.stderr
    (tmp_path / "truth").mkdir()
    lines = [row, allocator, unknown, measured(error="no")]
    (tmp_path / "truth/card.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "left out, not in `gpucast gpus`: Some card" in done.stderr
    (line,) = (line for line in done.stdout.splitlines() if " mlp 64 fp32 Adam" in line)
    assert line.startswith("NVIDIA GeForce RTX 3060 mlp") and line.endswith("measured on 2.0.0")
    numbers = [float(word) for word in line.partition("before_backward")[2].split()[:6]]
    assert (numbers[0], numbers[3]) == (100, 1024) and numbers[1] > 0
    assert numbers[2] == pytest.approx(numbers[1] - 100, abs=0.6)
    assert "reserved: 1 jobs, median" in done.stdout
    assert "allocator sequence of 3000: DIFFERENT" in done.stdout


def test_a_limit_holds(gpucast):
    """What the second round is made of: limited.py holds PyTorch's allocator to a part of the card, here 12 GB."""
    script = "import sys, torch\nprint(sys.argv, __name__)\ntensor = torch.empty(2**30, device='cuda')\nprint('it is there')\n"  # 4 GiB
    for fraction, fits in (("0.30", False), ("0.40", True)):
        words = [sys.executable, str(PAPERS / "limited.py"), fraction, "train.py", "--batch"]
        run = gpucast(script, "--gpu", "rtx3060", "--enforce-capacity", command=words)
        assert "['train.py', '--batch'] __main__" in run.err
        assert ("it is there" in run.err) is fits and ("OutOfMemoryError" in run.err) is not fits
    line = {"status": "failed", "error": {"code": "script_failed"}, "printed": "torch.OutOfMemoryError: CUDA out of memory"}
    assert jobs.out_of_memory(line) and not jobs.out_of_memory({**line, "printed": ""})
