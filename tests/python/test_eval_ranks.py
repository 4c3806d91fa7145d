"""Judging plans of jobs on several cards (eval/ranks), without measured rows."""

import dataclasses

import pytest

from eval.ranks import judge, megatron, vtrain
from eval.ranks.sweeps import Row

pytestmark = pytest.mark.once
ROW = Row("GPT", "a100-80", 8, 8, 1024, 16, 24, 1024, 16, 2, 2, 2, 2, 0.2)


def test_the_plan_called_fastest():
    rows = [ROW, dataclasses.replace(ROW, tp=4, dp=1, step_s=0.21), dataclasses.replace(ROW, tp=1, dp=4, step_s=0.25)]
    assert judge.choices(rows, dict(zip(rows, (2, 3, 4)))) == (1, 1, 0.0)
    cases, right, loss = judge.choices(rows, dict(zip(rows, (3, 2, 4))))
    assert (cases, right) == (1, 0) and loss == pytest.approx(0.05)
    assert judge.choices([ROW], {ROW: 1}) == (0, 0, 0.0)


def test_the_order_of_plans():
    assert judge.spearman([1, 2, 3, 4], [10, 20, 25, 70]) == pytest.approx(1)
    assert judge.spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert judge.spearman([1, 1, 2], [5, 5, 9]) == pytest.approx(1)


def test_a_rank_of_each_stage():
    assert ROW.micro_batches == 4
    assert ROW.stage_ranks == [0, 4]
    files = megatron.capture_files(ROW, megatron.Path("folder"))
    assert [file.name.split(".", 1)[1] for file in files] == ["gpucast", "rank4.gpucast"]
    assert not ROW.recomputes and "--recompute-method" not in megatron.arguments(ROW)


def test_a_sample_spreads_over_plans():
    rows = [dataclasses.replace(ROW, layers=layers, tp=tp, dp=4 // tp) for layers in (12, 16, 20, 24) for tp in (1, 2, 4)]
    assert {row.tp for row in vtrain.sample(rows, 3, seed=1)} == {1, 2, 4}
    assert len(set(vtrain.sample(rows, 99, seed=1))) == len(rows)


def test_megatron_waits_for_its_all_reduces():
    before = "handle = torch.distributed.all_reduce(\n" + megatron.OVERLAPPED + "            # next"
    assert "async_op=True\n            )\n            handle.wait()\n            # next" in megatron.with_waits(before)
    with pytest.raises(SystemExit, match="0 overlapped all-reduces"):
        megatron.with_waits("another release")
