"""`gpucast run --real-time` and `--warp`: a script that measures itself finds the card's times."""

import json
import os
import re
import sqlite3
import subprocess
import sys
import time

import pytest
from conftest import LAUNCH_RANKS, ROOT, SUM_ROWS

from eval.clock import sweep

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


def clocked(gpucast_bin, mode, *command, options=()):
    words = [gpucast_bin, "run", mode, "--gpu", "a100-80", *options, "--", sys.executable, *map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)


def output_of(gpucast_bin, tmp_path, text, *options):
    """What a script writes under --warp."""
    script = tmp_path / "script.py"
    script.write_text(text)
    done = clocked(gpucast_bin, "--warp", script, options=options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("clock") / "train.py"
    path.write_text(TRAIN + FIRST)
    return path


@pytest.fixture(scope="module")
def step_ms(gpucast_bin, script):
    words = [gpucast_bin, "time", "--gpu", "a100-80", "--format", "json", "--", sys.executable, script]
    return json.loads(subprocess.run(words, capture_output=True, check=True).stdout)["step"]["expected_ns"] / 1e6


# Scripts that are measured in one run, in this order, each under its own names.
TOGETHER = """
import json
parts = json.loads(PARTS)
for name, text in parts.items():
    print("@" + name)
    exec(compile(text, name, "exec"), {"__name__": "__main__"})
"""


@pytest.fixture(scope="module")
def together(gpucast_bin, tmp_path_factory):
    """What each of several scripts writes under --warp."""
    parts = {"affinity": AFFINITY, "counted": COUNTED, "unknown": UNKNOWN, "twice": TWICE, "benchmark": BENCHMARK, "transform": TRANSFORM}
    out = output_of(gpucast_bin, tmp_path_factory.mktemp("together"), TOGETHER.replace("PARTS", repr(json.dumps(parts))))
    found = dict(part.split("\n", 1) for part in out.split("@")[1:])
    assert list(found) == list(parts)
    return found


AFFINITY = """
import os, torch

cores = {"outside": [], "inside": []}
x = torch.ones(8, device="cuda", requires_grad=True)
for _ in range(2):
    y = x * 2
    y.register_hook(lambda _: cores["inside"].append(os.sched_getaffinity(0)))
    y.sum().backward()
    cores["outside"].append(os.sched_getaffinity(0))
print(len(cores["inside"]), [len(found) for found in cores["inside"]], len(set.union(*cores["inside"])))
print(all(found == os.sched_getaffinity(os.getppid()) for found in cores["outside"]))
"""


@pytest.mark.once
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_threads_of_backward_share_a_core(together):
    assert together["affinity"] == "2 [1, 1] 1\nTrue\n"


ENDS = """
import torch

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x
    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient

x = torch.ones(8, device="cuda", requires_grad=True)
for _ in range(20):
    Twice.apply(x).sum().backward()
"""


@pytest.mark.slow  # a race: without the wait at the end, every other run ended by SIGABRT on PyTorch 2.4
def test_a_script_may_end_right_after_backward(gpucast_bin, tmp_path):
    for _ in range(6):
        output_of(gpucast_bin, tmp_path, ENDS)


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
    assert abs(second) < product_ms / 2, "they begin together"
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


# As Liger's fused loss: it checks its labels, and leaves out a multiplication by one.
LOSS = """
import torch

class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, target):
        assert target.max() < scores.shape[1], "a label is out of range"
        assert target.min() >= 0
        ctx.save_for_backward(scores)
        return scores.sum()

    @staticmethod
    def backward(ctx, gradient):
        (scores,) = ctx.saved_tensors
        ones = torch.equal(gradient, torch.tensor(1.0, device=gradient.device))
        last.append(ones)
        return torch.ones_like(scores) if ones else gradient * torch.ones_like(scores), None

last = []
model = torch.nn.Linear(64, 100).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for factor in (1, 2):
    target = torch.randint(0, 100, (32,)).cuda()
    target[0] = 99
    loss = Loss.apply(model(torch.randn(32, 64, device="cuda")), target)
    (loss if factor == 1 else factor * loss).backward()
    optimizer.step()
print("ones", *last)
routed = torch.tensor([3, 3, 1, 7, 1]).cuda()
print("experts", *(f"{int(expert)}:{len(routed[routed == expert])}" for expert in routed.unique()))
chosen = torch.randn(64, 8, device="cuda").argmax(-1)
print("tokens", sum(len(torch.where(chosen == expert)[0]) for expert in range(8)))
"""


@pytest.mark.parametrize("mode", ["--warp", pytest.param("--real-time", marks=pytest.mark.slow)])
def test_values_are_followed(gpucast_bin, tmp_path, mode):
    script = tmp_path / "loss.py"
    script.write_text(LOSS)
    done = clocked(gpucast_bin, mode, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ones True False", "experts 1:2 3:2 7:1", "tokens 64"]
    assert done.stderr.count("gpucast: loss.py:") == 1, "the router's choice is assumed, and said to be"


@pytest.mark.once
def test_values_can_be_off(gpucast_bin, tmp_path):
    script = tmp_path / "loss.py"
    script.write_text(LOSS)
    words = [gpucast_bin, "run", "--warp", "--values", "off", "--", sys.executable, script]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "experts 1:2 3:2 7:1" not in done.stdout
    assert "asserts of values on the card are assumed to hold" in done.stderr


# What following takes is not the script's time: the values of a large tensor are counted on the host.
COUNTED = """
import time, torch
mask = (torch.arange(10_000_000) % 3 == 0).cuda()
torch.cuda.synchronize()
before = time.perf_counter(), time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)
for _ in range(20):
    found = mask.nonzero()
torch.cuda.synchronize()
print(len(found), time.perf_counter() - before[0], time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) - before[1])
"""


@pytest.mark.once
def test_following_values_is_not_the_scripts_time(together):
    number, wall, worked = map(float, together["counted"].split())
    assert number == 3_333_334
    assert wall < 0.3 * worked, "the host worked for longer than the script notices"


# Nothing is known of this tensor: its calls take as long as calls that are not looked at.
UNKNOWN = """
import time, torch
x = torch.randn(64, 64, device="cuda")
how = {"dtype": x.dtype, "device": x.device}
def usual(call):
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(50):
            call()
        times.append(time.perf_counter() - begin)
    return sorted(times)[5]
def ratio(call):
    followed, alone = [], []
    for _ in range(9):  # in turn: the machine's speed changes
        followed.append(usual(call))
        with torch._C.DisableTorchFunction():
            alone.append(usual(call))
    return sorted(followed)[4] / sorted(alone)[4]
views = ratio(lambda: x.unsqueeze(0)), ratio(lambda: torch.empty((64, 64), **how).view(-1))
print(*views, ratio(lambda: (x.shape, x.stride(0), x + x)))
"""


@pytest.mark.once
def test_calls_of_which_nothing_is_known_take_no_longer(together):
    view, empty, sizes = map(float, together["unknown"].split())
    assert 0 < view < 3
    assert 0 < empty < 2
    assert 0.3 < sizes < 2, "more is left out than following took"


# PyTorch before 2.6 does not say the bits of a set of dispatch keys.
KEYS = """
import torch
from gpucast.operator_layout import Follower
follower = Follower.__new__(Follower)
follower._memory = open("/proc/self/mem", "rb", buffering=0)
names = ("CPU", "CUDA", "AutogradCUDA", "Dense")
sets = [torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)) for name in names]
print(all(follower._pointed(keys) == keys.raw_repr() for keys in sets))
"""


@pytest.mark.once
def test_dispatch_keys_are_found_in_memory(gpucast_bin, tmp_path):
    found = f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r})"
    assert output_of(gpucast_bin, tmp_path, found + KEYS) == "True\n"


