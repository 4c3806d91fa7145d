"""What eval/kernels concludes from the lines of its counting program."""

import json

import pytest

from eval.kernels import evaluate

pytestmark = pytest.mark.once

PTX = """.version 8.7
.target sm_80
.visible .entry k(.param .u64 p)
{
	.loc	1 LINE 3
$L__tmpLINE:
	@%p1 wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1,%r2}, [%rd1];
	call.uni helper, ();
	ret;
}
	.section	.debug_info
{
.b8 LINE
}
"""
WMMA = "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16"


def line(ptx=PTX, **changes):
    told = {"kernel": "k", "counted": 1, "cut_off": 0, "assumed": 0, "limits": [], "met": [], "in_code": [], "problem": "", "ptx": ptx}
    return json.dumps(told | changes)


def test_a_kernel_is_its_name_and_its_instructions():
    moved = PTX.replace("LINE", "27")
    found = evaluate.kernels_from([line(), line(moved, assumed=3), line(PTX.replace("ret", "exit")), line(kernel="other")])
    assert sorted((kernel.name, kernel.counted, kernel.assumed) for kernel in found.values()) == [
        ("k", 1, False),
        ("k", 2, True),
        ("other", 1, False),
    ]


def test_an_instruction_is_shown_with_its_line():
    assert evaluate.line_of(WMMA, PTX).startswith(f"@%p1 {WMMA} ")
    assert evaluate.line_of("call helper", PTX) == "call.uni helper, ();"
    assert evaluate.line_of("call other", PTX) == evaluate.line_of("wmma.load", PTX) == ""


def test_what_is_not_understood_is_listed():
    lines = [line(), line(kernel="bad", in_code=[WMMA], met=[WMMA]), line(kernel="long", cut_off=1, limits=["a warp's most steps"])]
    rows = {("Liger-Kernel", "a100-80"): (2, evaluate.kernels_from([*lines, line(kernel="odd", problem="its PTX is not in the capture")]))}
    last = evaluate.table(rows).splitlines()[-1]
    assert [cell.strip() for cell in last.split("|")[1:-1]] == ["all", "", "", "", "4", "4", "1", "0", "0", "1", "2"]
    assert evaluate.reasons(rows).splitlines() == [
        f"- Liger-Kernel, a100-80, `bad`: `{WMMA}` in `{evaluate.line_of(WMMA, PTX)}`",
        "- Liger-Kernel, a100-80, `long`: cut off by a warp's most steps",
        "- Liger-Kernel, a100-80, `odd`: its PTX is not in the capture",
    ]
    assert evaluate.reasons({}) == "None."


def test_stores_that_are_not_counted_are_named():
    store = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
    ptx = PTX.replace("ret;", f"@%p2 {store} [%rd1, {{%r1, %r2}}], [%r3];")
    load = "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes"
    other = PTX.replace("ret;", f"{load} [%r3], [%rd1, {{%r1, %r2}}], [%r4];")
    rows = {("x", "h100-sxm"): (1, evaluate.kernels_from([line(ptx), line(other, kernel="loads")]))}
    assert evaluate.uncounted(rows) == f"- `{store}`, as in `@%p2 {store} [%rd1, {{%r1, %r2}}], [%r3];`: x, h100-sxm, `k` (1)"


def test_a_case_that_failed_is_listed_with_the_last_line_of_its_error():
    failed = {("unsloth", "a100-80", "fp8"): "CompilationError: at 1:0:\ndef kernel(\n^\nno fp8 here\n", ("x", "y", "z"): ""}
    assert evaluate.left_out(failed) == "- unsloth, a100-80, fp8: no fp8 here\n- x, y, z: no reason given"
    assert evaluate.left_out({}) == "None."
