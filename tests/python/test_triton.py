"""Kernels that PyTorch has Triton compile while the script runs: torch.compile, and on newer releases some eager operators."""

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


def test_compiled_model(gpucast, leaves_nothing):
    """On a cold cache: a C compiler, Triton and ptxas run, partly in worker processes that use the GPU and live on."""
    compiled = "optimizer = torch.optim.Adam(model.parameters())\ncompiled = torch.compile(model)\n"
    script = train_script().replace("for step in", compiled + "for step in").replace("cross_entropy(model(x)", "cross_entropy(compiled(x)")
    run = gpucast(CACHES + script, "--gpu", "rtx3060", environment={"TORCHINDUCTOR_COMPILE_THREADS": "2"}, timeout=200)
    assert run.code == 0, run.err
    assert run.report["steps"] == 3 and run.report["verdict"] == "fits"
    assert any((gpucast.job / "cache").rglob("*.cubin"))
