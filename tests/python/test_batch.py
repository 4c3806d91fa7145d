"""`gpucast batch`: jobs in children of a Python that has imported PyTorch equal fresh processes, and none is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import CYCLES, ROOT, Capture, processes_with, train_script

PYTHON = sys.executable


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def batch(gpucast_bin, tmp_path):
    """batch(jobs, options...): runs them in tmp_path. Returns the results by name; batch.done is the finished process."""

    def run(jobs, *options, environment=None, timeout=300):
        text = "".join((job if isinstance(job, str) else json.dumps(job)) + "\n" for job in jobs)
        command = [gpucast_bin, "batch", "-", *options]
        env = {**os.environ, **(environment or {})}
        run.done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=tmp_path, timeout=timeout, env=env)
        results = lines_of(run.done.stdout)
        by_name = {result["name"]: result for result in results}
        assert len(by_name) == len(results)
        return by_name

    return run


@pytest.fixture
def started(gpucast_bin, tmp_path, leaves_nothing):
    """A batch that is running: started(jobs, options...) -> Popen, with results.jsonl in tmp_path."""
    processes = []

    def start(jobs, *options):
        (tmp_path / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))
        command = [gpucast_bin, "batch", "jobs.jsonl", "-o", "results.jsonl", *options]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# ---- the same as a fresh process ---------------------------------------------------------------------------------------------------

JOBS = {
    "mlp": ["train_mlp.py", "--hidden", "512"],
    "gpt": ["train_gpt.py", "--batch", "4", "--layers", "2", "--width", "128", "--heads", "4", "--sequence", "128"],
    "resnet": ["train_resnet50.py", "--batch", "4"],
    "ncf": ["train_ncf.py"],
    "cycles": ["cycles.py"],
    "setting": ["train_gpt.py", "--batch", "2", "--layers", "2", "--width", "128", "--heads", "4", "--checkpoint"],
}
SETTING = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


OF_A_RUN = ("pid", "run_s", "argv", "unix_ns", "next", "hooks_us", "warm_yardstick_ns", "lines")


def history(capture):
    """All that a capture says, less clocks, its number of lines, process ids and host addresses. In a row of frees the order is C++'s, by address of host
    memory: no two fresh processes agree on it."""
    told = []
    for line in capture.lines:
        if isinstance(line, dict):
            if line["record"] == "unobserved_steps":  # a batch takes them on request only
                continue
            told.append({key: value for key, value in line.items() if key not in OF_A_RUN})
            continue
        if line[0] == "mark":
            line = line[:4] + (line[5:7] if line[5] == "step" else line[5:])
        elif line[0] in ("kernel", "call", "memset", "event_record", "stream_wait", "host_wait", "graph"):
            line = line[:-1]
        elif line[0] == "operator":
            line = line[:2]
        elif line[0] == "memcpy":
            kind = line[1]  # to the device, from it
            line = [*line[:2], "host" if kind == 2 else line[2], "host" if kind == 1 else line[3], *line[4:6], *line[7:]]
        elif line[0] in ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap"):
            line = line[:5]
        if line[0] in ("free_requested", "free_completed") and told and isinstance(told[-1], set):
            told[-1].add(tuple(line))
        elif line[0] in ("free_requested", "free_completed"):
            told.append({tuple(line)})
        else:
            told.append(line)
    return told


@pytest.mark.slow
def test_captures_equal_those_of_fresh_processes(batch, gpucast_bin, tmp_path):
    (tmp_path / "cycles.py").write_text(CYCLES)
    environment = {"PYTHONHASHSEED": "0"}  # hash order is not left to chance, in neither of the two
    jobs = []
    for name, (script, *arguments) in JOBS.items():
        path = script if name == "cycles" else str(ROOT / "examples" / script)
        job = {"name": name, "command": [PYTHON, path, *arguments], "gpu": "rtx3060", "output": f"{name}.gpucast"}
        jobs.append({**job, "environment": SETTING} if name == "setting" else job)
    forked = batch(jobs, environment=environment)
    assert [result["forked"] for result in forked.values()] == [True] * len(JOBS), forked
    for job in jobs:
        fresh = tmp_path / f"{job['name']}-fresh.gpucast"
        command = [gpucast_bin, "run", "--gpu", "rtx3060", "--format", "json", "-o", str(fresh), "--", *job["command"]]
        env = {**os.environ, **environment, **job.get("environment", {})}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=240, env=env)
        assert done.returncode == forked[job["name"]]["exit_code"] == 0
        assert json.loads(done.stdout) == forked[job["name"]]["report"], job["name"]
        assert history(Capture(tmp_path / job["output"])) == history(Capture(fresh)), job["name"]


# What a script can see of the process it is in.
LOOK = """
import sys
before = "torch" in sys.modules
import torch
import gc, json, os, signal, threading
look = {
    "main": [key for key in vars(sys.modules["__main__"]) if key.startswith("__")],
    "file": vars(sys.modules["__main__"]).get("__file__"), "package": repr(__package__), "name": __name__,
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": repr(sys.flags), "executable": sys.executable,
    "torch_before": before, "modules": sorted(sys.modules), "torch_spec": [torch.__spec__.name, torch.__spec__.origin, type(torch.__spec__.loader).__name__],
    "files": sorted(os.listdir("/proc/self/fd")),
    "environment": {k: v for k, v in os.environ.items() if k not in ("GPUCAST_SESSION", "GPUCAST_VGPU_PROFILE", "_")},
    "signals": [repr(signal.getsignal(number)) for number in signal.Signals],
    "blocked": repr(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "threads": [thread.name for thread in threading.enumerate()],
    "streams": [[stream.line_buffering, stream.write_through, stream.encoding, stream.isatty()] for stream in (sys.stdout, sys.stderr)],
    "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
    "folder": os.getcwd(), "parent": open(f"/proc/{os.getppid()}/comm").read(), "umask": os.umask(0o22), "session": os.getsid(0),
    "own_session": os.environ["GPUCAST_SESSION"] in os.environ["GPUCAST_VGPU_PROFILE"] and f"/{os.getpid()}." in os.environ["GPUCAST_VGPU_PROFILE"],
    "finders": [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path if type(finder).__name__ != "_Imported"],
}
with open(os.environ["LOOK"], "w") as file:
    json.dump(look, file)
import atexit
atexit.register(print, "at exit")
print("printed", torch.zeros(2).cuda().numel())
def fail():
    raise ValueError("end")
fail()
"""


@pytest.mark.slow
def test_a_script_cannot_tell(batch, tmp_path):
    (tmp_path / "look.py").write_text(LOOK)
    kinds = {"script": ["./look.py", "a b", "--x"], "module": ["-m", "look", "y"], "code": ["-c", "import look", "z"]}
    environment = {"LOOK": str(tmp_path / "look.json")}
    for kind, words in kinds.items():
        seen = []
        for option in ("", "--fresh"):
            job = {"name": kind, "command": [PYTHON, "-W", "ignore", "-u", *words], "log": f"log{option}"}
            result = batch([job], *filter(None, [option]), environment=environment)[kind]
            assert result["forked"] == (option == "")
            assert result["error"]["code"] == "script_raised"
            seen.append((json.loads((tmp_path / "look.json").read_text()), (tmp_path / f"log{option}").read_text(), result["printed"]))
        for key, value in seen[1][0].items():
            assert seen[0][0][key] == value, (kind, key)
        assert seen[0][1:] == seen[1][1:], kind
        assert "ValueError: end" in seen[0][1] and "fork_server" not in seen[0][1] and "at exit" in seen[0][1]


# Like a large library: it loads its parts on demand, needs PyTorch and another library.
LIBRARY = {
    "timm/__init__.py": "import os, sys, torchvision\nprint('imported', file=sys.stderr)\nos.environ['TIMM'] = '1'\nPROCESS = os.getpid()\n",
    "timm/layers.py": "import os, torch, timm_parts\nPROCESS = os.getpid()\nclass Layer(torch.nn.Linear): pass\n",
    "timm_parts.py": "",
    "torchvision.py": "import torch, torch._dynamo\nCONFIG = torch._dynamo.config\n",
}
WITH_LIBRARY = """
import json, os, sys
before = [name for name in ("torch", "torchvision", "timm", "timm.layers", "timm_parts") if name in sys.modules], os.environ.get("TIMM")
from timm import layers
import timm, timm_parts
layers.Layer(8, 8).cuda()
after = [name for name in ("torch", "torch._dynamo", "torchvision", "timm", "timm.layers") if name in sys.modules], os.environ.get("TIMM")
print(json.dumps([timm.PROCESS == os.getpid(), layers.PROCESS == os.getpid(), before, after]))
sys.exit(3)
"""


@pytest.mark.once
def test_libraries_are_imported_once(batch, tmp_path):
    for name, text in LIBRARY.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(text)
    codes = {"vision": "import torchvision, torch; torch.ones(1).cuda(); raise SystemExit(3)"}
    codes.update({f"library {i}": WITH_LIBRARY for i in range(2)})
    codes["without"] = "import sys; assert not {'torch', 'timm', 'timm_parts', 'torchvision'} & {*sys.modules}; sys.exit(3)"
    codes["torch alone"] = "import torch, sys; assert not {'timm', 'torchvision', 'torch._dynamo'} & {*sys.modules}; sys.exit(3)"
    codes["library 2"] = WITH_LIBRARY
    jobs = [{"name": name, "command": [PYTHON, "-c", code]} for name, code in codes.items()]
    results = batch(jobs, "--jobs", "1", environment={"PYTHONPATH": str(tmp_path / "site")})
    printed = {name: result["printed"] for name, result in results.items()}
    assert [result["forked"] for result in results.values()] == [True] * len(jobs), printed
    assert all("(exit code 3)" in result["error"]["message"] for result in results.values()), printed
    expected = [[[], None], [["torch", "torch._dynamo", "torchvision", "timm", "timm.layers"], "1"]]
    seen = [json.loads(printed[f"library {i}"].splitlines()[-1]) for i in range(3)]
    assert seen == [[True, True, *expected], [False, False, *expected], [False, False, *expected]]
    assert [printed[f"library {i}"].count("imported") for i in range(3)] == [1, 1, 1]


@pytest.mark.once
def test_children_draw_their_own_random_numbers_and_what_must_be_fresh_is_fresh(batch, tmp_path):
    draws = "import random, uuid, torch; print(random.random(), torch.initial_seed(), torch.rand(1).item(), uuid.uuid4())"
    script = train_script(steps=5)
    for folder in ("plain", "shadowing"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(script)
    (tmp_path / "shadowing" / "queue.py").write_text(
        "from multiprocessing.queues import *\nclass Empty(Exception): pass\nFull = LifoQueue = Queue = SimpleQueue = Empty\n"
    )
    results = batch(
        [
            {"name": "plain", "command": [PYTHON, "train.py"], "folder": "plain"},
            {"name": "shadowing", "command": [PYTHON, "train.py"], "folder": "shadowing"},
            {"name": "shell", "command": ["sh", "-c", f"{PYTHON} train.py"], "folder": "plain"},
            {"name": "isolated", "command": [PYTHON, "-I", "train.py"], "folder": "plain"},
            {"name": "draws", "command": [PYTHON, "-c", draws]},
            {"name": "draws again", "command": [PYTHON, "-c", draws]},
        ]
    )
    assert {name: result["forked"] for name, result in results.items()} == {
        "plain": True, "shadowing": False, "shell": False, "isolated": False, "draws": True, "draws again": True,
    }  # fmt: skip
    assert results["plain"]["report"]["peak"] == results["shell"]["report"]["peak"]
    assert results["isolated"]["error"]["code"] == "script_failed"  # without our libraries
    assert len({number for name in ("draws", "draws again") for number in results[name]["printed"].split()}) == 8


# ---- every job has its line --------------------------------------------------------------------------------------------------------


OUT_OF_MEMORY = """
import atexit
lines = open("lines", "w")
lines.write("written\\n")
atexit.register(lines.write, "at exit\\n")
[torch.zeros(2**30, device="cuda") for _ in range(9)]
"""
OPENMP = "'OMP_WAIT_POLICY=PASSIVE' in open('/proc/self/environ').read(), 'OMP_WAIT_POLICY' in os.environ"  # the server's, the script's


@pytest.mark.once
def test_failures_have_their_reasons(batch, tmp_path, leaves_nothing, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    (tmp_path / "train.py").write_text(train_script())

    def code(text, **more):
        return {"command": [PYTHON, "-c", "import torch, time, os, sys; " + text], **more}

    jobs = [
        {"name": "good", "command": f"{PYTHON} train.py", "gpu": "rtx3060"},
        code("torch.zeros(9).cuda(); os.kill(os.getpid(), 11)", name="crash"),
        code("torch.zeros(9).cuda(); print('last words'); raise KeyError(1)", name="raise"),
        code(f"torch.zeros(9).cuda(); print({OPENMP}); raise KeyError(1)", name="openmp"),
        code("torch.zeros(9).cuda(); sys.exit(3)", name="exit"),
        code("torch.zeros(9).cuda(); time.sleep(1000)", name="hang", timeout_s=3),
        code("time.sleep(1000)", name="early hang", timeout_s=2),
        code(OUT_OF_MEMORY, name="memory", gpu="rtx3060", enforce_capacity=True),
        code("[torch.zeros(2**30, device='cuda') for _ in range(9)]", name="big", gpu="rtx3060"),
        code("pass", name="idle"),
        {"name": "no program", "command": ["no-such-program"]},
        {"name": "no folder", "command": [PYTHON, "train.py"], "folder": "nowhere"},
        "{nonsense",
        {"name": "card", "command": ["x"], "gpu": "rtx9999"},
        {"name": "good", "command": ["x"]},
    ]
    results = batch(jobs, "--jobs", "2")
    assert batch.done.returncode == 2
    told = {name: (result["status"], result["exit_code"], (result["error"] or {}).get("code")) for name, result in results.items()}
    assert told == {
        "good": ("fits", 0, None),
        "crash": ("failed", 2, "killed"),
        "raise": ("failed", 2, "script_raised"),
        "openmp": ("failed", 2, "script_raised"),
        "exit": ("failed", 2, "script_failed"),
        "hang": ("failed", 2, "timeout"),
        "early hang": ("failed", 2, "timeout"),
        "memory": ("does_not_fit", 1, "out_of_memory"),
        "big": ("does_not_fit", 1, None),
        "idle": ("failed", 2, "nothing_captured"),
        "no program": ("failed", 2, "failed"),
        "no folder": ("failed", 2, "cannot_start"),
        "line 13": ("failed", 2, "bad_job"),
        "card": ("failed", 2, "unknown_gpu"),
        "line 15": ("failed", 2, "bad_job"),
    }
    assert "last words" in results["raise"]["printed"] and "KeyError: 1" in results["raise"]["printed"]
    assert "gpucast" not in results["raise"]["printed"]
    assert (tmp_path / "lines").read_text() == "written\nat exit\n", "Python's own end, which is skipped, would have written them"
    assert "True False" in results["openmp"]["printed"], "threads sleep while they wait, and the script's environment is its own"
    assert results["good"]["report"]["gpu"]["name"] == "rtx3060"
    assert "2 of 15 jobs fit" not in batch.done.stderr and "1 of 15 jobs fit, 2 do not, 12 failed" in batch.done.stderr


@pytest.mark.once
def test_exit_codes(batch, tmp_path):
    (tmp_path / "train.py").write_text(train_script())
    good = {"command": [PYTHON, "train.py"], "gpu": "rtx3060", "steps": 2}
    big = [PYTHON, "-c", "import torch; [torch.zeros(2**30, device='cuda') for _ in range(9)]"]
    assert batch([good, {"command": big, "gpu": "rtx3060"}])["line 1"]["report"]["steps"] == 2
    assert batch.done.returncode == 1  # 0: test_jobs_are_taken_as_they_come


@pytest.mark.once
def test_jobs_are_taken_as_they_come(gpucast_bin, tmp_path, leaves_nothing):
    (tmp_path / "train.py").write_text(train_script())
    with subprocess.Popen([gpucast_bin, "batch", "-"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        waited = []
        for name in ("first", "second", "third", "fourth"):
            started = time.monotonic()
            process.stdin.write(json.dumps({"name": name, "command": [PYTHON, "train.py"]}) + "\n")
            process.stdin.flush()
            result = json.loads(process.stdout.readline())
            assert result["name"] == name
            waited.append(time.monotonic() - started - result["seconds"])
        assert min(waited) < 0.5, "a job whose server is ready begins at once"
        process.stdin.close()
        assert process.wait(30) == 0


SLOW = train_script(steps=100, after_step="import time; time.sleep(0.3)")


@pytest.mark.slow
@pytest.mark.once
def test_a_killed_batch_goes_on_where_it_was(started, tmp_path):
    (tmp_path / "train.py").write_text(SLOW)
    jobs = [{"name": f"job {i}", "command": [PYTHON, "train.py"]} for i in range(5)]
    results = tmp_path / "results.jsonl"
    first = started(jobs, "--jobs", "2")
    wait_for(lambda: results.exists() and results.read_text().count("\n") >= 1)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    done_before = [line["name"] for line in lines_of(results.read_text())]
    wait_for(lambda: not processes_with(os.environ["TMPDIR"]), 20)
    with results.open("a") as file:
        file.write('{"schema_version":1,"name":"job 4","stat')  # torn
    second = started(jobs)
    assert second.wait(120) == 0
    names = [line["name"] for line in lines_of(results.read_text())]
    assert names[: len(done_before)] == done_before
    assert sorted(names) == [job["name"] for job in jobs]
    assert "5 of 5 jobs fit" in second.stderr.read()


@pytest.mark.once
def test_ctrl_c_leaves_whole_lines_and_nothing_running(started, tmp_path):
    (tmp_path / "train.py").write_text(SLOW)
    process = started([{"command": [PYTHON, "train.py"]} for _ in range(6)], "--jobs", "2")
    results = tmp_path / "results.jsonl"
    wait_for(lambda: results.exists() and results.read_text().count("\n") >= 1)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert "interrupted" in process.stderr.read()
    lines = lines_of(results.read_text())
    assert 1 <= len(lines) < 6 and {line["status"] for line in lines} == {"fits"}
    assert not processes_with(os.environ["TMPDIR"])


def fork_servers():
    found = []
    for pid in processes_with(os.environ["TMPDIR"]):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if b"fork_server.py" in command and b"batch" in Path(f"/proc/{parent}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            pass
    return found


@pytest.mark.once
@pytest.mark.slow
def test_a_killed_server_costs_no_job(started, tmp_path):
    (tmp_path / "train.py").write_text(SLOW)
    process = started([{"name": f"job {i}", "command": [PYTHON, "train.py"]} for i in range(4)], "--jobs", "2")
    killed = 0
    while process.poll() is None:
        for pid in fork_servers():
            time.sleep(0.5 * killed)  # at once, and when it has jobs
            os.kill(pid, signal.SIGKILL)
            killed += 1
        time.sleep(0.05)
    lines = lines_of((tmp_path / "results.jsonl").read_text())
    assert killed >= 1
    assert sorted(line["name"] for line in lines) == [f"job {i}" for i in range(4)]
    assert {line["status"] for line in lines} == {"fits"}


@pytest.mark.once
def test_a_results_file_of_something_else_is_not_touched(gpucast_bin, tmp_path):
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "jobs.jsonl").write_text("")
    done = subprocess.run([gpucast_bin, "batch", "jobs.jsonl", "-o", "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "something else than results" in done.stderr
    assert (tmp_path / "train.py").read_text() == "import torch\n"


@pytest.mark.once
def test_progress_is_for_terminals(gpucast_bin, tmp_path):
    import pty

    (tmp_path / "jobs.jsonl").write_text('{"command": ["no-such-program"]}\n' * 3)
    ours, theirs = pty.openpty()
    command = [gpucast_bin, "batch", "jobs.jsonl", "--jobs", "1"]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.stdout.count(b"\n") == 3
    assert "1 done, 1 failed, 2 left" in shown
    assert "\r" not in subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stderr
