"""What the end-to-end tests share: running `gpucast` with the Python that runs the tests, and reading capture files.

GPUCAST_BIN=build/release/bin/gpucast ENV/bin/python -m pytest
"""

import gzip
import json
import os
import re
import select
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

    def __init__(self, code, out, err, capture):
        self.code, self.out, self.err = code, out, err
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
        """The history without stacks and times: the part that must not depend on us."""
        names = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap")
        return [event[:4] for event in self.of(*names)]


class OpenBatch:
    """One `gpucast batch -` for all tests of a worker: PyTorch is imported once, not for each run."""

    # Options of `gpucast run` as keys of a job: with a value of this type, or (None) without.
    OPTIONS = {
        "--gpu": ("gpu", str),
        "--steps": ("steps", str),
        "--gpus": ("gpus", int),
        "--world-size": ("world_size", int),
        "--ranks": ("ranks", str),
        "--cudnn": ("cudnn", str),
        "--enforce-capacity": ("enforce_capacity", None),
        "--force": ("force", None),
    }

    opened = None  # this worker's

    def __init__(self, gpucast_bin):
        OpenBatch.opened = self
        self.environment = _environment()
        # Of its own, so that `leaves_nothing` can tell what a job has left here: a test's variables would need a server of their own.
        self._marker = f"GPUCAST_TEST={uuid.uuid4().hex}"
        self._temporary = _short_temporary_folder()
        own = {"TMPDIR": str(self._temporary), **dict([self._marker.split("=")])}
        command = [gpucast_bin, "batch", "-", "--jobs", "1"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**self.environment, **own}
        )
        self.run({"command": [sys.executable, "-c", "pass"]}, 240)  # starts the server
        self.at_start = self.left()

    def left(self):
        """The processes and the folders in the temporary folder, of the batch and of its jobs."""
        return {*processes_with(self._marker), *_session_folders(self._temporary)}

    def job_options(self, options):
        """The job's keys for these options; None where a batch does not know one, or takes it to mean something else."""
        keys, left = {}, list(options)
        while left:
            name, equals, value = left.pop(0).partition("=")
            if name == "--what-if" and (equals or left):
                keys.setdefault("what_if", []).append(value if equals else left.pop(0))
                continue
            if name == "--until-end":
                keys["steps"] = "until-end"
                continue
            if name not in self.OPTIONS:
                return None
            key, kind = self.OPTIONS[name]
            keys[key] = True if kind is None else kind(value if equals else left.pop(0))
        return keys

    def run(self, job, timeout):
        self._process.stdin.write(json.dumps({"name": uuid.uuid4().hex, **job}) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            self._process.kill()
            raise TimeoutError(f"no result within {timeout} s of {job}")
        return json.loads(self._process.stdout.readline())

    def gpucast(self, folder, command, *options, capture=None, timeout=240, **keys):
        """The Run of a command in this folder, for tests that share it; its capture is kept under this path. `keys`: more of the job."""
        log = self._temporary / "log"
        asked = {**self.job_options(options), **keys, "command": list(map(str, command)), "folder": str(folder), "log": str(log)}
        result = self.run(asked if capture is None else {**asked, "output": str(capture)}, timeout)
        out = "" if result["report"] is None else json.dumps(result["report"])
        return Run(result["exit_code"], out, log.read_text(), capture)

    def close(self):
        self._process.stdin.close()
        self._process.wait(30)
        shutil.rmtree(self._temporary)


@pytest.fixture(scope="session", autouse=True)
def threads_sleep():
    """OpenMP's threads, while they wait for each other. Spinning, they take the cores of other tests: three quarters of all time where scripts
    compute much on the host."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(scope="session", autouse=True)
def own_cache(threads_sleep, tmp_path_factory):
    """What gpucast keeps for the user is not touched."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    return Path(os.environ["XDG_CACHE_HOME"])


def _environment():
    """Less what pytest and `leaves_nothing` set for each test."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTEST_CURRENT_TEST", "TMPDIR", "GPUCAST_TEST")}


def _short_temporary_folder():
    """multiprocessing makes sockets in it, and their paths must be under 108 characters."""
    return Path(tempfile.mkdtemp(prefix="leaves-"))


def _session_folders(folder):
    return [path.name for path in folder.iterdir() if path.is_dir() and path.name.startswith("gpucast-")]


@pytest.fixture(scope="session")
def open_batch(gpucast_bin, own_cache):
    batch = OpenBatch(gpucast_bin)
    yield batch
    batch.close()


@pytest.fixture
def gpucast(gpucast_bin, open_batch, tmp_path):
    """gpucast(script text, options...): writes train.py, runs it, returns a Run. The user's folder is tmp_path/job.

    Through a batch, in a child of a Python that has imported PyTorch (tests/python/test_batch.py holds that to be the same); in a
    process of its own under `fresh=True` and wherever the environment or an option asks for one."""
    job = tmp_path / "job"
    job.mkdir()

    def run(
        script, *options, command=None, arguments=(), keep=True, timeout=240, environment=None, fresh=False, measure_host=False, **kwargs
    ):
        (job / "train.py").write_text(script)
        capture = tmp_path / f"{uuid.uuid4().hex}.gpucast"
        command = command or [sys.executable, "train.py", *arguments]
        known = open_batch.job_options(options) is not None and {**_environment(), **(environment or {})} == open_batch.environment
        if keep and known and not fresh and not kwargs:
            keys = {"measure_host": True} if measure_host else {}  # a run of its own with -o does so unasked
            return open_batch.gpucast(job, command, *options, capture=capture, timeout=timeout, **keys)
        env = {**os.environ, **(environment or {})}
        env.pop("PYTEST_CURRENT_TEST", None)
        words = [gpucast_bin, "run", "--format", "json", *options, *(["-o", str(capture)] if keep else []), "--", *command]
        done = subprocess.run(words, cwd=job, capture_output=True, text=True, timeout=timeout, env=env, stdin=subprocess.DEVNULL, **kwargs)
        return Run(done.returncode, done.stdout, done.stderr, capture)

    run.job = job
    return run


def processes_with(marker):
    """PIDs of processes with `marker` in their environment."""
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
    """After the test no process that it started lives, and the temporary folder holds no session; also of its jobs in the open batch."""
    marker = f"GPUCAST_TEST={uuid.uuid4().hex}"
    monkeypatch.setenv(*marker.split("="))
    temporary = _short_temporary_folder()
    (tmp_path / "tmp").symlink_to(temporary)
    monkeypatch.setenv("TMPDIR", str(temporary))
    before = OpenBatch.opened and OpenBatch.opened.left()
    yield temporary
    batch = OpenBatch.opened

    def left():
        of_jobs = batch.left() - (before or batch.at_start) if batch else set()
        return {*processes_with(marker), *_session_folders(temporary), *of_jobs}

    for _ in range(50):
        if not left():
            break
        time.sleep(0.1)
    assert not left()
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


# The begin of a script that times a kernel in Triton, whose loops go by numbers on the card.
SUM_ROWS = """
import torch, triton, triton.language as tl

@triton.jit
def sum_rows(x, counts, out, block: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((block,), tl.float32)
    for i in range(tl.load(counts + row)):
        total += tl.load(x + (row * 256 + i) * block + tl.arange(0, block))
    tl.store(out + row * block + tl.arange(0, block), total)

x, out = torch.randn(512, 256, 1024, device="cuda"), torch.empty(512, 1024, device="cuda")
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
"""

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


# Tensors in reference cycles: freed when Python collects garbage.
CYCLES = train_script(
    steps=4,
    after_step="""for _ in range(300):
    node = type("Node", (), {})()
    node.me, node.tensor = node, torch.empty(10_000, device="cuda")""",
)

# Starts ranks as torchrun does, without an agent; PyTorch is imported once for all of them. The first that fails ends the others.
# Arguments: their number, more modules to import once (a,b), the script and its arguments.
LAUNCH_RANKS = """
import importlib, os, runpy, signal, socket, sys, time
count, imports = int(sys.argv[1]), sys.argv[2].split(",")
sys.argv[:3] = []
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
os.environ.update(WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count), GROUP_RANK="0")
for name in ("torch.distributed", *filter(None, imports)):
    importlib.import_module(name)
ranks = []
for rank in range(count):
    ranks.append(os.fork())
    if ranks[-1] == 0:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit()
failed = False
while ranks and not failed:
    pid, status = os.wait()
    ranks.remove(pid)
    failed = status != 0
time.sleep(3 if failed else 0)
for rank in ranks:
    os.kill(rank, signal.SIGKILL)
sys.exit(failed)
"""
