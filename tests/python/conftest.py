"""What the end-to-end tests share: running `gpucast` with the Python that runs the tests, and reading capture files.

GPUCAST_BIN=build/release/bin/gpucast ENV/bin/python -m pytest
"""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def gpucast_bin():
    path = os.environ.get("GPUCAST_BIN", str(ROOT / "build/release/bin/gpucast"))
    if not os.access(path, os.X_OK):
        pytest.exit(f"{path} does not exist: build it first, or set GPUCAST_BIN", returncode=2)
    return str(Path(path).resolve())


class Run:
    """One `gpucast run`, done."""

    def __init__(self, done, capture):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.capture_path = capture

    @property
    def report(self):
        return json.loads(self.out)

    @property
    def capture(self):
        return Capture(self.capture_path)

    def printed(self, name):
        """The number that the script printed as `name=NUMBER`."""
        return int(re.search(rf"^{name}=(\d+)$", self.err, re.MULTILINE).group(1))


class Capture:
    """A capture file's records and events."""

    def __init__(self, path):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        self.lines = lines
        self.records = [line for line in lines if isinstance(line, dict)]
        self.events = [line for line in lines if isinstance(line, list)]

    def all(self, record):
        return [line for line in self.records if line["record"] == record]

    def one(self, record):
        (line,) = self.all(record)
        return line

    def of(self, *names):
        return [event for event in self.events if event[0] in names]

    def marks(self, kind):
        """(sequence, allocs, frees, value) of the marks of a kind."""
        return [(mark[1], mark[2], mark[3], mark[6]) for mark in self.of("mark") if mark[5] == kind]

    def tensors(self, kind):
        """{name: storage bytes}"""
        return {tensor[5]: tensor[4] for tensor in self.of("tensor") if tensor[2] == kind}

    def allocator(self):
        """The history without stacks and times: what must not depend on us."""
        names = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap")
        return [event[:4] for event in self.of(*names)]


@pytest.fixture
def gpucast(gpucast_bin, tmp_path):
    """gpucast(script text, options...): writes train.py, runs it, returns a Run. The user's folder is tmp_path/job."""
    job = tmp_path / "job"
    job.mkdir()

    def run(script, *options, command=None, arguments=(), keep=True, timeout=240, environment=None, **kwargs):
        (job / "train.py").write_text(script)
        capture = tmp_path / f"{uuid.uuid4().hex}.gpucast"
        words = [gpucast_bin, "run", "--format", "json", *options, *(["-o", str(capture)] if keep else [])]
        words += ["--", *(command or [sys.executable, "train.py", *arguments])]
        env = {**os.environ, **(environment or {})}
        done = subprocess.run(words, cwd=job, capture_output=True, text=True, timeout=timeout, env=env, stdin=subprocess.DEVNULL, **kwargs)
        return Run(done, capture)

    run.job = job
    return run


def processes_with(marker):
    """PIDs of processes whose environment holds `marker`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if marker.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


@pytest.fixture
def leaves_nothing(monkeypatch, tmp_path):
    """After the test no process that it started lives, and the temporary folder holds no session."""
    marker = f"GPUCAST_TEST={uuid.uuid4().hex}"
    monkeypatch.setenv(*marker.split("="))
    # Short: multiprocessing makes sockets in it, whose paths must be under 108 characters.
    temporary = Path(tempfile.mkdtemp(prefix="leaves-"))
    (tmp_path / "tmp").symlink_to(temporary)
    monkeypatch.setenv("TMPDIR", str(temporary))
    yield temporary
    for _ in range(50):
        left = [pid for pid in processes_with(marker) if pid != os.getpid()]
        if not left:
            break
        time.sleep(0.1)
    assert not left
    assert [path.name for path in temporary.iterdir() if path.is_dir() and path.name.startswith("gpucast-")] == []
    shutil.rmtree(temporary)


@pytest.fixture
def fake_torch(tmp_path, monkeypatch):
    """fake_torch(cuda=...): a package named torch that is found before the real one and must not be executed."""

    def make(version, cuda=None, hip=None):
        folder = tmp_path / "fake" / "torch"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise SystemExit('this torch must not run')\n")
        lines = [f"__version__ = {version!r}", f"cuda: Optional[str] = {cuda!r}", f"hip: Optional[str] = {hip!r}"]
        (folder / "version.py").write_text("from typing import Optional\n" + "\n".join(lines) + "\n")
        monkeypatch.setenv("PYTHONPATH", str(folder.parent))

    return make


# A training script as people write them. `BODY` hooks of the tests go where the comments are.
TRAIN = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)).to("cuda")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(STEPS):
    x = torch.randn(64, 256).to("cuda")
    y = torch.randint(0, 10, (64,)).to("cuda")
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    # AFTER_STEP
# AT_END
"""


def train_script(steps=100, after_step="pass", at_end="pass"):
    indented = after_step.replace("\n", "\n    ")
    return TRAIN.replace("STEPS", str(steps)).replace("# AFTER_STEP", indented).replace("# AT_END", at_end)
