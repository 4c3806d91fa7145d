"""`gpucast occupancy`: from a script to how full a card is."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.LayerNorm(4096), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.zeros(8192, 1024, device="cuda")
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def folder(open_batch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "train.py").write_text(SCRIPT)
    done = open_batch.gpucast(folder, [sys.executable, "train.py"], "--gpu", "a100-80", capture=folder / "train.gpucast")
    assert done.code == 0, done.err
    return folder


def occupancy(gpucast_bin, folder, *words, text=None):
    environment = {**os.environ, "XDG_CONFIG_HOME": "/none", "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(
        [gpucast_bin, "occupancy", *map(str, words)], capture_output=True, text=True, check=False, env=environment, input=text, cwd=folder
    )


def report(gpucast_bin, folder, *words):
    done = occupancy(gpucast_bin, folder, "--format", "json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def torch_folder():
    return next(str(Path(entry) / "torch") for entry in sys.path if (Path(entry) / "torch" / "version.py").exists())


@pytest.mark.once
def test_of_a_step(gpucast_bin, folder):
    result = report(gpucast_bin, folder, "train.gpucast", "--gpu", "a100-80,v100-16,h100-80")
    figures = result["occupancy"]
    assert 0 < figures["min"] <= figures["mean_of_kernels"] <= figures["max"] <= 1
    assert 0 < figures["of_step"] <= figures["time_weighted"] <= 1
    assert 0 < result["sm_active"] <= result["nvml_utilization"] <= 1
    assert result["notes"] == []
    assert abs(sum(result["sources"].values()) - 1) < 1e-9
    # PyTorch's own kernels are all found in its machine code; cuBLAS' are typical ones.
    assert result["sources"]["assumed"] == 0
    assert result["sources"]["wheel"] > 0.02
    assert {part["name"] for part in result["by_phase"]} >= {"forward", "backward", "optimizer_step"}
    for kernel in result["kernels"]:
        assert kernel["registers"] > 0
        assert 0 < kernel["achieved"] <= kernel["theoretical"] <= 1
        assert kernel["source"] == ("typical" if kernel["kernel"].startswith("cublas") else "wheel"), kernel
    assert [card["gpu"] for card in result["cards"]] == ["a100-80", "v100-16", "h100-80"]
    text = occupancy(gpucast_bin, folder, "train.gpucast").stdout
    assert "occupancy on a100-80" in text and "nvidia-smi" in text


@pytest.mark.once
def test_kernels_of_a_wheel_are_read_once(gpucast_bin, folder):
    first = occupancy(gpucast_bin, folder, "--wheel", torch_folder(), "--gpu", "a100-80")
    assert first.returncode == 0, first.stderr
    kernels = [json.loads(line) for line in first.stdout.splitlines()]
    assert len(kernels) > 3000
    softmax = [kernel for kernel in kernels if "softmax_warp_forward<float, float, float, 5" in kernel["name"]]
    assert softmax and all(16 <= kernel["registers"] <= 255 for kernel in softmax)
    again = occupancy(gpucast_bin, folder, "--wheel", torch_folder(), "--gpu", "a100-80")
    assert again.stdout == first.stdout


def test_launches_of_a_file(gpucast_bin, folder):
    # Two of NVIDIA's examples: CUDA C++ Best Practices Guide, "Calculating Occupancy", capability 7.0.
    lines = ['{"blocks": 1000000, "block_threads": 128, "registers": 37}', '{"blocks": 1000000, "block_threads": 320, "registers": 37}']
    done = occupancy(gpucast_bin, folder, "--gpu", "v100-16", "--launches", "-", text="\n".join(lines))
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["blocks_per_sm"], row["theoretical"], row["limit"]) for row in results] == [
        (12, 0.75, "registers"),
        (4, 0.625, "registers"),
    ]
    for line, message in (
        ('{"blocks": 1}', "'blocks', 'block_threads' and 'registers' must be there"),
        ('{"blocks": -1, "block_threads": 32, "registers": 1}', "'blocks' is no whole number"),
        ('{"blocks": 1, "block_threads": 32, "registers": 1, "x": 1}', "a launch has no field 'x'"),
        ('{"blocks": 1, "block_threads": 2048, "registers": 1}', "'block_threads' is no whole number from 0 to 1024"),
        ('{"blocks": 1, "block_threads": 32, "registers": 300}', "'registers' is no whole number from 0 to 255"),
        ('{"blocks": 1, "block_threads": 32, "registers": 1, "static_shared_bytes": 999999}', "this card cannot launch a block"),
        ("[1]", "it is no JSON object"),
        ("{", "it is no JSON ("),
    ):
        bad = occupancy(gpucast_bin, folder, "--launches", "-", text=line)
        assert bad.returncode == 2
        assert message in bad.stderr and "standard input, line 1" in bad.stderr
    for words, message in (
        (["--gpu", "a100-80,v100-16"], "--launches is for one card"),
        (["train.gpucast"], "--launches replaces a step"),
        (["--", sys.executable, "train.py"], "--launches replaces a step"),
        (["--sweep", "batch=1,2"], "--launches replaces a step"),
    ):
        bad = occupancy(gpucast_bin, folder, "--launches", "-", *words, text=lines[0])
        assert bad.returncode == 2 and message in bad.stderr, bad.stderr


def test_what_cannot_be_told_is_said(gpucast_bin, folder, tmp_path):
    def says(*words):
        done = occupancy(gpucast_bin, folder, *words)
        assert done.returncode == 2, (words, done.stdout)
        return done.stderr

    assert "nothing was named" in says()
    assert "there is no such file" in says("none.gpucast")
    assert "there is no PyTorch here" in says("train.gpucast", "--wheel", tmp_path / "none")
    (tmp_path / "lib").mkdir()
    library = tmp_path / "lib" / "libtorch_cuda.so"
    library.write_bytes(b"no library")
    assert "this is no library" in says("train.gpucast", "--wheel", tmp_path)
    # A download that was cut off: the beginning is whole.
    whole = Path(torch_folder()) / "lib" / "libtorch_cuda.so"
    with whole.open("rb") as file:
        library.write_bytes(file.read(1 << 20))
    assert "the library is cut off" in says("train.gpucast", "--wheel", tmp_path)
    # One without GPU code.
    shutil.copy(Path(torch_folder()) / "lib" / "libc10_cuda.so", library)
    assert "has no" in says("train.gpucast", "--wheel", tmp_path)


def test_a_pytorch_that_is_gone_is_a_note(gpucast_bin, folder, tmp_path):
    with gzip.open(folder / "train.gpucast", "rt") as file:
        text = file.read()
    (tmp_path / "moved.gpucast").write_bytes(gzip.compress(text.replace(torch_folder(), "/none/torch").encode()))
    result = report(gpucast_bin, folder, tmp_path / "moved.gpucast")
    assert len(result["notes"]) == 1 and "could not be read" in result["notes"][0]
    assert result["sources"]["wheel"] == 0 and result["sources"]["assumed"] > 0


@pytest.mark.once
def test_a_sweep(gpucast_bin, folder):
    (folder / "sized.py").write_text("import sys\n" + SCRIPT.replace("8192", "int(sys.argv[1])"))
    words = ["--gpu", "rtx3060", "--sweep", "batch=64,8192,90000000,none", "--html", "sweep.html", "--format", "json", "--"]
    done = occupancy(gpucast_bin, folder, *words, sys.executable, "sized.py", "{batch}")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    small, large, huge, none = result["sweep"]
    assert result["knee"] == "8192" and "fastest and the last that fits" in result["knee_reason"]
    assert small["verdict"] == large["verdict"] == "fits" and large["expected_bytes"] > small["expected_bytes"]
    assert large["samples"] == 8192 and large["samples_per_s"] > small["samples_per_s"]
    assert large["sm_active"] > small["sm_active"]
    # Not of the step: how long the card waits for this host in the small one is this host's speed.
    assert large["occupancy"]["mean_of_kernels"] > small["occupancy"]["mean_of_kernels"]
    assert huge["verdict"] == "does_not_fit"
    assert none["verdict"] == "failed" and "ValueError" in none["problem"]
    page = (folder / "sweep.html").read_text()
    assert '<script id="sweep" type="application/json">{"schema_version":1' in page and "<!--gpucast:sweep-->" not in page


def test_sweeps_that_cannot_be(gpucast_bin, folder):
    for words, message in (
        (["--sweep", "batch", "--", "python", "{batch}"], "--sweep is a name and its values"),
        (["--sweep", "batch=1,,2", "--", "python", "{batch}"], "has a value that is empty"),
        (["--sweep", "batch=1,2", "--", "python", "train.py"], "no word of the command has {batch} in it"),
        (["--html", "x.html", "train.gpucast"], "--html draws a sweep"),
        (["--gpu", "a100-80,h100-80", "--sweep", "batch=1,2", "--", "python", "{batch}"], "--sweep is for one card"),
        (["--gpu", "all", "--sweep", "batch=1,2", "--", "python", "{batch}"], "--sweep is for one card"),
    ):
        done = occupancy(gpucast_bin, folder, *words)
        assert done.returncode == 2 and message in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.once
def test_a_page_is_looked_at_before_the_sweep(gpucast_bin, folder, tmp_path):
    page = tmp_path / "sweep.html"
    page.write_text("mine")
    (tmp_path / "run.py").write_text("open('it_ran', 'w')")
    sweep = ["--sweep", "batch=1", "--", sys.executable, "run.py", "{batch}"]
    for words, message in (
        (["--html", "sweep.html"], "the output file exists"),
        (["--html", "none/sweep.html", "--force"], "the output's folder does not exist"),
        (["--html", "."], "--html is a folder"),
        (["--force"], "--force overwrites a page"),
    ):
        done = occupancy(gpucast_bin, tmp_path, *words, *sweep)
        assert done.returncode == 2 and message in done.stderr, done.stderr
        assert not (tmp_path / "it_ran").exists(), "told before the sweep"
        assert page.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.py", "sweep.html"], "no other files are left"
    # A sweep without an answer leaves an older page alone; one with an answer overwrites it.
    assert occupancy(gpucast_bin, tmp_path, "--html", "sweep.html", "--force", *sweep).returncode == 2
    assert page.read_text() == "mine"
    done = occupancy(
        gpucast_bin, folder, "--html", page, "--force", "--sweep", "file=train", "--gpu", "rtx3060", "--", sys.executable, "{file}.py"
    )
    assert done.returncode == 0, done.stderr
    assert "schema_version" in page.read_text()


@pytest.mark.once
@pytest.mark.slow
def test_a_sweep_in_which_nothing_is_timed(gpucast_bin, folder, tmp_path):
    (tmp_path / "early.py").write_text("import sys\nprint(int(sys.argv[1]))\n")
    words = ["--sweep", "batch=abc,d", "--", sys.executable, "early.py", "{batch}"]
    text = occupancy(gpucast_bin, tmp_path, *words)
    assert text.returncode == 2
    assert "no value could be timed" in text.stderr and "Traceback" not in text.stdout
    assert "invalid literal for int() with base 10: 'abc'" in " ".join(text.stdout.split())
    done = occupancy(gpucast_bin, tmp_path, "--format", "json", *words)
    assert done.returncode == 2
    rows = json.loads(done.stdout)["sweep"]
    assert [row["verdict"] for row in rows] == ["failed", "failed"]
    assert rows[1]["problem"].endswith("ValueError: invalid literal for int() with base 10: 'd'"), rows


@pytest.mark.slow
@pytest.mark.once
def test_a_value_that_fails_after_some_steps(gpucast_bin, folder, tmp_path):
    (tmp_path / "late.py").write_text(SCRIPT + "    if step == 1: raise RuntimeError('no more data')\n")
    words = ["--sweep", "x=1", "--gpu", "rtx3060", "--", sys.executable, "late.py", "{x}"]
    done = occupancy(gpucast_bin, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert "RuntimeError: no more data" in done.stdout and "does not fit" not in done.stdout
    assert "  failed" in done.stdout
