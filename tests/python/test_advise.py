"""`gpucast advise`: what it answers was run, and is what a person would get."""

import json
import shlex
import subprocess
import sys

import pytest
from test_run_what_if import edited

pytestmark = pytest.mark.once

# 16 GiB with its batch of 64 sequences.
SEQUENCES = edited(
    [("torch.zeros(4 * batch, 64)", "torch.zeros(4 * batch, 2048, 64)"), ("model(x)", "model(x).mean(1)"), ("default=1024", "default=64")]
)


@pytest.fixture(scope="module")
def advise(gpucast_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("advise")
    (folder / "train.py").write_text(SEQUENCES)

    def run(*words, command=(sys.executable, "train.py")):
        done = subprocess.run([gpucast_bin, "advise", *words, "--", *command], cwd=folder, capture_output=True, text=True, timeout=240)
        return done, json.loads(done.stdout) if done.stdout.startswith("{") else None

    run.folder = folder
    return run


def test_fastest_that_fits_and_the_front(advise, gpucast_bin):
    done, advice = advise("--gpu", "rtx3060", "--seconds", "0", "--runs", "12", "--format", "json")
    assert done.returncode == 0, done.stderr
    points = advice["points"]
    assert points[0]["what_ifs"] == [] and points[0]["verdict"] == "does_not_fit"
    best = points[advice["best"]]
    assert best["verdict"] == "fits" and not best["changes_mathematics"]
    assert all(best["step_ns"] < 1.02 * point["step_ns"] for point in points if point["verdict"] == "fits")
    assert best["samples_per_s"] == pytest.approx(64e9 / best["step_ns"], rel=1e-6)
    for point in points:
        beaten = [
            other
            for other in points
            if other["device_expected_bytes"] <= point["device_expected_bytes"]
            and other["step_ns"] <= point["step_ns"]
            and (other["device_expected_bytes"], other["step_ns"]) != (point["device_expected_bytes"], point["step_ns"])
        ]
        assert point["on_front"] == (not beaten)
    why = {entry["what"]: entry["why"] for entry in advice["left_out"]}
    assert why["bf16"] == "it changes the mathematics; to try it: --allow bf16"

    again = [gpucast_bin, "run", "--format", "json", *shlex.split(best["run"])[2:]]
    report = json.loads(subprocess.run(again, cwd=advise.folder, capture_output=True, text=True, timeout=240).stdout)
    assert report["peak"]["reserved_bytes"] == best["peak_reserved_bytes"]
    assert report["device"]["expected_bytes"] == best["device_expected_bytes"]


def test_nothing_fits_and_what_would_be_smallest(advise):
    done, _ = advise("--gpu", "rtx3060", "--runs", "1", command=(sys.executable, "train.py", "--batch-size", "256"))
    assert done.returncode == 1, done.stderr
    assert "Nothing that was tried fits." in done.stdout
    assert "more than the card has" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpu", "rtx3060", "--allow", "bf-16"], "did you mean bf16?"),
        (["--gpu", "rtx3060", "--allow", "fused"], "'fused' is no change that advise tries only if asked"),
        ([], "advise needs a card"),
    ],
)
def test_wrong_words(advise, words, said):
    done, _ = advise(*words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_script_that_fails(advise):
    done, _ = advise("--gpu", "rtx3060", command=(sys.executable, "train.py", "--no-such-option"))
    assert done.returncode == 2
    assert "the script as it is cannot be run" in done.stderr