# The same elements are read once, also where two tensors have them.
TWICE = """
import torch
x, y = torch.ones(2, 1 << 26, device="cuda")
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
def least_ms(call):
    times = []
    for _ in range(5):
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return min(times)
two = least_ms(lambda: x.add_(y))
print(least_ms(lambda: x.add_(x)) / two, least_ms(lambda: x.add_(x.detach())) / two, least_ms(lambda: x.add_(y.view(1, -1)[0])) / two)
"""


@pytest.mark.once
def test_elements_that_two_tensors_share_are_read_once(together):
    itself, shared, other = map(float, together["twice"].split())
    assert 0.6 < itself < 0.75
    assert 0.6 < shared < 0.75
    assert other == pytest.approx(1, abs=0.1)


# Triton asks each argument for its type and address.
LAUNCHES = """
import time, torch, triton

@triton.jit
def nothing(a, b, c, d, e):
    pass

x = torch.zeros(16, device="cuda")
def least_us():
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        for _ in range(50):
            nothing[(1,)](x, x, x, x, x)
        times.append(time.perf_counter() - begin)
    return min(times) / 50 * 1e6
least_us()
print(least_us())
"""


@pytest.mark.once
def test_launches_in_triton_take_as_long_where_values_are_followed(gpucast_bin, tmp_path):
    followed, plain = (float(output_of(gpucast_bin, tmp_path, LAUNCHES, "--values", values)) for values in ("on", "off"))
    assert 0.5 * plain < followed < 3 * plain, (followed, plain)


