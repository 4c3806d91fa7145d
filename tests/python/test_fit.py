"""`gpucast fit`: the largest value that fits, on real runs."""

import json
import shlex
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.once

SCRIPT = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--{option}", type=int, default=64)
parser.add_argument("--unused", type=int, default=64)
parser.add_argument("--config", default="")
args = parser.parse_args()
batch = args.{name}
if args.config:
    batch = int(open(args.config).read().split("batch_size = ")[1].split()[0])
if batch > 3000:
    raise ValueError("at most 3000")
model = nn.Sequential(nn.Linear(4096, 4096, device="cuda"), nn.ReLU(), nn.Linear(4096, 1, device="cuda"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for (x,) in DataLoader(TensorDataset(torch.empty(20000, 1)), batch_size=batch):
    # 4 MiB a sample and more.
    model(x.cuda().expand(-1, 4096).repeat(64, 1)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


class Fits:
    def __init__(self, gpucast_bin, open_batch, folder):
        self.bin, self.batch, self.folder = gpucast_bin, open_batch, folder

    def __call__(self, *options, arguments=(), option="batch-size", code=0):
        (self.folder / "train.py").write_text(SCRIPT.replace("{option}", option).replace("{name}", option.replace("-", "_")))
        command = [
            self.bin,
            "fit",
            "--cache",
            self.folder / "cache",
            "--format",
            "json",
            *options,
            "--",
            sys.executable,
            "train.py",
            *arguments,
        ]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=240)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if code < 2 else done.stderr

    def runs(self, line):
        """Whether this line of an answer runs when the card's limit is enforced."""
        words = shlex.split(line)
        assert words[:2] == ["gpucast", "run"]
        end = words.index("--")
        return self.batch.gpucast(self.folder, words[end + 1 :], "--enforce-capacity", *words[2:end]).code == 0


@pytest.fixture(scope="module")
def fits(gpucast_bin, open_batch, tmp_path_factory):
    return Fits(gpucast_bin, open_batch, tmp_path_factory.mktemp("fit"))


@pytest.fixture(scope="module")
def found(fits):
    return fits("--gpu", "rtx3060,rtx4060")


def test_the_answer_runs_and_the_next_value_does_not(fits, found):
    for answer in found["answers"]:
        lines = {run["values"]["batch"]: run["run"] for run in answer["runs"]}
        largest, following = answer["values"]["batch"], answer["next"]["values"]["batch"]
        assert following == largest + 1
        assert answer["values_99"]["batch"] <= largest
        assert answer["next"]["verdict"] == "does_not_fit"
        assert "--batch-size" in lines[largest]  # the script declares it
        assert fits.runs(lines[largest])
        assert not fits.runs(lines[following])
    assert found["run_count"] <= 28


def test_asked_again_it_runs_nothing(fits, found):
    again = fits("--gpu", "rtx3060,rtx4060")
    assert again["cached_count"] == again["run_count"] == found["run_count"]
    assert [answer["values"] for answer in again["answers"]] == [answer["values"] for answer in found["answers"]]


def test_the_loaders_batch_gives_the_same_answer(fits, found):
    answer = fits("--gpu", "rtx3060", option="samples")["answers"][0]
    assert "--what-if batch:" in answer["runs"][0]["run"]
    assert answer["values"] == found["answers"][0]["values"]


def test_a_settings_file_keeps_everything_else(fits, found):
    text = "# mine\n[train]\nbatch_size = 64  # of one card\n"
    (fits.folder / "c.toml").write_text(text)
    answer = fits("--gpu", "rtx3060", option="samples", arguments=["--config", "c.toml"])["answers"][0]
    assert answer["values"] == found["answers"][0]["values"]
    assert (fits.folder / "c.toml").read_text() == text
    (fits.folder / "c.toml").write_text("[train]\nbatch_size = [64\n[other]\n")
    error = fits("--gpu", "rtx3060", option="samples", arguments=["--config", "c.toml"], code=2)
    assert "c.toml:3:1" in error


def test_what_cannot_be_answered_is_said(fits):
    error = fits("--gpu", "rtx3060", "--vary", "unused=--unused", code=2)
    assert "takes the same memory with --unused" in error
    error = fits("--gpu", "rtx3060", "--vary", "x=--unknown:1..8", code=2)
    assert "unrecognized arguments: --unknown" in error
    nothing = fits("--gpu", "rtx3060", "--vary", "batch=--batch-size:2500..2600", code=1)
    assert nothing["answers"][0]["values"] is None


@pytest.mark.slow
def test_a_limit_that_is_not_memory_is_said(fits):
    everything = fits("--gpu", "rtx3060", "--vary", "batch=--batch-size:1..4")
    assert everything["answers"][0]["values"] == {"batch": 4}
    assert everything["answers"][0]["next"] is None
    fails = fits("--gpu", "a100-80", "--vary", "batch=--batch-size:2900..3100")
    assert fails["answers"][0]["values"] == {"batch": 3000}
    assert fails["answers"][0]["next"]["problem"].endswith("ValueError: at most 3000")


NO_OPTION = """
import torch

batch_size = 8
model = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(batch_size, 512, device="cuda")).sum().backward()
    optimizer.step()
"""


def ask(gpucast_bin, folder, *words):
    command = [gpucast_bin, "fit", "--gpu", "rtx3060", "--cache", folder / "cache", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)


def test_a_number_in_the_source_is_named(gpucast_bin, tmp_path):
    (tmp_path / "train.py").write_text(NO_OPTION)
    done = ask(gpucast_bin, tmp_path, "--", sys.executable, "train.py")
    assert done.returncode == 2
    assert "no batch was found" in done.stderr
    assert "train.py:4: batch_size = 8" in done.stderr


SLOW = NO_OPTION.replace("batch_size = 8", "import sys, time\nbatch_size = int(sys.argv[2])").replace(
    "while True:", "if batch_size > 8:\n    time.sleep(100)\nwhile True:"
)


@pytest.mark.slow
def test_time_is_no_limit_of_the_script(gpucast_bin, tmp_path):
    (tmp_path / "train.py").write_text(SLOW)
    command = ["--", sys.executable, "train.py", "-b", "8"]
    done = ask(gpucast_bin, tmp_path, "--timeout", "30", "--vary", "batch=-b:8..9", "--format", "json", *command)
    assert done.returncode == 0, done.stderr
    (note,) = json.loads(done.stdout)["notes"]
    assert note.startswith("On rtx3060 the limit is time, not memory: with -b 9 the script had taken 0 of 3 optimizer steps after 30 s.")
    done = ask(gpucast_bin, tmp_path, "--timeout", "30", "--vary", "batch=-b:9..9", *command)
    assert done.returncode == 2
    assert "give it more time: --timeout SECONDS" in done.stderr


@pytest.mark.slow
def test_runs_that_want_the_same_port_take_turns(gpucast_bin, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = f"import socket, sys, time\nserver = socket.create_server(('127.0.0.1', {port}))\ntime.sleep(3)\nbatch_size = int(sys.argv[2])"
    (tmp_path / "train.py").write_text(NO_OPTION.replace("batch_size = 8", start))
    done = ask(gpucast_bin, tmp_path, "--vary", "batch=-b:8..9", "--format", "json", "--", sys.executable, "train.py", "-b", "8")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answers"][0]["values"] == {"batch": 9}
