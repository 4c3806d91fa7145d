"""eval/memory: the line through processes' memory outside the allocator, and that the ledger has it."""

import json

import pytest
from conftest import ROOT

from eval.memory import fit_beside

pytestmark = pytest.mark.once

LEDGER = json.loads((ROOT / "data/ledger.json").read_text())["ledger"]


def test_points_on_a_line_give_the_line():
    assert fit_beside.fit({("a", 40): 120, ("b", 100): 240, ("c", 200): 440}) == pytest.approx((40, 2))
    # Errors are relative: the small card's 10 MiB weigh more than the large one's.
    a, b = fit_beside.fit({("a", 10): 50, ("b", 10): 60, ("c", 1000): 2040, ("d", 1000): 2050})
    assert 50 < a + 10 * b < 55


def test_the_ledger_has_the_line_of_the_rows():
    rows = [row for row in fit_beside.read(fit_beside.HERE / "beside.csv") if row[3]]
    a, b = fit_beside.fit(fit_beside.medians(rows))
    context, kernels = LEDGER["context"], LEDGER["kernels"]
    assert a - context["base_mib"] == pytest.approx(kernels["base_mib"], abs=0.1)
    assert b - context["per_stack_mib"] == pytest.approx(kernels["per_stack_mib"], abs=0.001)


def test_loading_weights_does_not_count(tmp_path):
    path = tmp_path / "rows.csv"
    header = "card,multiprocessors,threads,card_named,process_gib,allocated,reserved_unallocated,beside_mib,stage,job,source"
    path.write_text(f"{header}\nx,40,1024,yes,1,1,1,130,computing,conv,https://x\nx,40,1024,yes,1,1,1,99,loading,conv,\n")
    assert fit_beside.read(path) == [("x", 40.0, 130, True)]
    assert fit_beside.medians(fit_beside.read(path)) == {("x", 40.0): 130}
