"""Compiled programs: they end, their peaks are PyTorch's own, steps inside compiled code count, and PyTorch says nothing of our hooks."""

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import SUM_ROWS

MODEL = """
import json, os, torch
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())

def forward_backward(model):
    model(torch.randn(64, 256, device="cuda")).square().mean().backward()
"""
COUNTERS = """
print(f"allocated={torch.cuda.max_memory_allocated()}")
print(f"reserved={torch.cuda.max_memory_reserved()}")
"""
# PyTorch alone: the number of graphs is the same without our hooks.
GRAPHS = """
from torch._dynamo.utils import counters
print(f"graphs={counters['stats']['unique_graphs']}")
print(f"frames={counters['frames']['total']}")
"""


def compiled_run(gpucast, script, *options, environment=(("TORCHINDUCTOR_COMPILE_THREADS", "1"),)):
    run = gpucast(MODEL + script + COUNTERS, "--steps", "100", *options, environment=dict(environment), timeout=200)
    assert run.code == 0, run.err
    assert "global hooks" not in run.err
    peak = run.report["peak"]
    assert (peak["allocated_bytes"], peak["reserved_bytes"]) == (run.printed("allocated"), run.printed("reserved"))
    return run


# How long a kernel takes whose loops go by numbers that compiled code makes.
LOOPS = (
    SUM_ROWS
    + """counts = torch.compile(make)()
for _ in range(2):
    begin.record()
    for _ in range(10):
        sum_rows[(512,)](x, counts, out, block=1024)
    end.record()
    end.synchronize()
print(begin.elapsed_time(end))
"""
)
NUMBERS = {
    "constants": """
def make():
    return torch.full((512,), 16, dtype=torch.int32, device="cuda") * 16
""",
    # aten.index_put_ and aten.sort: no kernels of the compiler's own.
    "operators": """
def make():
    at = torch.arange(4096, device="cuda")
    sums = torch.zeros(4096, dtype=torch.int64, device="cuda")
    sums.index_put_((at // 8,), torch.full((4096,), 32, device="cuda"), accumulate=True)
    return sums.sort(descending=True).values[:512].to(torch.int32)
""",
}


def codes(run):
    return [warning["code"] for warning in run.report["warnings"]]


