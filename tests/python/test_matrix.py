"""Predictions from a CPU profile equal the virtual GPU's measurements: small cases of eval/matrix from end to end."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# Looked for, not imported: PyTorch's CUDA build cannot be imported where NVIDIA's libraries are absent.
pytestmark = pytest.mark.skipif(not find_spec("torchvision"), reason="needs torchvision")

TRAIN = Path(__file__).resolve().parent.parent.parent / "eval/matrix/train.py"
STEPS = "3"

CNNS = [
    ("resnet18", 32, "Adam", "start"),
    ("mobilenet_v3_small", 64, "AdamW", "before_backward"),
    ("convnext_tiny", 4, "SGD", "after_step"),
]
TRANSFORMERS = [("gpt2", 2, "AdamW", "start"), ("t5-small", 4, "SGD", "after_step"), ("opt-125m", 2, "Adam", "before_backward")]
RESNET = CNNS[0]


class Matrix:
    """Truth and trace of a case, by the commands that users type. Tests that ask for the same case share them."""

    def __init__(self, gpucast_bin, open_batch, folder):
        self.bin, self.batch, self.folder, self.made = gpucast_bin, open_batch, folder, {}

    def call(self, *words):
        done = subprocess.run(list(map(str, words)), cwd=self.folder, capture_output=True, text=True, timeout=240)
        assert done.returncode in (0, 1), done.stderr[-3000:]
        return done.stdout

    def truth(self, *script):
        if ("truth", *script) not in self.made:
            done = self.batch.gpucast(self.folder, [*script, "--device", "cuda"], "--gpu", "rtx3060", "--steps", STEPS)
            assert done.code in (0, 1), done.err[-3000:]
            self.made[("truth", *script)] = done.report
        return self.made[("truth", *script)]

    def profile(self, *script):
        if ("profile", *script) not in self.made:
            trace = self.folder / f"{len(self.made)}.json.gz"
            self.call(self.bin, "profile", "--steps", STEPS, "-o", trace, "--", *script, "--device", "cuda")
            self.made[("profile", *script)] = trace
        return self.made[("profile", *script)]

    def analyze(self, trace, *options):
        return json.loads(self.call(self.bin, "analyze", trace, "--gpu", "rtx3060", "--format", "json", *options))


@pytest.fixture(scope="module")
def matrix(gpucast_bin, open_batch, tmp_path_factory):
    return Matrix(gpucast_bin, open_batch, tmp_path_factory.mktemp("matrix"))


def script_of(model, batch, optimizer, zero_grad, *more):
    return [sys.executable, TRAIN, "--model", model, "--batch", batch, "--optimizer", optimizer, "--zero-grad", zero_grad, *more]


def error(predicted, truth, field="reserved_bytes"):
    return abs(predicted["peak"][field] - truth["peak"][field]) / truth["peak"][field]


def check(matrix, script):
    truth, predicted = matrix.truth(*script), matrix.analyze(matrix.profile(*script))
    assert predicted["source"] == "cpu_profile"
    assert predicted["steps"] == truth["steps"] == int(STEPS)
    assert error(predicted, truth) <= 0.02
    assert error(predicted, truth, "allocated_bytes") <= 0.02


@pytest.mark.once
@pytest.mark.parametrize(
    "case", [CNNS[0], *(pytest.param(case, marks=pytest.mark.slow) for case in CNNS[1:])], ids=lambda case: "-".join(map(str, case))
)
def test_cnn(matrix, case):
    check(matrix, script_of(*case))


@pytest.mark.once
@pytest.mark.parametrize(
    "case",
    [TRANSFORMERS[0], *(pytest.param(case, marks=pytest.mark.slow) for case in TRANSFORMERS[1:])],
    ids=lambda case: "-".join(map(str, case)),
)
def test_transformer(matrix, case):
    if not find_spec("transformers"):
        pytest.skip("needs transformers")
    check(matrix, script_of(*case, "--layers", "2", "--seq", "128"))


@pytest.mark.slow
def test_trace_of_the_loop_only(matrix):
    # As PyTorch's tutorials make them: the profiler begins when the model is on its device.
    script = script_of(*RESNET)
    trace = matrix.folder / "loop.json.gz"
    # Under `gpucast run` only because PyTorch's CUDA build needs CUDA libraries to be imported; the loop runs on the CPU.
    words = [matrix.bin, "run", "--steps", "100", "--", *script, "--device", "cpu", "--iterations", STEPS, "--trace", trace]
    done = subprocess.run(list(map(str, words)), cwd=matrix.folder, capture_output=True, text=True, timeout=240)
    assert trace.exists(), done.stderr[-3000:]
    assert error(matrix.analyze(trace), matrix.truth(*script)) <= 0.05


@pytest.mark.once
@pytest.mark.slow
def test_rescaled_batch(matrix):
    model, batch, optimizer, zero_grad = RESNET
    trace = matrix.profile(*script_of(model, batch // 4, optimizer, zero_grad))
    assert error(matrix.analyze(trace, "--batch", batch), matrix.truth(*script_of(*RESNET))) <= 0.05


@pytest.mark.once
def test_ours_is_nearer_than_the_papers_methods(matrix):
    script = script_of(*RESNET)
    truth, trace = matrix.truth(*script), matrix.profile(*script)
    ours = error(matrix.analyze(trace), truth)
    for method in ("xmem", "veritasest", "dnnmem"):
        assert ours <= error(matrix.analyze(trace, "--method", method), truth), method
