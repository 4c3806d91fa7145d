"""eval/memory/upper_bound.py: the arithmetic on tables small enough for paper and pencil, and that the command computes the same from the table."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eval.memory import upper_bound, xmem_rows

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.once

GIB = 2**30
MIB = 2**20
TABLE = json.loads((ROOT / "data/calibration.json").read_text())


def run(**changes):
    """8 GiB card; the allocator's peak 2 GiB, the card took that and 100 MiB besides its context."""
    values = {
        "model": "a",
        "card": "3060",
        "job_class": "dense",
        "total": 8 * GIB,
        "context": 100 * MIB,
        "context_high": 150 * MIB,
        "kernels": 20 * MIB,
        "kernels_low": 20 * MIB,
        "kernels_high": 60 * MIB,
        "reserved": 2 * GIB,
        "reserved_here": 2 * GIB,
        "growth": 2 * GIB + 100 * MIB,
        "real_oom": False,
        "predicted_oom": False,
        "verdict": "fits",
        "montecarlo": True,
        "paper": {},
    }
    return upper_bound.Run(**{**values, **changes})


@pytest.mark.parametrize("confidence, rank", [(0.5, 10), (0.9, 18), (0.95, 19)])
def test_a_bound_is_the_score_of_its_rank(confidence, rank):
    # 19 scores: with 20 places for a new one each twentieth is one rank.
    assert upper_bound.quantile(list(range(1, 20))[::-1], confidence) == rank


def test_beyond_the_worst_score_an_exponential_tail_goes_on():
    # The largest five of 19 are 1 to 5 above the sixth: 3 on average. 0.975 leaves out half of the worst one's share, 1 of 20.
    assert upper_bound.quantile(range(1, 20), 0.975) == pytest.approx(19 + 3 * math.log(2))


def test_scores_count_what_the_ledger_does_not_hold():
    assert upper_bound.upper_score(run(), 4 * GIB) == pytest.approx(40 * MIB / (2 * GIB))
    assert upper_bound.lower_score(run(), 4 * GIB) == pytest.approx(80 * MIB / (2 * GIB))
    assert upper_bound.upper_score(run(), GIB) == pytest.approx(40 * MIB / GIB)


def test_kinds_with_few_models_take_the_rows_of_all_convolutions():
    runs = [run(job_class="pointwise", model=str(model)) for model in range(10)]
    runs += [run(model=str(model)) for model in range(9)] + [run(job_class="no_convolutions")] * 3
    rows = upper_bound.rows_by_class(runs)
    assert [(name, rows[name][0], len(rows[name][1])) for name in ("pointwise", "dense", "no_convolutions", "varying_lengths")] == [
        ("pointwise", "pointwise", 10),
        ("dense", "convolutions", 19),
        ("no_convolutions", "no_convolutions", 3),
        ("varying_lengths", "varying_lengths", 0),
    ]


def test_many_rows_of_few_models_do_not_stand_alone():
    rows_of, rows = upper_bound.rows_by_class([run(job_class="pointwise")] * 50 + [run(model="b")])["pointwise"]
    assert (rows_of, len(rows)) == ("convolutions", 51)


def test_binomial_interval_by_hand():
    # All of n rows: the n-th root of 5 %. 2 of 4 rows: tables give 9.76 % to 90.24 %.
    assert upper_bound.binomial_interval(18, 18) == pytest.approx((0.05 ** (1 / 18), 1))
    assert upper_bound.binomial_interval(2, 4) == pytest.approx((0.0976, 0.9024), abs=1e-4)
    assert upper_bound.binomial_interval(0, 3) == pytest.approx((0, 1 - 0.05 ** (1 / 3)))


def test_runs_that_ran_out_of_memory_teach_nothing():
    table = upper_bound.fit([run()] * 12 + [run(real_oom=True, growth=7 * GIB)])
    assert [row["rows"] for row in table["classes"] if row["name"] == "dense"] == [12]
    assert table["measured_up_to_bytes"] == 2 * GIB


def test_another_card_widens_by_its_worst_run():
    # Scores by min(reserved, 2 GiB) are 0.1 on one card, and 0.25 at worst on the other.
    cards = [run(growth=2 * GIB + 60 * MIB + round(0.1 * 2 * GIB))] * 12 + [
        run(card="4060", growth=2 * GIB + 60 * MIB + round(share * 2 * GIB)) for share in [0.1] * 11 + [0.25]
    ]
    assert upper_bound.widening(cards) == 2.5
    assert upper_bound.widening([run()] * 12 + [run(card="4060")] * 12) == 1.0


def table_of(score):
    rows = [
        {"name": name, "rows_of": name, "low": -score / 2, "quantiles": [[0.5, 0], [0.95, score / 2], [0.99, score]]}
        for name in upper_bound.CLASSES
    ]
    return {"scale_bytes": GIB, "measured_up_to_bytes": 4 * GIB, "widening": 2.0, "classes": rows}


def test_a_promise_is_kept_when_the_card_took_no_more():
    # Asked for: 2048 + 150 + 60 + 10 % of 1024 MiB, rounded up = 2361. The card took 100 + 2148.
    kept = upper_bound.judge(table_of(0.1), run())
    assert kept.request == (2048 + 150 + 60 + 103) * MIB
    assert kept.right and kept.runs and kept.runs_in_paper and kept.covered
    # The interval: 2048 + 20 - 52 to 2048 + 60 + 52 MiB.
    assert kept.width == pytest.approx((40 + 51 + 52) * MIB / (2148 * MIB), abs=2e-3)
    broken = upper_bound.judge(table_of(0.1), run(growth=2 * GIB + 300 * MIB))
    assert not broken.runs and not broken.covered
    assert broken.runs_in_paper  # the paper's limit binds the allocator only: 2361 of 8192 MiB is 29 %, 2375.7; it took 2328
    assert not upper_bound.judge(table_of(0.1), run(growth=2 * GIB + 350 * MIB)).runs_in_paper


