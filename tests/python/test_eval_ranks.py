"""Judging plans of jobs on several cards (eval/ranks), without measured rows."""

import dataclasses

import pytest

from eval.ranks import composed, judge, megatron, vtrain, vtrain_table
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


def answer_of(layers, gradients_bytes=0):
    """A capture whose layer takes 3 ms a micro batch and 1 ms a step, whose embedding takes 2 and head 7 ms, the rest 5 ms."""
    ms = 1e6
    phases = [("forward", 2 + 3 * layers, 4), ("loss", 7, 1), ("backward", 0, 0), ("optimizer_step", 5 + layers, 2)]
    reduced = {"purpose": "data", "kind": "all_reduce", "ranks": 2, "bytes": gradients_bytes, "exposed_ns": 10 * ms, "hidden_ns": 0}
    return {
        "job": {"step": {"expected_ns": (14 + 4 * layers) * ms}},
        "by_phase": [{"name": name, "gpu_ns": time * ms, "launches": launches} for name, time, launches in phases],
        "by_module": [{"name": "module.embedding (Embedding)", "gpu_ns": 2 * ms, "launches": 1}],
        "ranks": [{"by_communication": [reduced] if gradients_bytes else []}],
    }


def ms_of(row, host):
    parts = [composed.parts_of(answer_of(layers)) for layers in composed.LAYERS]
    return 1e3 * composed.step_s(row, *composed.ends_and_layer(*parts), bus_bytes_per_s=1e9, host=host)


def test_more_layers_and_micro_batches():
    row = dataclasses.replace(ROW, tp=1, dp=1, pp=1, layers=12, global_batch=8, micro_batch=2)
    assert ms_of(row, composed.overlapping(0)) == pytest.approx(4 * (2 + 7 + 3 * 12) + 5 + 12)
    assert ms_of(row, composed.overlapping(0.01)) == pytest.approx(4 * 10 * 5 + 10 * 2)
    assert ms_of(row, composed.blocking(0.001)) == pytest.approx(4 * (2 + 7 + 3 * 12 + 5) + 5 + 12 + 2)
    # Two stages of 2 + 18 and 18 + 7 ms.
    assert ms_of(dataclasses.replace(row, pp=2), composed.overlapping(0)) == pytest.approx(20 + 25 + 3 * 25 + 5 + 6)


def test_gradients_of_more_ranks_and_layers():
    answer = answer_of(2, gradients_bytes=1e9)
    assert composed.bus_rate(answer) == pytest.approx(1e9 / 10e-3)
    assert composed.bus_rate(answer_of(2)) == 0
    ends, layer = composed.Parts(gradient_bytes=1e9), composed.Parts(gradient_bytes=1e8)
    row = dataclasses.replace(ROW, tp=1, dp=4, pp=2, layers=20)
    assert composed.step_s(row, ends, layer, 1e9, composed.overlapping(0)) == pytest.approx(1.5 * 2)


def test_a_sweep_is_captured_by_few_small_jobs():
    small = composed.captured_row(ROW, 4)
    assert (small.layers, small.gpus, small.tp * small.dp, small.micro_batches, small.stage_ranks) == (4, 8, 8, 1, [0])
    assert not small.recomputes


def test_megatron_waits_for_its_all_reduces():
    before = "handle = torch.distributed.all_reduce(\n" + megatron.OVERLAPPED + "            # next"
    assert "async_op=True\n            )\n            handle.wait()\n            # next" in megatron.with_waits(before)
    with pytest.raises(SystemExit, match="0 overlapped all-reduces"):
        megatron.with_waits("another release")


def test_rows_that_differ_in_data_parallel_ranks():
    row = dataclasses.replace(ROW, hidden=1024, layers=24, tp=4, pp=1, micro_batch=1, global_batch=4, dp=1, step_s=0.1)
    assert vtrain_table.gradient_mib(row) == {195}
    assert vtrain_table.gradient_mib(dataclasses.replace(row, tp=1, pp=2)) == {386, 388}
    more = dataclasses.replace(row, dp=2, global_batch=8, step_s=0.102)
    ((found, seconds, listed),) = vtrain_table.more_ranks([row, more], {(2, 195): 0.0019})
    assert found == more and listed == [0.0019] and seconds == pytest.approx(0.002)