# The loops of a kernel go by values that were made on the card.
LOOPS = (
    SUM_ROWS
    + """for rows in (1, 256):
    counts = torch.full((512,), rows, dtype=torch.int32, device="cuda")
    sum_rows[(512,)](x, counts, out, block=1024)
    took = []
    for _ in range(5):  # the host may be late in one
        x.sin()
        begin.record()
        for _ in range(10):
            sum_rows[(512,)](x, counts, out, block=1024)
        end.record()
        end.synchronize()
        took.append(begin.elapsed_time(end))
    print(min(took))
"""
)


@pytest.mark.once
def test_a_compiled_kernel_finds_values_made_on_the_card(gpucast_bin, tmp_path):
    short, long = map(float, output_of(gpucast_bin, tmp_path, LOOPS).split())
    least_ms = 10 * 512 * 256 * 4096 / 2.1e12 * 1e3  # its bytes at 2.1 TB/s
    assert long > least_ms and long > 2 * short


@pytest.mark.once
def test_values_that_an_operator_changed_are_not_known(gpucast_bin, tmp_path):
    change = "counts = counts if rows > 1 else counts.random_(1, 9)"
    script = LOOPS.replace("for rows in (1, 256):", "counts = torch.full((512,), 256, dtype=torch.int32).cuda()\nfor rows in (256, 1):")
    script = script.replace('counts = torch.full((512,), rows, dtype=torch.int32, device="cuda")', change)
    (tmp_path / "loops.py").write_text(script)
    words = [gpucast_bin, "run", "--warp", "--gpu", "a100-80", "--values", "off", "--", sys.executable, "loops.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    assert after < before / 2  # a loop of unknown length counts as short


# Each writes its files as one run does: values must not make the script begin again.
VALUES_NEEDED = """
import csv, os, sqlite3, sys, torch
labels = torch.tensor([2, 0, 1, 2]).cuda()
groups = len(labels.unique())
assert labels.max() == 2
"""
WRITERS = {
    "csv": (
        """
with open("log.csv", "a", newline="") as file:
    for step in range(3):
        csv.writer(file).writerow([step, len(labels.unique())])
assert labels.bincount().tolist() == [1, 1, 2]
""",
        lambda folder: (folder / "log.csv").read_text().split() == ["step,groups", "0,3", "1,3", "2,3"],
    ),
    "sqlite": (
        """
base = sqlite3.connect("runs.db")
base.execute("create table runs (step integer primary key, groups integer)")
for step in range(3):
    base.execute("insert into runs values (?, ?)", (step, len(labels.unique())))
    base.commit()
assert int(labels.sum()) == 5
""",
        lambda folder: (sqlite3.connect(folder / "runs.db").execute("select * from runs").fetchall() == [(step, 3) for step in range(3)]),
    ),
    "refuses": (
        """
if os.path.exists("result"):
    sys.exit("result is there already")
os.mkdir("result")
with open("result/groups", "x") as file:
    file.write(str(len(labels[labels > 0].unique())))
assert labels.argmin() == 1
""",
        lambda folder: (folder / "result/groups").read_text() == "2",
    ),
}


@pytest.mark.once
def test_files_are_of_one_run(gpucast_bin, tmp_path):
    writes = "".join(text for text, _ in WRITERS.values())
    (tmp_path / "train.py").write_text(VALUES_NEEDED + writes + "print('once')\n")
    (tmp_path / "log.csv").write_text("step,groups\n")
    words = [gpucast_bin, "run", "--warp", "--gpu", "a100-80", "--", sys.executable, "train.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "once\n"
    assert {kind: is_right(tmp_path) for kind, (_, is_right) in WRITERS.items()} == dict.fromkeys(WRITERS, True)


# As triton.testing.do_bench does it: a fill of more than L2 before each measurement, and two events around what is measured.
BENCHMARK = """
import torch
flush, x, y = torch.empty(64 << 20, dtype=torch.int, device="cuda"), *torch.empty(2, 1 << 21, device="cuda")
def median_us(function, flushed):
    times = []
    for _ in range(21):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        if not flushed:
            x + y
        first.record()
        function()
        last.record()
        last.synchronize()
        times.append(1e3 * first.elapsed_time(last))
    return sorted(times)[10]
print(median_us(lambda: None, True), median_us(lambda: x + y, False), median_us(lambda: x + y, True))
"""


@pytest.mark.once
def test_a_benchmark_that_flushes_l2(together):
    """Triton's documentation (01-vector-add, gh-pages 2f0db601, A100): 24.6 us for 25 MB. In L2 it would be 13."""
    nothing, warm, cold = map(float, together["benchmark"].split())
    assert 3 < nothing < 5, "an event keeps its time"
    assert 22 < cold < 27
    assert nothing < warm < cold - 5


@pytest.mark.once
def test_a_sweep_finds_each_shapes_time(gpucast_bin):
    """Each of eval/clock/sweeps measures all shapes in one process, as users do. docs/results/clock.md compares all of them."""
    script = ROOT / "eval/clock/sweeps/matmul_sizes.py"
    done = clocked(gpucast_bin, "--warp", script)
    assert done.returncode == 0, done.stderr
    swept = json.loads(done.stdout)
    assert len(swept) == 6
    words = [gpucast_bin, "time", "--gpu", "a100-80", "--format", "json", "--", sys.executable, script, "--only", "8192"]
    alone = json.loads(subprocess.run(words, capture_output=True, check=True, timeout=300).stdout)
    assert swept["8192"] == pytest.approx(alone["step"]["expected_ns"] / 1e6, rel=0.02)
    assert swept["4096"] < swept["8192"] / 5, "an eighth of the work"


TRANSFORM = "import torch\nprint(torch.fft.fft(torch.ones(64, 256, device='cuda')).shape[1])"


@pytest.mark.once
def test_plans_of_transforms_are_freed_at_the_end(together):
    """PyTorch destroys its plans after the script, when the virtual cuFFT's own variables may be gone."""
    assert together["transform"] == "256\n"


@pytest.mark.once
def test_what_a_sweep_is_compared_with():
    row = {
        "sweep": "mlp_widths",
        "value": "512",
        "passes_ms": [3.0, 2.0],
        "step_ms": 1.9,
        "gpu_ms": 1.0,
        "host_ms": 1.5,
        "bound": "host",
    }
    assert (sweep.kind(row), sweep.compared_ms(row), sweep.clock_ms(row)) == ("host-bound", 1.9, 2.0)
    forward = {**row, "host_ms": None}
    assert (sweep.kind(forward), sweep.compared_ms(forward)) == ("host unknown", 1.0)
    flushed = {**row, "sweep": "softmax_columns"}
    assert (sweep.kind(flushed), sweep.compared_ms(flushed)) == ("do_bench", 1.0)
    assert sweep.summary([row, forward]).splitlines()[-1] == "| all | 2 | 0 | 0 | 52.6 | 100.0 |"


@pytest.mark.once
def test_every_sweep_says_how_it_measures():
    scripts = {path.stem for path in (ROOT / "eval/clock/sweeps").glob("*.py")}
    assert scripts == {*sweep.WAYS, "sweep_values"}


UNEVEN = """
import os, sys, time, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank = dist.get_rank()
model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(2 + 4 * rank)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, shared = torch.zeros(4096, 4096, device="cuda"), torch.zeros(32 << 20, device="cuda")
for i in range(8):
    if i == 3:
        torch.cuda.synchronize()
        begin = time.perf_counter()
    optimizer.zero_grad()
    model(x).square().mean().backward()
    dist.all_reduce(shared)
    optimizer.step()
torch.cuda.synchronize()
os.write(1, b"wall %f ms\\n" % (1e3 * (time.perf_counter() - begin) / 5))
dist.destroy_process_group()
"""


@pytest.mark.once
@pytest.mark.parametrize("mode", ["--warp", pytest.param("--real-time", marks=pytest.mark.slow)])
def test_all_ranks_wait_for_the_slowest(gpucast_bin, tmp_path, mode):
    (tmp_path / "train.py").write_text(UNEVEN)
    (tmp_path / "launch.py").write_text(LAUNCH_RANKS)
    command = [tmp_path / "launch.py", "2", "torch._dynamo", tmp_path / "train.py"]
    done = clocked(gpucast_bin, mode, *command, options=("--values", "off"))
    walls = [float(wall) for wall in re.findall(r"wall ([\d.]+) ms", done.stdout)]
    alone = 1e-6 * step_of_rank_1(gpucast_bin, command)
    assert len(walls) == 2
    assert walls == pytest.approx([alone] * 2, rel=0.05)


def step_of_rank_1(gpucast_bin, command):
    """Rank 1 has six layers, rank 0 has two."""
    words = [gpucast_bin, "time", "--gpu", "a100-80", "--format", "json", "--", sys.executable, *map(str, command)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    report = json.loads(done.stdout)
    assert report["ranks"][0]["bubble_ns"] > 0.5 * report["step"]["expected_ns"]
    return report["step"]["expected_ns"]