def test_a_request_for_the_whole_card_runs_as_the_first_round_did():
    outcome = upper_bound.judge(table_of(0.1), run(total=2300 * MIB, growth=2290 * MIB))
    assert outcome.request == 2300 * MIB
    assert outcome.runs and outcome.runs_in_paper


def test_memory_saved_is_the_papers():
    assert xmem_rows.saved_bytes(True, True, False, 3, 10) == 10
    assert xmem_rows.saved_bytes(True, False, True, 3, 10) == 7
    assert xmem_rows.saved_bytes(True, False, False, 3, 10) == -10
    assert xmem_rows.saved_bytes(False, False, True, 3, 10) == -10


def test_a_model_is_judged_without_its_own_rows():
    runs = [run(model="a")] * 12 + [run(model="b", growth=3 * GIB)] * 12
    fitted = [outcome.runs for _, outcome in upper_bound.judged(runs)]
    left_out = [outcome.runs for _, outcome in upper_bound.judged(runs, lambda row: row.model)]
    assert all(fitted)
    assert left_out == [True] * 12 + [False] * 12


def test_the_table_has_every_class_and_grows_with_confidence():
    assert [row["name"] for row in TABLE["classes"]] == [*upper_bound.CLASSES, upper_bound.ASSUMED]
    assert TABLE["widening"] >= 1
    for row in TABLE["classes"]:
        assert row["rows"] >= row["models"] > 0 or row["name"] == upper_bound.ASSUMED
        scores = [score for _, score in row["quantiles"]]
        assert scores == sorted(scores)


@pytest.mark.parametrize("gpu, factor", [("rtx3060", 1), ("a100-40", TABLE["widening"])])
@pytest.mark.parametrize("confidence", [0.6, 0.95, 0.97, 0.9995])
def test_the_command_says_what_the_table_says(gpucast_bin, tmp_path, gpu, factor, confidence):
    capture = tmp_path / "train.gpucast"
    shutil.copy(ROOT / "tests/cases/bound_convolutions/input.jsonl", capture)
    words = [gpucast_bin, "analyze", str(capture), "--gpu", gpu, "--confidence", str(confidence), "--format", "json"]
    report = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=60).stdout)
    assert report["device"]["classes"] == ["pointwise", "varying_lengths"]
    reserved = report["peak"]["reserved_bytes"]
    ranges = [upper_bound.calibrated(TABLE, name, reserved, confidence, factor) for name in report["device"]["classes"]]
    beside = sum(line["high_bytes"] for line in report["ledger"] if line["what"].startswith(("CUDA", "kernels")))
    assert report["device"]["request_bytes"] == reserved + beside + sum(request for _, _, request in ranges)
    lines = [line for line in report["ledger"] if "stayed within this range" in line["source"]]
    assert [(line["low_bytes"], line["high_bytes"]) for line in lines] == [(low, high) for low, high, _ in ranges]


FAKE = """#!{python}
import json, sys
out = sys.argv[sys.argv.index("-o") + 1]
for line in sys.stdin:
    job = json.loads(line)
    open({calls!r}, "a").write(job["name"] + "\\n")
    amounts = {{"CUDA context": 100, "kernels loaded": 20}}
    ledger = [dict(what=what, low_bytes=n << 20, expected_bytes=n << 20, high_bytes=n << 20) for what, n in amounts.items()]
    report = dict(peak=dict(allocated_bytes=1 << 30, reserved_bytes=2 << 30), ledger=ledger, device=dict(classes=["dense"]))
    report.update(verdict="fits", min_capacity_bytes=2 << 30, warnings=[])
    open(out, "a").write(json.dumps(dict(name=job["name"], status="fits", error=None, seconds=1, report=report)) + "\\n")
"""


def test_each_run_is_made_once(tmp_path):
    fake, calls, data = tmp_path / "gpucast", tmp_path / "calls", tmp_path / "runs.jsonl"
    fake.write_text(FAKE.format(python=sys.executable, calls=str(calls)))
    fake.chmod(0o755)
    row = {"path": "x", "experiment": "montecarlo", "gpu": "NVIDIA GeForce RTX 3060", "total_gpu_memory": 12 * GIB, "model": "net"}
    row.update(arch="cnn", optimizer="SGD", zero_grad_mode=0, ground=2 * GIB + 50 * MIB, real_oom=False, estimators={})
    data.write_text("".join(json.dumps({**row, "batch_size": batch}) + "\n" for batch in (8, 16)))
    words = [sys.executable, "-m", "eval.memory.upper_bound", "--gpucast", fake, "--data", data, "--write", tmp_path / "table.json"]
    done = subprocess.run([*map(str, words)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert calls.read_text().splitlines() == ["rtx3060 net SGD 8 z0", "rtx3060 net SGD 16 z0"]
    table = json.loads((tmp_path / "table.json").read_text())
    (dense,) = (row for row in table["classes"] if row["name"] == "dense")
    assert (dense["rows_of"], dense["rows"], table["measured_up_to_bytes"]) == ("convolutions", 2, 2 * GIB)
