"""`gpucast doctor`: reports the installation, and what to do if something is wrong."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def doctor(gpucast_bin, *words):
    return subprocess.run([gpucast_bin, "doctor", *words], capture_output=True, text=True, timeout=120)


@pytest.mark.once
def test_usable(gpucast_bin):
    done = doctor(gpucast_bin, "--python", sys.executable, "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    found = report["found"]
    assert report["usable"] is True and report["problems"] == []
    version = subprocess.run(
        [sys.executable, "-c", "from importlib.metadata import version; print(version('torch'))"], capture_output=True, text=True
    )
    assert found["torch"].startswith(version.stdout.strip())
    assert found["gpu"]["name"] == "NVIDIA A100-SXM4-80GB"
    assert {"vgpu_cudart.so", "vgpu_cudnn.so", "libgpucast_vgpu_core.so"} <= set(found["libraries"]["ours"])
    assert found["libraries"]["nvidia"] == []
    assert found["small_job"]["allocated_bytes"] >= 3 * 4 * 2**20


@pytest.mark.once
def test_text(gpucast_bin):
    done = doctor(gpucast_bin, "--python", sys.executable)
    assert done.returncode == 0
    for word in ("python", "torch", "CUDA", "NVIDIA wheels", "libraries", "GPU seen", "small job", "Usable."):
        assert word in done.stdout


@pytest.mark.once
def test_cpu_only(gpucast_bin, fake_torch, tmp_path):
    fake_torch("2.14.1+cpu")
    (tmp_path / "fake/torch/__init__.py").write_text("from . import version\n__version__ = version.__version__\n")
    done = doctor(gpucast_bin, "--python", sys.executable)
    assert done.returncode == 2
    assert "CPU-only build" in done.stdout and "torch==2.14.1" in done.stdout


@pytest.mark.once
def test_no_torch(gpucast_bin, tmp_path):
    python = tmp_path / "python-without-torch"
    python.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c \"import runpy, sys; sys.path[:] = [p for p in sys.path if '-packages' not in p]; runpy.run_path('$1', run_name='__main__')\"\n"
    )
    python.chmod(0o755)
    done = doctor(gpucast_bin, "--python", str(python))
    assert done.returncode == 2
    assert "PyTorch is not installed" in done.stdout


@pytest.mark.once
def test_hooks_not_loaded(gpucast_bin, tmp_path):
    python = tmp_path / "isolated-python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I "$@"\n')
    python.chmod(0o755)
    done = doctor(gpucast_bin, "--python", str(python))
    assert done.returncode == 2
    assert "hooks did not load" in done.stdout or "PyTorch cannot be used" in done.stdout


@pytest.mark.once
def test_no_such_python(gpucast_bin):
    done = doctor(gpucast_bin, "--python", "pyhton3")
    assert done.returncode == 2 and "did you mean 'python3'?" in done.stderr


@pytest.mark.once
def test_not_a_python(gpucast_bin):
    done = doctor(gpucast_bin, "--python", "false")
    assert done.returncode == 2
    assert "ended before the check was done" in done.stdout
