"""Kernels that PyTorch has Triton compile while the script runs: torch.compile, and on newer releases some eager operators."""

import json
import struct
import subprocess

import pytest
from conftest import train_script

# One cache for the test: a user's own holds kernels already, and is none of a test's business.
CACHES = """
import os
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TRITON_CACHE_DIR"] = os.path.abspath("cache")
"""

# What PyTorch's loader looks for among the mapped files must not be there, whatever the links are called.
OUTER_PRODUCT = """
torch.bmm(torch.randn(8, 64, 1, device="cuda"), torch.randn(8, 1, 64, device="cuda"))
names = {line.split("/")[-1].strip() for line in open("/proc/self/maps")}
assert not {name for name in names if name.startswith(("libcuda.so", "libcudart.so"))}, names
"""


def test_kernels_in_eager_mode(gpucast):
    run = gpucast(CACHES + train_script(after_step=OUTER_PRODUCT), environment={"TRITON_LIBCUDA_PATH": "/nowhere"}, timeout=120)
    assert run.code == 0, run.err
    assert run.report["steps"] == 3


@pytest.mark.slow
@pytest.mark.once
def test_compiled_model(gpucast, leaves_nothing):
    """On a cold cache: a C compiler, Triton and ptxas run, partly in worker processes that use the GPU and live on."""
    compiled = "optimizer = torch.optim.Adam(model.parameters())\ncompiled = torch.compile(model)\n"
    script = train_script().replace("for step in", compiled + "for step in").replace("cross_entropy(model(x)", "cross_entropy(compiled(x)")
    run = gpucast(CACHES + script, "--gpu", "rtx3060", environment={"TORCHINDUCTOR_COMPILE_THREADS": "2"}, timeout=200)
    assert run.code == 0, run.err
    assert run.report["steps"] == 3 and run.report["verdict"] == "fits"
    assert any((gpucast.job / "cache").rglob("*.cubin"))


KERNEL = """
import triton, triton.language as tl

@triton.jit
def scaled_sum(x, y, out, n, scale, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) * scale + tl.load(y + at, mask=inside), mask=inside)

@triton.jit
def sum_rows(x, counts, out, block: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((block,), tl.float32)
    for i in range(tl.load(counts + row)):
        total += tl.load(x + (row * 64 + i) * block + tl.arange(0, block))
    tl.store(out + row * block + tl.arange(0, block), total)

counts = torch.tensor([3, 0, 61, 20], dtype=torch.int32).cuda()
first, second, result = (torch.zeros(1_000_003, device="cuda") for _ in range(3))
addresses = [tensor.data_ptr() for tensor in (first, second, result)]
"""
LAUNCH = "scaled_sum[(977,)](first, second, result, 1_000_003, 2.5, block=1024); sum_rows[(4,)](first, counts, result, block=1024); print('at', *addresses)"


def test_a_launch_has_its_code_and_its_arguments(gpucast, gpucast_bin):
    script = CACHES + "import torch\n" + KERNEL + train_script(steps=3, after_step=LAUNCH)
    run = gpucast(script, "--gpu", "a100-80", fresh=True, timeout=200)
    assert run.code == 0, run.err
    (name,) = (event for event in run.capture.of("kernel_name") if event[2] == "scaled_sum")
    (ptx,) = (event[2] for event in run.capture.of("kernel_code") if event[1] == name[6])
    assert ".entry scaled_sum(" in ptx
    addresses = next(event[-2] for event in run.capture.of("kernel") if event[1] == name[1])
    assert addresses == [int(word) for word in run.err.split("at ", 1)[1].split()[:3]]
    (arguments, *_) = (event[1] for event in run.capture.of("arguments"))
    assert bytes.fromhex(arguments).startswith(struct.pack("<QQQif", *addresses, 1_000_003, 2.5))
    words = [gpucast_bin, "time", run.capture_path, "--gpu", "a100-80", "--format", "json"]
    times = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    (kernel,) = (kernel for kernel in times["kernels"] if kernel["name"] == "scaled_sum")
    assert kernel["kind"] == "compiled" and kernel["known"]
    # Its loops go by values on the card, which the host has copied there.
    (rows,) = (kernel for kernel in times["kernels"] if kernel["name"] == "sum_rows")
    assert rows["known"] and rows["sizes"] == "0.4 MB"  # 84 and 4 rows of 4 KiB


# Rows are sorted by their expert: counts, where each expert begins, and the order, each by a kernel. The host reads the number of tiles.
ROUTING = """
import triton, triton.language as tl

@triton.jit
def count(experts, counts, n, most: tl.constexpr, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.atomic_add(counts + tl.load(experts + at, mask=at < n, other=0), tl.full((block,), 1, tl.int32), mask=at < n)

@triton.jit
def begin(counts, begins, tiles, most: tl.constexpr):
    at = tl.arange(0, most)
    number = tl.load(counts + at)
    tl.store(begins + at, tl.cumsum(number, 0) - number)
    tl.store(tiles, tl.sum((number + 15) // 16, 0))

@triton.jit
def order(experts, out, n, block: tl.constexpr):
    at = tl.arange(0, block)
    keys = tl.where(at < n, tl.load(experts + at, mask=at < n, other=0) * block + at, 2147483647)
    tl.store(out + at, tl.sort(keys, 0) % block, mask=at < n)

experts = torch.tensor([(7 * i * i + 3 * i) % 29 for i in range(900)], dtype=torch.int32)
on_card, counts = experts.cuda(), torch.zeros(32, dtype=torch.int32, device="cuda")
begins, tiles, sorted_rows = (torch.empty(n, dtype=torch.int32, device="cuda") for n in (32, 1, 900))
count[(8,)](on_card, counts, 900, most=32, block=128)
begin[(1,)](counts, begins, tiles, most=32)
order[(1,)](on_card, sorted_rows, 900, block=1024)
expected = torch.bincount(experts, minlength=32)
assert counts.tolist() == expected.tolist()
assert begins.tolist() == (expected.cumsum(0) - expected).tolist()
room = torch.empty(tiles.item(), 16, device="cuda")
assert len(room) == sum((number + 15) // 16 for number in expected.tolist()), len(room)
assert sorted_rows.tolist() == experts.sort(stable=True).indices.tolist()
print("read", (sorted_rows // 4).max().item())
"""


def test_whole_numbers_that_kernels_store_are_known(gpucast):
    script = CACHES + "import torch\n" + ROUTING + train_script(steps=2)
    run = gpucast(script, "--gpu", "a100-80", "--values", "on", fresh=True, timeout=200)
    assert run.code == 0, run.err
    assert "read 224" in run.err
    assert not [warning for warning in run.report["warnings"] if warning["code"] == "value_assumed"]
