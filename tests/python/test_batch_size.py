"""Batch sizes found in advance: the search, and a decorated function in a script of its own."""

import importlib
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpucast.batch_size import find_executable_batch_size, largest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.once

SCRIPT = """
from gpucast import find_executable_batch_size

@find_executable_batch_size(starting_batch_size=64, gpu="rtx3060")
def train(batch_size, mib):
    print("called with", batch_size, mib)
    import torch
    torch.zeros(batch_size * mib, 1 << 20, dtype=torch.uint8, device="cuda")

try:
    train(200)
except (ImportError, RuntimeError, AssertionError):  # the test's machine has no GPU
    pass
"""


def test_the_search_finds_the_border():
    random.seed(0)
    for _ in range(500):
        sizes = range(1, random.choice([1, 2, 10, 128, 8192]) + 1)
        fixed, each, granularity = random.uniform(0, 20), random.uniform(0.001, 3), random.choice([0.01, 2])
        needs = {size: round((fixed + each * size) / granularity) * granularity for size in sizes}
        asked = []

        def bytes_of(size, needs=needs, asked=asked):
            asked.append(size)
            return needs[size]

        capacity = random.uniform(1, 80)
        fitting = [size for size in sizes if needs[size] <= capacity]
        assert largest(sizes, random.choice([0, len(sizes) - 1]), bytes_of, capacity) == (fitting[-1] if fitting else None)
        assert len(asked) == len(set(asked)) <= 20


def test_a_function_begins_with_the_size_that_fits(gpucast_bin, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "GPUCAST_BIN": gpucast_bin, "PYTHONPATH": str(ROOT / "python/api")}
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "called with 57 200\n", done.stderr  # of 64 57 51 45 ...
    assert "gpucast: batch size 64: 12." in done.stderr and "does not fit rtx3060" in done.stderr
    assert "gpucast: batch size 57 is the first that fits rtx3060" in done.stderr


def test_without_an_answer_the_sizes_are_tried_as_always(capsys, monkeypatch):
    monkeypatch.delenv("GPUCAST_GPU", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    called = []

    @find_executable_batch_size(starting_batch_size=10)
    def train(batch_size):
        called.append(batch_size)
        if batch_size > 8:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return batch_size

    assert train() == 8
    assert called == [10, 9, 8]
    assert "this machine has no GPU, and no card is named" in capsys.readouterr().err
    with pytest.raises(TypeError, match="call it without, as train"):
        train(32)


def test_other_errors_are_the_functions():
    @find_executable_batch_size(starting_batch_size=10)
    def train(batch_size):
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        train()


@pytest.fixture
def finder_module(monkeypatch):
    """gpucast.lightning with as much of Lightning as it uses."""
    parsing = SimpleNamespace(lightning_hasattr=hasattr, lightning_setattr=setattr)
    modules = {"lightning": SimpleNamespace(), "lightning.pytorch": SimpleNamespace(Callback=object)}
    for name, module in {**modules, "lightning.pytorch.utilities.parsing": parsing}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "gpucast.lightning", raising=False)
    return importlib.import_module("gpucast.lightning")


def test_lightnings_finder_sets_the_size_before_the_fit(finder_module, monkeypatch, tmp_path):
    trainer = SimpleNamespace(fast_dev_run=False, datamodule=None)
    model = SimpleNamespace(batch_size=4, train_dataloader=lambda: SimpleNamespace(dataset=range(500)))
    monkeypatch.setattr(finder_module.Search, "capacity_bytes", 1000)
    for bytes_of_one, size in ((10, 100), (5, 200), (1, 496), (2.9, 344)):  # 500 items of data
        monkeypatch.setattr(finder_module.Search, "bytes_of", lambda _, size, each=bytes_of_one: each * size)
        finder = finder_module.BatchSizeFinder(gpu="rtx3060")
        finder.on_fit_start(trainer, model)
        assert model.batch_size == finder.optimal_batch_size == size
    (tmp_path / "size.json").write_text('{"name": "gpucast.lightning.BatchSizeFinder", "size": 7}')
    monkeypatch.setenv("GPUCAST_BATCH_SIZE_FILE", str(tmp_path / "size.json"))  # as a child has it
    finder.on_fit_start(trainer, model)
    assert model.batch_size == 7
