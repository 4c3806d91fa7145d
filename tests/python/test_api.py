"""The Python API against the command it stands on."""

import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import gpucast
import pytest
from conftest import train_script

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def job(gpucast_bin, tmp_path, monkeypatch):
    """A folder with train.py, and the command under test."""
    monkeypatch.setenv("GPUCAST_BIN", gpucast_bin)
    (tmp_path / "train.py").write_text(train_script())
    return tmp_path


def run(job, *arguments, **options):
    return gpucast.run([sys.executable, "train.py", *arguments], folder=job, **options)


def test_version_is_the_commands(gpucast_bin):
    printed = subprocess.run([gpucast_bin, "--version"], capture_output=True, text=True, check=True).stdout
    assert printed == f"gpucast {gpucast.__version__}\n"


def test_report_and_notebooks_table_are_the_commands(gpucast_bin, job, tmp_path):
    report = run(job, "--name", "<i>&", gpu="rtx3060", steps=2, output=tmp_path / "kept.gpucast")
    analyzed = subprocess.run(
        [gpucast_bin, "analyze", tmp_path / "kept.gpucast", "--format", "json"], capture_output=True, text=True, check=True
    )
    assert report.json == json.loads(analyzed.stdout)
    assert (report.verdict, report.fits, report.gpu, report.steps) == ("fits", True, "rtx3060", 2)
    assert report.peak_reserved_bytes == report.json["peak"]["reserved_bytes"] > report.peak_allocated_bytes > 0
    assert sum(report.categories.values()) == report.peak_allocated_bytes
    assert report.device.low_bytes <= report.device.expected_bytes <= report.device.high_bytes <= report.request_bytes
    assert report.confidence == 0.99
    assert report.peak_allocated_at.step >= 1
    assert pickle.loads(pickle.dumps(report)) == report

    table = report._repr_html_()
    assert f"{report.peak_reserved_bytes / 2**20:,.2f} MiB" in table
    assert "&lt;i&gt;&amp;" in table and "<i>" not in table
    assert "<script" not in table and "<style" not in table
    for name in report.categories:
        assert name.replace("_", " ") in table

    other = gpucast.analyze(tmp_path / "kept.gpucast", gpu="rtx4060")
    assert other.gpu == "rtx4060"
    assert other.peak_reserved_bytes == report.peak_reserved_bytes

    with pytest.raises(gpucast.Error, match="kept.gpucast"):  # nothing is overwritten
        run(job, output=tmp_path / "kept.gpucast")


def test_a_job_that_does_not_fit_is_an_answer(job):
    (job / "train.py").write_text(train_script(at_end="torch.empty(400 << 30, dtype=torch.uint8, device='cuda')"))
    report = run(job, steps=200)
    assert (report.fits, report.verdict) == (False, "does_not_fit")
    assert set(report.cards.values()) == {"does_not_fit"}


def test_what_is_passed_on(job):
    (job / "train.py").write_text("import os\nassert os.environ['SET'] == '1' and 'GONE' not in os.environ\n" + train_script())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GONE", "here")
        report = run(job, environment={"SET": 1, "GONE": None}, what_if=["half-batch"])
    assert [change["name"] for change in report.json["what_if"]] == ["half-batch"]
    assert len(report.cards) > 1
    assert gpucast.run(f"'{sys.executable}' train.py", folder=job, environment={"SET": "1"}, gpu="l4").gpu == "l4"


def test_errors_are_the_commands(job):
    with pytest.raises(gpucast.Error) as caught:
        run(job, gpu="rtx3061")
    assert caught.value.what == "no GPU is named 'rtx3061'"
    assert caught.value.to_do.startswith("did you mean 'rtx3060'?")
    assert str(caught.value).split("\n")[1] == f"  to do: {caught.value.to_do}"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

    (job / "train.py").write_text("print('loading')\nraise ValueError('no data')\n")
    with pytest.raises(gpucast.Error, match="failed .exit code 1. before it imported PyTorch") as caught:
        run(job)
    assert "loading" in caught.value.printed
    assert caught.value.printed.endswith("ValueError: no data")

    (job / "train.py").write_text(train_script(at_end="raise ValueError('no data')"))
    with pytest.raises(gpucast.Error, match="^the script raised ValueError: no data$"):
        run(job, steps=200)
    with pytest.raises(gpucast.Error, match="the command is empty"):
        gpucast.run([])


@pytest.mark.slow
def test_fit_is_the_commands(job):
    (job / "grow.py").write_text(
        "import sys, torch\nx = torch.zeros(int(sys.argv[1].split('=')[1]) << 30, dtype=torch.uint8, device='cuda')\n"
    )
    fit = gpucast.fit([sys.executable, "grow.py"], gpu="rtx3060", vary="gib=--gib:11..12", folder=job)
    (answer,) = fit.answers
    assert (answer.gpu, answer.largest, answer.largest_99, answer.next) == ("rtx3060", 11, 11, 12)
    assert fit.largest == 11 and f"{sys.executable} grow.py --gib=12" in " ".join(answer.runs)
    assert answer.peak_reserved_bytes == 11 << 30
    with pytest.raises(gpucast.Error, match="no GPU is named 'rtx3061'"):
        gpucast.fit([sys.executable, "grow.py"], gpu="rtx3061", folder=job)


def test_where_the_command_is_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUCAST_BIN", str(tmp_path / "gone"))
    with pytest.raises(gpucast.Error, match="GPUCAST_BIN names no program"):
        gpucast.run(["python"])
    monkeypatch.delenv("GPUCAST_BIN")
    on_path = tmp_path / "gpucast"
    on_path.write_text("#!/bin/sh\necho 'gpucast: found on PATH' >&2\nexit 2\n")
    on_path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(gpucast.Error, match="^found on PATH$"):
        gpucast.run(["python"])


def test_the_page_and_the_captures_life(job, tmp_path, leaves_nothing):
    report = run(job)
    assert report.to_html(tmp_path / "train.html").read_text().startswith("<!doctype html>")
    folder = report.capture.parent
    assert folder.exists()
    del report
    gc.collect()
    assert not folder.exists()


def test_an_interrupt_leaves_nothing(job, leaves_nothing):
    """As in a notebook: the signal goes to this Python alone."""
    (job / "train.py").write_text(train_script(steps=1) + "\nopen('trained', 'w').close()\nimport time\ntime.sleep(600)\n")
    # A shell's background jobs ignore the signal, and so would everything below them.
    program = "import signal, sys, gpucast\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "gpucast.run([sys.executable, 'train.py'])\n"
    environment = {**os.environ, "PYTHONPATH": str(Path(gpucast.__file__).parent.parent)}
    notebook = subprocess.Popen([sys.executable, "-c", program], cwd=job, stderr=subprocess.PIPE, text=True, env=environment)
    while not (job / "trained").exists():
        assert notebook.poll() is None
        time.sleep(0.05)
    notebook.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in notebook.communicate(timeout=60)[1]
