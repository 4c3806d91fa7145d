"""eval/ is a package: each of its commands runs by its name from the repository's root, and none looks for the others on sys.path."""

import ast
import subprocess
import sys

import pytest
from conftest import ROOT

pytestmark = pytest.mark.once

# Run under gpucast or on another machine, by their path: they import PyTorch, and nothing of this package.
SCRIPTS = (
    "advise/scripts/",
    "cards/train.py",
    "clock/rank_scripts/",
    "clock/read_trace.py",
    "clock/scripts/",
    "clock/sweeps/",
    "kernels/measure_counters.py",
    "kernels/programs/",
    "liger/measure_kernels.py",
    "liger/measure_scripts.py",
    "liger/run_script.py",
    "loader/pipelines.py",
    "matrix/train.py",
    "matrix/train_small.py",
    "memory/xmem_workload.py",
    "model/scripts/",
    "occupancy/dnn_occu/infer.py",
    "occupancy/random_net.py",
    "occupancy/resnet50_cifar.py",
    "operations/random_products.py",
    "packing/gavel_jobs/gavel_models.py",
    "packing/gavel_jobs/train.py",
    "papers/limited.py",
    "ranks/scripts/",
    "steps/models/",
    "truth/measure_kernels_time.py",
    "truth/measure_on_gpu.py",
    "truth/measure_operators.py",
    "truth/measure_training.py",
    "truth/training_job.py",
    "tutorials/compile_product.py",
    "values/scripts/",
)
# Run under gpucast as modules, for what they share with others.
JOBS = ("eval.memory.train_cudnn", "eval.papers.model_statistics", "eval.power.zeus_job", "eval.thesis.train")

HELP = """
import contextlib, io, runpy, sys
for name in sys.argv[1:]:
    sys.argv = [name, "--help"]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_module(name, run_name="__main__")
    except SystemExit as end:
        if not end.code and said.getvalue().startswith("usage:"):
            continue
    print(name)
"""


def is_script(path):
    return any(path.relative_to(ROOT / "eval").as_posix().startswith(script) for script in SCRIPTS)


def modules():
    return {path: ast.parse(path.read_text()) for path in sorted((ROOT / "eval").rglob("*.py"))}


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def test_commands_print_their_help():
    """In one Python for all of them, without CUDA: packages other than numpy are imported on use."""
    names = [name_of(path) for path in modules() if not is_script(path) and '\nif __name__ == "__main__":' in path.read_text()]
    commands = sorted(set(names) - set(JOBS))
    assert len(commands) > 30 and set(JOBS) < set(names)
    done = subprocess.run([sys.executable, "-c", HELP, *commands], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


def test_nothing_looks_on_sys_path():
    for path in modules():
        if path.name != "limited.py":  # it starts another script, as Python would
            assert "sys.path" not in path.read_text(), path


def test_scripts_stand_alone():
    for path, tree in modules().items():
        packages = {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
        assert not is_script(path) or "eval" not in packages, path
