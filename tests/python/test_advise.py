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


def test_fastest_that_fits_and_the_front(advise, open_batch):
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

    words = shlex.split(best["run"])
    end = words.index("--")
    assert words[:2] == ["gpucast", "run"]
    report = open_batch.gpucast(advise.folder, words[end + 1 :], *words[2:end]).report
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


# Whole it needs 18 GiB, sharded over two cards half of that.
REPLICATED = """
import os, torch
import torch.distributed as dist
from torch import nn

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
with torch.device("cuda"):
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 16384), nn.ReLU(), nn.Linear(16384, 4096)) for _ in range(5)))
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.ones(1, 4096, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
def test_sharding_is_a_choice_of_several_cards(advise):
    (advise.folder / "replicated.py").write_text(REPLICATED)
    ranks = ("--world-size", "2", "--ranks", "0,1")
    words = ("--gpu", "rtx3060", "--seconds", "0", "--runs", "2", *ranks, "--write-patch", "out.patch")
    done, _ = advise(*words, command=(sys.executable, "replicated.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "on 2 x rtx3060" in said and "2 ranks, 2 of them captured:" in said and "on the card of rank" in said
    assert (
        "torch.distributed.fsdp.fully_shard(block) for each block, then fully_shard(model)" in said and "(5 Sequential, Sequential)" in said
    )
    assert "gpucast run --gpu rtx3060 --world-size 2 --ranks 0,1 --what-if fsdp" in said
    assert "No patch: no line of the script is changed with certainty." in said and "by hand: fsdp:" in said
    done, advice = advise("--gpu", "rtx3060", "--runs", "2", *ranks, "--format", "json", command=(sys.executable, "replicated.py"))
    best = advice["points"][advice["best"]]
    assert advice["ranks"] == advice["captured"] == 2 and "fsdp" in best["what_ifs"] and not best["changes_mathematics"]
    assert best["samples_per_s"] == pytest.approx(2e9 / best["step_ns"], rel=1e-6)
