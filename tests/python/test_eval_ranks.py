"""Judging plans of jobs on several cards (eval/ranks), without measured rows."""

import dataclasses

import pytest

from eval.ranks import composed, fms, judge, lambda_ddp, llm_foundry, megatron, neusight, vtrain, vtrain_table
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


def test_systems_of_lambda():
    assert lambda_ddp.system_of("LambdaCloud 8xV100 16GB") == ("v100-16", 16, "dgx-1", "22.10", 8)
    assert lambda_ddp.system_of("LambdaOD_4x_Texas_2xH100_80GB_SXM5_192-222-52-139_v2") == ("h100-80", 80, "lambda-h100", "24.03", 2)
    assert lambda_ddp.system_of("2x RTX 6000 Ada")[-1] == lambda_ddp.system_of("2xAdaA6000_v1")[-1] == 2
    assert lambda_ddp.system_of("H100 80GB PCIe Gen5") == ("h100-80-pcie", 80, "pcie5-server", "22.10", 1)
    assert lambda_ddp.system_of("ASUS_8xH200_140GB_SXM_lambda-scalar_v2") is None


def test_bert_stops_after_two_epochs():
    assert lambda_ddp.bert_share(320, 1) == 1.01
    assert lambda_ddp.bert_share(320, 8) == 0.70  # 88,641 sequences: 35 steps an epoch


def test_ratios_of_lambda(tmp_path):
    folder = tmp_path / "lambda_benchmarks"
    folder.mkdir()
    models = ",".join(lambda_ddp.MODELS)
    lines = ["RTX 4090,500,0,90,40", "2x RTX 4090,900,0,150,50", "2x RTX 3090,700,0,120,0"]
    (folder / "pytorch-train-throughput-fp16.csv").write_text("\n".join([f"name_gpu,{models}", *lines]))
    runs = "dir,precision,median_compute_ips_after_10\n4090_v1,AMP,500\n"
    (folder / "resnet50_synthetic_all_runs.csv").write_text(runs)
    rows = {row.model: row for row in lambda_ddp.rows_of(tmp_path)}
    assert set(rows) == {"resnet50", "bert_base_squad", "bert_large_squad"}
    assert rows["resnet50"].ratio == 1.8 and rows["resnet50"].batch == 448
    assert not rows["resnet50"].peer


def test_a_rate_from_resnet():
    row = lambda_ddp.Row("resnet50", False, "a6000", "pcie4-server", "a6000 22.10", False, 8, 2, 1.6)
    times = {row: (lambda_ddp.Times(1), lambda_ddp.Times(1.02, 0.1, 0.08))}
    assert times[row][1].step_without_hiding_s() == pytest.approx(1.1)
    assert lambda_ddp.slower_links(times) == {("a6000 22.10", 2): pytest.approx(2.5)}  # measured 1.25 s


def test_rows_of_neusight(tmp_path):
    (tmp_path / "multi_gpu").mkdir()
    head = "model,card,gpus,gpus_per_node,seq_len,global_batch,dp,tp,pp,step_s,notes"
    lines = (
        "gpt2_large,A100-40,4,4,1024,4,1,1,4,1.5,NeuSight predicts 1.7616 s\ngpt3_xl,H100-80,4,4,2048,16,4,1,1,1.5,NeuSight predicts 2 s\n"
    )
    (tmp_path / "multi_gpu" / "runs_neusight.csv").write_text(f"{head}\n{lines}")
    pipeline, data = neusight.rows_of(tmp_path)
    assert (pipeline.plan, pipeline.micro_batches, pipeline.stage_ranks) == ("pipeline parallel", 1, [0, 1, 2, 3])
    assert (data.plan, data.micro_batch, data.published_s) == ("data parallel", 4, 2)
    assert "--fp16" in megatron.arguments(ROW) and "--fp16" not in megatron.arguments(data)


def test_attention_of_2023_in_todays_triton():
    old = """
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "SEQUENCE_PARALLEL": False}, num_warps=8),
        tl.atomic_add(dq_ptrs, dq)
        qk += tl.dot(q, k, trans_b=True)
        dv += tl.dot(p.to(do.dtype), do, trans_a=True)
"""
    new = llm_foundry.todays_triton(old)
    assert "tl.dot(q, tl.trans(k))" in new and "tl.dot(tl.trans(p.to(do.dtype)), do)" in new
    assert 'tl.atomic_add(dq_ptrs, dq, sem="relaxed")' in new and "False" not in new
    assert new.count("triton.Config") == 2 and '"BLOCK_M": 64, "BLOCK_N": 128' in new


def test_rows_of_full_fine_tuning(tmp_path):
    """A row without a figure of torch's is left out if it ran, and asks for a verdict if it did not end."""
    columns = "model,gpus,micro_batch,precision,release,step_s,notes"
    release = '"torch 2.4.1, transformers 4.48.1"'
    memory = "peak torch allocated 2000 B (rank 0; Trainer probes); nvidia-smi peak 9 MiB mean of cards; allocated 900 B; plugin none"
    lines = [
        columns,
        f"a/b,2,4,bfloat16,{release},1.5,{memory}",
        f"a/b,1,8,bfloat16 +bf16 autocast,{release},,no torch figure; plugin foak",
    ]
    lines.append(f"a/b,1,4,bfloat16,{release},2.5,no torch figure; plugin none")
    (tmp_path / "multi_gpu").mkdir()
    (tmp_path / "multi_gpu" / "runs_fms_acceleration.csv").write_text("\n".join(lines))
    (ran, ended), left_out = fms.rows_of(tmp_path)
    assert (ran.peak, ran.allocated, ran.gpus, ran.transformers) == (2000, 900, 2, "4.48.1") and left_out == 1
    assert ended.peak is None and ended.bf16 and ended.plugin == "foak"

    pairs = [(ran, fms.Answer("fits", 2010, 900, 2010)), (ended, fms.Answer("tight"))]
    assert "| all | 1 | 0 | 0.5000 | 0.5000 | 1 | 1 |" in fms.summary(fms.compared(pairs))
    assert "+10 (+0.5000 %)" in fms.table_of(fms.compared(pairs))
    assert fms.disagreements(pairs) == f"Otherwise: {ended.name} (tight)."
