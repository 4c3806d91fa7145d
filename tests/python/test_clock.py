"""`gpucast run --real-time` and `--warp`: a script that measures itself finds the card's times."""

import json
import subprocess
import sys
import time

import pytest

TRAIN = """
import json, os, sys, time, torch
model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.zeros(4096, 4096, device="cuda")
def step():
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
step()
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
torch.cuda.synchronize()
wall = time.perf_counter()
begin.record()
for _ in range(4):
    step()
end.record()
was_done = end.query()
torch.cuda.synchronize()
wall = time.perf_counter() - wall
"""

FIRST = "print(json.dumps({'events': begin.elapsed_time(end) / 4, 'wall': 1e3 * wall / 4, 'was_done': was_done}))\n"

ODD = """
import threading
out = {"events": begin.elapsed_time(end) / 4, "negative": end.elapsed_time(begin) / 4, "wall": 1e3 * wall / 4, "was_done": was_done}

def error(function):
    try:
        function()
    except Exception as problem:
        return str(problem).splitlines()[0]

never = torch.cuda.Event(enable_timing=True)
out["never"] = error(lambda: never.elapsed_time(end))
out["untimed"] = error(lambda: torch.cuda.Event().elapsed_time(end))
out["never_waits"] = error(never.synchronize)

# Across streams, and work that two of them share.
one, other = torch.cuda.Stream(), torch.cuda.Stream()
marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
for i, stream in enumerate((one, other)):
    with torch.cuda.stream(stream):
        marks[2 * i].record()
        x @ x
        marks[2 * i + 1].record()
out["early"] = error(lambda: marks[0].elapsed_time(marks[3]))
torch.cuda.synchronize()
out["streams"] = [marks[0].elapsed_time(mark) for mark in marks]

begin.record()
x @ x
time.sleep(0.05)
x @ x
end.record()
end.synchronize()
out["asleep"] = begin.elapsed_time(end)

def work(name):
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(torch.cuda.Stream()):
        a.record()
        for _ in range(20):
            x @ x
        b.record()
        b.synchronize()
    out[name] = a.elapsed_time(b)

threads = [threading.Thread(target=work, args=(f"thread{i}",)) for i in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()

polls = 0
begin.record()
x @ x
begin.record()
while not begin.query():
    polls += 1
out["polls"] = polls
torch.save(model.state_dict(), sys.argv[1])
out["saved"] = os.path.exists(sys.argv[1])
print(json.dumps(out), flush=True)
sys.exit(7)
"""


def clocked(gpucast_bin, mode, *command):
    words = [gpucast_bin, "run", mode, "--gpu", "a100-80", "--", sys.executable, *map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("clock") / "train.py"
    path.write_text(TRAIN + FIRST)
    return path


@pytest.fixture(scope="module")
def step_ms(gpucast_bin, script):
    words = [gpucast_bin, "time", "--gpu", "a100-80", "--format", "json", "--", sys.executable, script]
    return json.loads(subprocess.run(words, capture_output=True, check=True).stdout)["step"]["expected_ns"] / 1e6


@pytest.mark.slow
def test_a_script_in_real_time(gpucast_bin, script, step_ms):
    began = time.monotonic()
    done = clocked(gpucast_bin, "--real-time", script)
    took_ms = 1e3 * (time.monotonic() - began)
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)  # the script's own output, of its second run alone
    assert out["events"] == pytest.approx(step_ms, rel=0.01)
    assert out["was_done"] is False
    assert out["wall"] > 0.97 * step_ms, "it waited"
    assert took_ms > 4 * step_ms


def test_oddities_end_as_on_a_card(gpucast_bin, tmp_path, step_ms):
    script = tmp_path / "odd.py"
    script.write_text(TRAIN + ODD)
    done = clocked(gpucast_bin, "--warp", script, tmp_path / "model.pt")
    assert done.returncode == 7, done.stderr
    out = json.loads(done.stdout)
    assert out["events"] == pytest.approx(step_ms, rel=0.01)
    assert out["wall"] == pytest.approx(step_ms, rel=0.2), "its clocks are the card's"
    assert out["negative"] == -out["events"]
    assert "recorded" in out["never"]
    assert "recorded" in out["untimed"] or "enable_timing" in out["untimed"]
    assert out["never_waits"] is None
    assert "not ready" in out["early"] or "must be completed" in out["early"]
    product_ms = 2 * 4096**3 / 19.5e12 * 1e3  # at the datasheet's rate
    first, ends, second, other_ends = out["streams"]
    assert first == 0
    assert abs(second) < 1
    assert 1.5 * product_ms < ends < 3 * product_ms, "each has half of the card"
    assert other_ends > product_ms
    assert out["asleep"] > 50, "the card had nothing to do meanwhile"
    assert 20 * product_ms < out["thread0"] < 3 * 40 * product_ms
    assert 20 * product_ms < out["thread1"] < 3 * 40 * product_ms
    assert out["polls"] > 0
    assert out["saved"] is False


@pytest.mark.once
def test_what_does_not_go_together_is_said(gpucast_bin, script):
    for words in (["--real-time", "--warp"], ["--real-time", "-o", "x.gpucast"], ["--warp", "--format", "json"]):
        done = subprocess.run([gpucast_bin, "run", *words, "--", sys.executable, script], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "to do:" in done.stderr


@pytest.mark.once
def test_a_script_that_fails_ends_as_it_would_on_a_card(gpucast_bin, tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("import torch\nprint('as far as here')\nraise SystemExit('no data')\n")
    done = clocked(gpucast_bin, "--real-time", script)
    assert done.returncode == 1
    assert done.stdout == "as far as here\n"
    assert "no data" in done.stderr
