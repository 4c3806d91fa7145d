"""The pytest plugin in a repository of its own: marked tests run on the virtual GPU, the others as always."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.once

CONFTEST = """
import pytest

def pytest_addoption(parser):
    parser.addoption("--width", type=int, default=2048)

@pytest.fixture
def net(request):
    import torch
    from torch import nn
    width = request.config.getoption("--width")
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).cuda()

@pytest.fixture(scope="module")
def shared():
    yield "shared"
    raise RuntimeError("the end of the shared fixture")
"""

TESTS = """
import os, pytest

def train(net):
    import torch
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(64, net[0].in_features, device="cuda")).sum().backward()
        optimizer.step()

def test_unmarked(shared):
    assert shared == "shared"

@pytest.mark.gpu_memory(limit="1 GiB")
@pytest.mark.parametrize("name", ["a::b [c/d]"])
def test_fits(net, name, tmp_path):
    (tmp_path / "file").touch()
    train(net)

@pytest.mark.gpu_memory(limit="50 MiB", gpu="a100-80", of="reserved")
@pytest.mark.gpu_step_time(limit="1 us", gpu="h100-80")
def test_over_both(net):
    print("printed by the test")
    train(net)

@pytest.mark.xfail(reason="too large")
@pytest.mark.gpu_memory(limit="10 MiB")
def test_over_as_expected(net):
    train(net)

@pytest.mark.gpu_memory(limit="1 GiB")
class TestBodies:
    def test_fails(self, net):
        assert net[0].in_features == 7, "a wrong width"

    def test_skips(self):
        pytest.skip("not today")

    def test_crashes(self, net):
        os.abort()
"""

WRONG = """
import pytest

@pytest.mark.gpu_memory(limit="20 gigs", gpu="rtx4090")
def test_unit(): pass

@pytest.mark.gpu_memory("1 GiB")
def test_no_card(): pass

@pytest.mark.gpu_memory(limt="1 GiB", gpu="rtx4090")
def test_argument(): pass

@pytest.mark.gpu_step_time(gpu="rtx4090")
def test_no_time(): pass

@pytest.mark.gpu_memory(limit="1 GiB", gpu="rtx4090", of="used")
def test_quantity(): pass
"""


def run_pytest(folder, gpucast_bin, *options):
    path = os.pathsep.join(filter(None, (str(ROOT / "python/api"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "GPUCAST_BIN": gpucast_bin, "PYTHONPATH": path, "COLUMNS": "200"}
    command = [sys.executable, "-m", "pytest", "-p", "gpucast.pytest_plugin", "-rA", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    (folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\ngpucast_gpu = "rtx4090"\naddopts = "--strict-markers --width 1024"\n'
    )
    (folder / "tests").mkdir()
    (folder / "tests/conftest.py").write_text(CONFTEST)
    (folder / "tests/test_net.py").write_text(TESTS)
    return folder


@pytest.fixture(scope="module")
def printed(gpucast_bin, folder):
    """What a session prints, through one worker of xdist."""
    return run_pytest(folder, gpucast_bin, "-n", "1", "--junitxml", "junit.xml", f"--basetemp={folder / 'temporary'}", "tests")


def test_outcomes_are_those_of_the_tests(printed):
    outcomes = set(re.findall(r"^([A-Z]+) \S+?::(?:TestBodies::)?(test_\w+)", printed, re.MULTILINE))
    assert outcomes == {
        ("PASSED", "test_unmarked"),
        ("PASSED", "test_fits"),
        ("FAILED", "test_over_both"),
        ("XFAIL", "test_over_as_expected"),
        ("FAILED", "test_fails"),
        ("FAILED", "test_crashes"),
        ("ERROR", "test_crashes"),  # the fixture of test_unmarked ends after the module's last test
    }, printed
    assert "AssertionError: a wrong width" in printed
    assert re.search(r"^SKIPPED .*not today", printed, re.MULTILINE)
    assert "signal 6" in printed and "in test_crashes" in printed
    assert "the end of the shared fixture" in printed


def test_a_message_says_what_is_above_the_limit_and_where(printed):
    message = printed.partition("_ test_over_both _")[2].partition("Captured stdout")[0]
    assert re.search(r"gpu_memory: \d+\.\d\d MiB peak reserved on a100-80, the limit is 50.00 MiB \(\+\d+\.\d %\)", message)
    assert re.search(r"the peak: optimizer_step, step 1, at tests/test_net.py:\d+ train", message)
    assert "0 (Linear)" in message and "optimizer state" in message and "more: gpucast explain " in message
    assert re.search(r"gpu_step_time: [\d.]+ [um]s a step on h100-80, the limit is 1 us", message)
    assert message.count("\n") < 60
    assert "printed by the test" in printed


def test_the_table_names_each_test_and_card(printed):
    rows = printed.partition("GPU memory, from gpucast")[2].partition("\n===")[0].splitlines()[2:]
    cells = [re.split(r"  +", row) for row in rows]
    assert {(name.rpartition("::")[2], card) for name, card, *_ in cells} == {
        ("b [c/d]]", "rtx4090"),
        ("test_over_both", "a100-80"),
        ("test_over_both", "h100-80"),
        ("test_over_as_expected", "rtx4090"),
    }
    device = [float(row[3].split()[0]) for row in cells]
    assert device == sorted(device, reverse=True)


def test_the_parents_files_are_its_own(printed, folder):
    junit = (folder / "junit.xml").read_text()
    assert junit.count("<testcase ") >= 7
    assert 'name="gpucast.rtx4090.device_bytes"' in junit
    assert list((folder / "temporary").rglob("run.gpucast"))


def test_a_wrong_mark_says_what_to_write(gpucast_bin, tmp_path):
    (tmp_path / "test_wrong.py").write_text(WRONG)
    printed = run_pytest(tmp_path, gpucast_bin)
    for message in (
        "the limit '20 gigs' is no memory",
        "write '20 GiB' or '512 MiB': B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
        "gpu_memory names no card",
        "gpu_memory has no argument limt",
        "gpu_step_time has no limit",
        "of='used' is no quantity of memory",
    ):
        assert message in printed
    assert "5 errors" in printed


def test_without_a_marked_test_nothing_is_loaded(gpucast_bin, tmp_path):
    (tmp_path / "test_plain.py").write_text(
        "import sys\ndef test_plain():\n    assert [name for name in sys.modules if name.startswith('gpucast')] == ['gpucast', 'gpucast.pytest_plugin']\n"
    )
    assert "1 passed" in run_pytest(tmp_path, gpucast_bin)