@pytest.mark.once
@pytest.mark.slow
def test_model_and_optimizer(gpucast, gpucast_bin):
    """The optimizer's step is inside of compiled code, where no hook runs. Kernels that Triton compiled are in the log."""
    run = compiled_run(
        gpucast,
        """
compiled, step = torch.compile(model), torch.compile(lambda: optimizer.step())
for _ in range(3):
    forward_backward(compiled)
    step()
    optimizer.zero_grad()
"""
        + GRAPHS,
    )
    assert run.report["steps"] == 3
    assert run.printed("graphs") == 2
    assert "hook_failed" not in codes(run)
    names = {line[1]: line[2:] for line in run.capture.of("kernel_name") if line[2].startswith("triton_")}
    assert names and all(len(rest) == 5 and rest[1] > 0 for rest in names.values())  # registers known
    launches = [line for line in run.capture.of("kernel") if line[1] in names]
    assert len(launches) > len(names) and all(line[2] > 0 and line[5] > 0 for line in launches)
    # Their bytes are known from their pointers: the model's parameters and activations, not all inputs of the compiled function.
    done = subprocess.run([gpucast_bin, "time", "--format", "json", run.capture_path], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert result["coverage"] == 1.0 and result["unknown_share"] == 0
    kernels = {kernel["kernel"]: kernel for kernel in result["kernels"] if kernel["kernel"].startswith("triton_")}
    assert kernels and all(kernel["known"] and kernel["kind"] in ("elementwise", "reduction", "optimizer") for kernel in kernels.values())
    (adam,) = (kernel for name, kernel in kernels.items() if kernel["kind"] == "optimizer" and kernel["sizes"] != "0.0 MB")
    numbers = 256 * 512 + 512 + 512 * 10 + 10  # each with a gradient and two moments; all but the gradient are written, too
    assert adam["sizes"] == f"{7 * 4 * numbers / 1e6:.1f} MB"
    relu = [kernel for name, kernel in kernels.items() if "relu" in name and "backward" not in name]
    # 64 x 512 numbers read and written in place, a mask of bytes, the bias.
    assert relu and all(kernel["sizes"] == f"{(64 * 512 * (4 + 4 + 1) + 512 * 4) / 1e6:.1f} MB" for kernel in relu), relu


@pytest.mark.slow
def test_compiled_in_place_with_cuda_graphs(gpucast):
    run = compiled_run(
        gpucast,
        """
model.compile(mode="reduce-overhead")
for _ in range(4):
    torch.compiler.cudagraph_mark_step_begin()
    forward_backward(model)
    optimizer.step()
    optimizer.zero_grad()
""",
    )
    assert run.report["steps"] == 4
    assert len([mark for mark in run.capture.marks("phase_begin") if mark[3] == "forward"]) == 4


@pytest.mark.slow
def test_max_autotune_ends(gpucast):
    """It would compile tens of candidates and measure them: minutes, for times that mean nothing here."""
    run = compiled_run(
        gpucast,
        """
compiled = torch.compile(model, mode="max-autotune-no-cudagraphs")
for _ in range(2):
    forward_backward(compiled)
    optimizer.step()
    optimizer.zero_grad()
""",
    )
    assert run.report["steps"] == 2
    assert "autotuning_left_out" in codes(run)


def test_replayed_steps_count(gpucast):
    """A whole step in a CUDA graph of the script's own: capturing it is no step, each replay is one."""
    run = compiled_run(
        gpucast,
        """
optimizer = torch.optim.Adam(model.parameters(), capturable=True)
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    forward_backward(model)
    optimizer.step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad()
with torch.cuda.graph(graph):
    forward_backward(model)
    optimizer.step()
for _ in range(3):
    graph.replay()
""",
        environment=(),  # nothing is compiled
    )
    assert run.report["steps"] == 4


def test_caches_are_our_own(gpucast):
    """What was measured here must not be found by a run on a real card."""
    run = gpucast(
        """
import os, torch
print("cache=" + os.environ["TORCHINDUCTOR_CACHE_DIR"])
torch.zeros(1, device="cuda")
""",
        environment={"TORCHINDUCTOR_CACHE_DIR": "/somewhere"},
    )
    assert re.search(r"^cache=/somewhere/gpucast/inductor-2$", run.err, re.MULTILINE), run.err


@pytest.mark.slow
@pytest.mark.once
def test_compiled_code_gets_known_indices(gpucast, gpucast_bin):
    script = """
table = torch.nn.Embedding(1000, 1024).cuda().requires_grad_(False)
look_up = torch.compile(table)
rows = torch.arange(4096, device="cuda") % 3
for _ in range(3):
    look_up(rows)
    forward_backward(model)
    optimizer.step()
    optimizer.zero_grad()
"""
    run = compiled_run(gpucast, script, "--gpu", "a100-80", "--values", "on")
    words = [gpucast_bin, "time", run.capture_path, "--gpu", "a100-80", "--format", "json"]
    times = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    (kernel,) = (kernel for kernel in times["kernels"] if kernel["name"].startswith("triton_") and "embedding" in kernel["name"])
    assert kernel["known"]
    assert kernel["sizes"] == "16.8 MB"  # 4,096 rows of 4 KiB are written, 3 are read


LOOK_UP = """
import torch
table = torch.nn.Embedding(100_000, 8192).cuda().requires_grad_(False)
look_up = torch.compile(table)
for most in (3, 65536):
    rows = torch.arange(65536, device="cuda") % most
    look_up(rows)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(20):
        look_up(rows)
    end.record()
    torch.cuda.synchronize()
    print(begin.elapsed_time(end))
"""


@pytest.mark.once
@pytest.mark.parametrize("made", [pytest.param(made, marks=pytest.mark.slow) if made == "operators" else made for made in NUMBERS])
def test_code_compiled_under_a_clock_gets_known_indices_and_its_numbers_are_known(gpucast_bin, tmp_path, made):
    """Inductor is first imported when the clock already runs."""
    (tmp_path / "loops.py").write_text(LOOK_UP + NUMBERS[made] + LOOPS)
    words = [gpucast_bin, "run", "--warp", "--gpu", "a100-80", "--", sys.executable, "loops.py"]
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    few, many, loops = map(float, done.stdout.split())
    assert many > 1.4 * few, (few, many)  # each row that is read comes from memory
    assert loops > 10 * 512 * 256 * 4096 / 2.1e12 * 1e3, done.stdout  # the bytes of 256 rounds at 2.1 TB/s
