"""eval/operations/gemm_model.py searches constants with src/time/gemm.cc's formula written once more: both say the same of the same products."""

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from eval.operations import gemm_model
from eval.operations import rows as measured
from eval.operations.fit import MODEL_ALONE

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.once
PRODUCTS = [  # batch, m, n, k, the second operand transposed
    (1, 4096, 4096, 4096, True),
    (1, 8192, 512, 128, True),
    (1, 16, 5120, 5120, True),
    (1, 128, 128, 65536, True),
    (1, 3000, 1000, 77, True),
    (1, 1, 32, 32, True),
    (1, 1_000_000, 4, 4, True),
    (64, 512, 512, 64, False),
    (300, 100, 70, 33, False),
    (4096, 576, 8, 8, False),
]


def constants(gpu, precision):
    """As src/time/constants.cc and card_rates() read them, for a card without a limit of watts."""
    layers = {name: json.loads((ROOT / f"data/time/{name}.json").read_text())[name] for name in ("operations", "architectures", "cards")}
    architecture, card = layers["architectures"][gpu["compute_capability"]], layers["cards"].get(gpu["id"], {})
    gemm, rates = {}, {**architecture["rates"], **card.get("rates", {})}
    for layer in (layers["operations"], architecture, card):
        for name in ("all", precision):
            gemm.update(layer.get("gemm", {}).get(name, {}))
    peak = gpu["peak_flop_per_s"][precision]
    assert rates[f"{precision}_fraction"] * peak < gpu["power_w"] * rates[f"{precision}_flop_per_joule"]
    given = {
        "rate": gemm["efficiency"] * rates[f"{precision}_fraction"] * peak,
        "dram": rates["dram_fraction"] * gpu["bandwidth_bytes_per_s"],
    }
    return {**gemm, **given, "l2_copies": rates["l2_copies"], "throttle": gemm_model.throttle(gpu, precision, gemm)}


@pytest.mark.parametrize(
    "card, precision",
    [("h200", "bf16"), ("b200", "bf16"), ("b200", "fp8"), ("a40", "fp16"), ("a100-40-pcie", "fp32"), ("v100-32-pcie", "fp32")],
)
def test_both_say_the_same(card, precision, gpucast_bin, tmp_path):
    gpu, element = measured.GPUS[card], {"fp32": 4, "fp8": 1}.get(precision, 2)
    for product in PRODUCTS:
        batch, m, n, k, b_transposed = product
        columns = measured.columns([measured.gemm_row(batch, m, n, k, 1.0, element, b_t=b_transposed)])
        (tmp_path / "operation.jsonl").write_text(measured.gemm_lines(columns, precision))
        (tmp_path / "alone.json").write_text(json.dumps(MODEL_ALONE))
        words = [
            str(gpucast_bin),
            "time",
            "--operations",
            str(tmp_path / "operation.jsonl"),
            "--gpu",
            card,
            "--constants",
            str(tmp_path / "alone.json"),
        ]
        said = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)["expected_ns"]
        found = gemm_model.gemm_ns(columns, gpu, constants(gpu, precision), precision != "fp32", batch > 1)
        assert found[0] == pytest.approx(said, rel=1e-3), product
        assert numpy.isfinite(found).all()


HEAD = "card,dtype,framework,version,kernel_source,m,n,k,latency_ms,n_meas,all_min_ms,all_median_ms,all_max_ms\n"


def test_a_table_of_few_rows_and_of_cards_that_nobody_knows(gpucast_bin, tmp_path):
    """Data that was kept aside may hold any card, in any number of rows."""
    folder = tmp_path / "data" / "kernel_times"
    folder.mkdir(parents=True)
    lines = [
        f"{card},bf16,x,1,x,{m},4096,4096,1,1,1,{ms},1\n" for card in ("L40S", "B9000", "RTX 3060") for m, ms in ((64, 0.1), (4096, 0.7))
    ]
    (folder / "aic_gemm_bf16.csv").write_text(HEAD + "".join(lines))
    without = tmp_path / "without-l40s.json"
    without.write_text('{"schema_version": 1, "cards": {"l40s": null}}')
    command = [sys.executable, "-m", "eval.operations.judge"]
    words = ["--data", tmp_path / "data", "--without", tmp_path, "--gpucast", gpucast_bin, "--intervals"]
    done = subprocess.run([*command, *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[2:6]] for line in done.stdout.splitlines() if line.startswith("| aic")]
    assert rows == [["l40s", "bf16", "left out", "2"], ["l40s", "bf16", "built in", "2"], ["rtx3060", "bf16", "built in", "2"]]
    assert done.stderr == "left out: rows of 'B9000', which `gpucast gpus` does not have\n"
    done = subprocess.run([*command, "--data", tmp_path / "nothing"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
