"""The data pipeline: a capture's record of a script's DataLoader, and the results of `gpucast time` from it."""

import gzip
import json
import os
import subprocess
import sys

import pytest

# What each case adds: the data set, how the loader is made, and the loop around it.
SCRIPT = """
import os, sys, threading, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
class Sleeps(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.zeros(64), index % 10
class Stream(IterableDataset):
    def __iter__(self):
        while True:
            time.sleep(0.01)
            yield torch.zeros(64), 1
model = nn.Sequential(nn.Linear(64, 512), nn.Linear(512, 10)).cuda()
large = torch.zeros(3072, 3072, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{setup}
for x, y in {loader}:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
    torch.mm(large, large)  # a few milliseconds of an A100
    optimizer.step()
    optimizer.zero_grad()
"""


SLEEPING = "DataLoader(Sleeps(), batch_size=4)"


def capture_of(gpucast_bin, folder, setup="", loader=SLEEPING, name="train"):
    (folder / f"{name}.py").write_text(SCRIPT.format(setup=setup, loader=loader))
    output = folder / f"{name}.gpucast"
    words = [gpucast_bin, "run", "--gpu", "a100-80", "--force", "-o", output, "--measure-loader"]
    environment = {**os.environ, "GPUCAST_LOADER_S": "1.6"}
    done = subprocess.run(
        [*map(str, words), "--", sys.executable, f"{name}.py"], cwd=folder, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return output


def plain_capture_of(open_batch, folder, setup="", loader=SLEEPING):
    """Without --measure-loader."""
    (folder / "train.py").write_text(SCRIPT.format(setup=setup, loader=loader))
    output = folder / "train.gpucast"
    done = open_batch.gpucast(folder, [sys.executable, "train.py"], "--gpu", "a100-80", "--force", capture=output, measure_host=True)
    assert done.code == 0, done.err
    return output


def record_of(capture, name="loader"):
    with gzip.open(capture, "rt") as file:
        return next(json.loads(line) for line in file if line.startswith(f'{{"record": "{name}"'))


def time_of(gpucast_bin, *words):
    environment = {**os.environ, "XDG_CONFIG_HOME": "/none"}
    done = subprocess.run([str(gpucast_bin), "time", *map(str, words)], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def report(gpucast_bin, *words):
    return json.loads(time_of(gpucast_bin, "--format", "json", *words))


@pytest.fixture(scope="module")
def sleeping(gpucast_bin, tmp_path_factory):
    return capture_of(gpucast_bin, tmp_path_factory.mktemp("loader"))


@pytest.fixture(scope="module")
def plain(open_batch, tmp_path_factory):
    return plain_capture_of(open_batch, tmp_path_factory.mktemp("plain"))


SLEEPS_NS = 4 * 10e6  # of a batch, at least


def undisturbed_ns(run):
    return max(run["period_ns"] - run.get("queue_ns", 0), run["period_ns"] / 4)


@pytest.mark.once
def test_a_sleep_of_known_length(gpucast_bin, sleeping):
    """A batch is four sleeps of 10 ms on any machine, and somewhat more where other programs are at work."""
    record = record_of(sleeping)
    assert [run["workers"] for run in record["measured"]] in ([0, 1], [0, 1, 2])
    assert record["kind"] == "dataloader"
    assert (record["workers"], record["batch_size"], record["dataset"]) == (0, 4, "Sleeps")
    assert len(record["next"]) == 3
    assert record["epoch_batches"] == 1000
    measured = {run["workers"]: run for run in record["measured"]}
    assert set(measured) >= {0, 1}
    for run in measured.values():
        assert SLEEPS_NS <= 1.02 * run["period_ns"] * max(1, run["workers"]) < 2 * SLEEPS_NS
        assert run["cpu_ns"] < 0.5 * run["period_ns"] * max(1, run["workers"])
    result = report(gpucast_bin, sleeping, "--workers", "0,1,2,4,8")
    steps = {choice["workers"]: choice["step"]["expected_ns"] for choice in result["loader"]["choices"]}
    assert result["bound"] == "loader"
    assert 0.97 < steps[0] / undisturbed_ns(measured[0]) < 1.3, "the batch, and the rest of the step"
    # Sleeping workers need no core: eight of them are about eight times as fast as one.
    assert 5 < undisturbed_ns(measured[1]) / steps[8] < 9
    assert steps[1] > steps[2] > steps[4] > steps[8]
    assert result["step"]["expected_ns"] == steps[0]
    assert result["epoch"] == {"steps": 1000, "ns": 1000 * steps[0]}
    assert result["loader"]["waits_share"] > 0.8
    assert result["loader"]["now"]["wait_share"] > 0.8
    assert result["loader"]["step_without"]["expected_ns"] < 10e6


def test_the_text_gives_advice_in_numbers(gpucast_bin, sleeping):
    text = time_of(gpucast_bin, sleeping, "--gpu", "a100-80,p4")
    assert "loader-bound: a batch comes every" in text
    assert "DataLoader of Sleeps: batches of 4, 0 workers" in text
    assert "busy on this CPU; with your 0 it waits" in text
    enough = report(gpucast_bin, sleeping)["loader"]["enough_workers"]
    assert f"{enough} workers keep a100-80 busy" in text
    again = report(gpucast_bin, sleeping, "--workers", enough)
    assert again["bound"] != "loader"
    assert again["loader"]["now"]["wait_share"] < 0.5, "the rest is the cost of fetching a batch in a step of a millisecond"
    assert again["loader"]["workers"] == enough


@pytest.mark.once
def test_a_disk_is_added_to_what_memory_gave(gpucast_bin, tmp_path):
    files = "import pathlib\nfor i in range(200): pathlib.Path(f'{i}.bin').write_bytes(bytes(100_000))\n"
    reads = "class Files(Dataset):\n    def __len__(self):\n        return 200\n    def __getitem__(self, i):\n"
    reads += "        return torch.frombuffer(bytearray(open(f'{i}.bin', 'rb').read()), dtype=torch.uint8)[:64].float(), 1\n"
    capture = capture_of(gpucast_bin, tmp_path, files + reads, "DataLoader(Files(), batch_size=10, num_workers=1)")
    result = report(gpucast_bin, capture, "--storage", "10MB/s", "--workers", "0,1,4")["loader"]
    assert result["read"]["bytes"] == pytest.approx(1e6, rel=0.03)
    assert result["read"]["files"] == pytest.approx(10, rel=0.05)
    assert result["storage"]["ns"] == pytest.approx(100e6, rel=0.03)
    by_workers = {choice["workers"]: choice for choice in result["choices"]}
    assert by_workers[0]["step"]["expected_ns"] > 99e6
    assert by_workers[4]["batch"]["expected_ns"] == pytest.approx(100e6, rel=0.04), "they share one disk"
    assert by_workers[4]["limit"] == "storage"
    warm = report(gpucast_bin, capture)["loader"]
    assert warm["batch_ns"] < 50e6
    if warm["read"]["cached_share"] > 0.5:
        assert any("--storage" in note for note in warm["notes"])


@pytest.mark.once
@pytest.mark.parametrize(
    ("setup", "loader", "said"),
    [
        ("", "DataLoader(Stream(), batch_size=4)", ""),
        pytest.param("", "DataLoader(Stream(), batch_size=4, num_workers=1)", "", marks=pytest.mark.slow),
        (
            "from torch.utils.data import BatchSampler, RandomSampler\nd = Sleeps()",
            "DataLoader(d, batch_sampler=BatchSampler(RandomSampler(d), 4, True))",
            "",
        ),
        (
            "class Raises(Sleeps):\n    taken = 0\n    def __getitem__(self, i):\n        Raises.taken += 1\n"
            "        if Raises.taken > 13:\n            raise ValueError('a bad file')\n        return super().__getitem__(i)\n",
            "DataLoader(Raises(), batch_size=4)",
            "raised ValueError: a bad file",
        ),
        pytest.param(
            "class Locks(Sleeps):\n    lock = threading.Lock()\n    taken = 0\n    def __getitem__(self, i):\n        Locks.taken += 1\n"
            "        if Locks.taken == 13:\n            self.lock.acquire()\n        with self.lock:\n            return super().__getitem__(i)\n",
            "DataLoader(Locks(), batch_size=4)",
            "ended after",
            marks=pytest.mark.slow,
        ),
        (
            "import ctypes, os\nclass Crashes(Sleeps):\n    own = os.getpid()\n    def __getitem__(self, i):\n"
            "        if os.getpid() != Crashes.own:\n            ctypes.string_at(0)\n        return super().__getitem__(i)\n",
            "DataLoader(Crashes(), batch_size=4)",
            "ended after",
        ),
        ("d = DataLoader(Sleeps(), batch_size=4, num_workers=2, persistent_workers=True, pin_memory=True)", "d", ""),
    ],
    ids=["stream", "stream-1", "batch-sampler", "raises", "locks", "crashes", "persistent"],
)
def test_loaders_of_all_kinds(gpucast_bin, tmp_path, setup, loader, said):
    record = record_of(capture_of(gpucast_bin, tmp_path, setup, loader))
    assert record["kind"] == "dataloader"
    if said:
        assert said in " ".join(record["said"])
    else:
        assert record["said"] == []
        for run in record["measured"]:
            assert SLEEPS_NS <= 1.02 * run["period_ns"] * max(1, run["workers"]) < 2 * SLEEPS_NS


@pytest.mark.once
def test_a_measurement_may_take_the_last_batch(gpucast_bin, tmp_path):
    setup = "class Quick(Dataset):\n    def __len__(self):\n        return 2000\n    def __getitem__(self, i):\n        return torch.zeros(64), 1\n"
    record = record_of(capture_of(gpucast_bin, tmp_path, setup, "DataLoader(Quick(), batch_size=1)"))
    assert record["said"] == []
    assert [run["workers"] for run in record["measured"]] == [0, 1, 2]


@pytest.mark.once
def test_scripts_without_a_loader_say_so(gpucast_bin, tmp_path):
    data = "[(torch.zeros(4, 64), torch.zeros(4, dtype=torch.long))] * 5"
    capture = capture_of(gpucast_bin, tmp_path, loader=data)
    assert record_of(capture) == {"record": "loader", "kind": "none"}
    result = report(gpucast_bin, capture)
    assert result["loader"]["kind"] == "none"
    assert result["bound"] in ("gpu", "host")
    assert "no batch from a torch.utils.data.DataLoader" in time_of(gpucast_bin, capture)
    dali = "import types\nsys.modules['nvidia.dali'] = types.ModuleType('dali')\n"
    assert record_of(capture_of(gpucast_bin, tmp_path, dali, data, name="dali"))["kind"] == "dali"


@pytest.mark.once
def test_a_plain_run_measures_nothing(gpucast_bin, sleeping, plain):
    record = record_of(plain)
    assert "measured" not in record
    assert all(SLEEPS_NS / 1e3 <= wall < 2 * SLEEPS_NS / 1e3 for _, wall, *_ in record["next"])
    # What its loop shows is as good, but less certain of workers.
    loop, measured = report(gpucast_bin, plain, "--workers", "0,4"), report(gpucast_bin, sleeping, "--workers", "0,4")
    assert loop["loader"]["source"] == "loop"
    assert loop["step"]["expected_ns"] == pytest.approx(measured["step"]["expected_ns"], rel=0.3)
    width = [one["loader"]["choices"][1]["batch"]["high_ns"] / one["loader"]["choices"][1]["batch"]["low_ns"] for one in (loop, measured)]
    assert width[0] > width[1]


@pytest.mark.once
def test_measuring_leaves_the_history_alone(sleeping, plain):
    def events(capture):
        with gzip.open(capture, "rt") as file:
            return [json.loads(line)[:5] for line in file if line.startswith(('["alloc"', '["free', '["segment'))]

    assert events(plain) == events(sleeping)


@pytest.mark.once
def test_bad_options(gpucast_bin, sleeping):
    for words, expected in (
        (["--workers", "x"], "number of workers"),
        (["--storage", "floppy"], "nvme, ssd, hdd, nfs"),
        (["--workers", "1,,2"], ""),
    ):
        done = subprocess.run([str(gpucast_bin), "time", str(sleeping), *words], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert expected in done.stderr


@pytest.mark.once
def test_hooks_in_a_batch_are_not_taken_off_the_step(open_batch, tmp_path):
    """Without workers a dataset's modules run in the training process, and our hooks with them. The time of the whole batch is known."""
    setup = """
class Modules(Sleeps):
    many = nn.Sequential(*(nn.Identity() for _ in range(400)))
    def __getitem__(self, index):
        return Modules.many(torch.zeros(64)), index % 10
"""
    capture = plain_capture_of(open_batch, tmp_path, setup, "DataLoader(Modules(), batch_size=4)")
    hooks_us = record_of(capture, "operators")["hooks_us"]  # a step, their time until its end, the next step ...
    steps = dict(zip(hooks_us[::2], hooks_us[1::2], strict=True))
    batches_us = [wall_us for _, wall_us, *_ in record_of(capture)["next"]]
    assert max(steps[step] - steps[step - 1] for step in steps if step - 1 in steps) < min(batches_us) / 2
