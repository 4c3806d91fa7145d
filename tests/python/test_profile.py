"""`gpucast profile`: its trace, the script's view, and that the machine stays unchanged.

The same on a CUDA build and on a CPU-only PyTorch: run these with a Python of either.
"""

import csv
import gzip
import json
import signal
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec

import pytest
from conftest import ROOT, train_script

pytestmark = pytest.mark.usefixtures("leaves_nothing")

WITHOUT_TORCH = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p and 'dist-packages' not in p]; import torch"


class Trace:
    def __init__(self, path):
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            self.whole = json.load(file)
        self.record = self.whole["gpucast"]
        self.events = self.whole["traceEvents"]

    def marks(self, prefix=""):
        """Names of gpucast's ranges in order of time, and nested ones after the outer."""
        marks = [event for event in self.events if event.get("cat") == "user_annotation" and event["name"].startswith("gpucast." + prefix)]
        return sorted(marks, key=lambda event: (event["ts"], -event["dur"]))

    def names(self, prefix=""):
        return [mark["name"].removeprefix("gpucast.") for mark in self.marks(prefix)]

    def memory(self):
        events = [event for event in self.events if event["name"] == "[memory]"]
        return sorted(events, key=lambda event: event["args"]["Ev Idx"])

    def allocated_within(self, mark):
        """Bytes of each allocation inside a range."""
        inside = [e["args"]["Bytes"] for e in self.memory() if mark["ts"] <= e["ts"] <= mark["ts"] + mark["dur"]]
        return [size for size in inside if size > 0]

    def table(self, when, step):
        (table,) = [table for table in self.record["tables"] if (table["when"], table["step"]) == (when, step)]
        return {(row[0], row[1]): row for row in table["rows"]}


class Profile:
    def __init__(self, done, path):
        self.code, self.out, self.err, self.path = done.returncode, done.stdout, done.stderr, path

    @property
    def trace(self):
        return Trace(self.path)


def profiling(gpucast_bin, folder):
    job = folder / "job"
    job.mkdir(exist_ok=True)

    def run(script, *options, command=None, name="trace.json"):
        (job / "train.py").write_text(script)
        output = folder / name
        words = [gpucast_bin, "profile", "--force", "-o", str(output), *options, "--", *(command or [sys.executable, "train.py"])]
        return Profile(subprocess.run(words, cwd=job, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL), output)

    run.job = job
    return run


@pytest.fixture
def profile(gpucast_bin, tmp_path):
    """profile(script text, options...): writes train.py, profiles it. The user's folder is tmp_path/job."""
    return profiling(gpucast_bin, tmp_path)


@pytest.fixture(scope="module")
def plain(gpucast_bin, tmp_path_factory):
    """One profile of the plain script, for all tests that only read it."""
    return profiling(gpucast_bin, tmp_path_factory.mktemp("plain"))(train_script(after_step="print('loss', loss.item())"))


def ok(done):
    assert done.code == 0, done.err
    assert done.out == "" and "internal error" not in done.err
    return done.trace


# Two classes of one name, modules shared, called in another order than registered, computed again, made on the fly, never called.
MODULES = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

def block():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.second, self.first = nn.Linear(256, 256), nn.Linear(256, 256)
        def forward(self, x):
            return self.second(torch.relu(self.first(x)))
    return Block

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last, self.a, self.b, self.shared = nn.Linear(256, 256), block()(), block()(), nn.Linear(256, 256)
        self.again = self.shared
        self.kept, self.entered = (nn.Sequential(nn.Linear(256, 256), nn.Tanh()) for _ in range(2))
        self.register_buffer("scale", torch.ones(300, 256))
        self.own = nn.Parameter(torch.zeros(256, 256))
        self.never = nn.Linear(256, 300)
    def forward(self, x):
        x = self.b(self.a(self.again(self.shared(x)))) @ self.own
        x = checkpoint(self.kept, x, use_reentrant=False, preserve_rng_state=False)
        x = checkpoint(self.entered, x, use_reentrant=True, preserve_rng_state=False)
        return self.last(nn.Softplus()(x))

net, other = Net().cuda(), nn.Sequential(nn.Linear(256, 256), nn.GELU()).cuda()
optimizer = torch.optim.Adam([*net.parameters(), *other.parameters()])
while True:
    x = torch.randn(512, 256, device="cuda")
    optimizer.zero_grad()
    other(net(x)).mean().backward()
    optimizer.step()
"""


# ---- the trace -----------------------------------------------------------------------------------------------------------------


@pytest.mark.once
def test_marks_and_tables(plain):
    trace = ok(plain)
    assert "loss " in plain.err
    assert f"gpucast analyze {plain.path} --gpu rtx3060" in plain.err
    modules = [f"module#{i}" for i in (1, 2, 3, 4, 5, 6)]
    step = ["to_device#tensor", "to_device#tensor", "tensors#{}", "forward#{}", *modules, "backward#{}", "tensors#{}", "tensors#{}"]
    numbers = [(3 * k, k + 1, k + 1, 3 * k + 1, 3 * k + 2) for k in range(3)]
    expected = ["to_device#module"] + [word for k in range(3) for word in "|".join(step).format(*numbers[k]).split("|")]
    assert trace.names() == expected
    record = trace.record
    assert (record["schema_version"], record["steps"], record["end_reason"], record["asked_device"]) == (1, 3, "steps", "cuda")
    assert record["command"] == [sys.executable, "train.py"] and record["batch_size"] == 64 and record["zero_grad_set_to_none"] is True
    linear = [[str(i), "Linear" if i % 2 == 0 else "ReLU", 1] for i in range(5)]
    assert record["modules"] == [["", "Sequential", -1], *linear]
    assert record["autocast"] is None and record["grad_scaler"] is False and record["gpucast_version"] and record["python"]
    (optimizer,) = record["optimizers"]
    assert optimizer["name"] == "Adam"
    (group,) = optimizer["param_groups"]
    assert (group["lr"], group["foreach"], group["fused"], group["amsgrad"], group["params"]) == (1e-3, None, None, False, 6)
    assert [(table["id"], table["when"], table["step"]) for table in record["tables"]] == [
        (i, ("forward", "backward", "step")[i % 3], i // 3 + 1) for i in range(9)
    ]
    annotations = {event["name"] for event in trace.events if event.get("cat") == "user_annotation"}
    assert {"Optimizer.step#Adam.step", "Optimizer.zero_grad#Adam.zero_grad"} <= annotations
    assert {"profile_memory", "with_stack", "record_shapes"} <= set(trace.whole)


def test_tables_name_the_memory_of_the_trace(plain):
    trace = ok(plain)
    weight = 512 * 256 * 4
    forward = trace.table("forward", 2)
    assert forward["parameter", "0.weight"][3:] == [weight, "float32", [512, 256], True, 2]
    assert forward["input", "0"][3:] == [64 * 256 * 4, "float32", [64, 256], False, -1]
    assert trace.table("step", 1)["optimizer_state", "2.bias.exp_avg"][7] == 4
    assert len(trace.table("backward", 1)) == 6 and len(trace.table("step", 3)) == 18
    allocated = {event["args"]["Addr"]: event["args"]["Bytes"] for event in trace.memory() if event["args"]["Bytes"] > 0}
    for when in ("forward", "backward", "step"):
        for row in trace.table(when, 1).values():
            assert row[2] in allocated, row


def test_move_of_a_module_has_the_allocations_of_a_gpu(plain):
    trace = ok(plain)
    (move,) = trace.marks("to_device#module")
    assert trace.allocated_within(move) == [4 * n for n in (512 * 256, 512, 256 * 512, 256, 10 * 256, 10)]
    inputs, targets = trace.marks("to_device#tensor")[:2]
    assert trace.allocated_within(inputs) == [64 * 256 * 4] and trace.allocated_within(targets) == [64 * 8]


def breakdown(gpucast_bin, path):
    """{(module's path, class, category): (maximum bytes, at the end of forward)}, of blocks of the module itself; workspaces are CUDA's."""
    words = [gpucast_bin, "breakdown", str(path), "--gpu", "rtx3060", "--by", "module", "--format", "csv"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    names = ("name", "type", "itself", "category")
    rows = [row for row in rows if row["category"] not in ("workspaces", "total")]
    return [(*(row[name] for name in names), row["maximum_bytes"], row["forward_end_bytes"]) for row in rows]


@pytest.mark.once
def test_modules_are_those_of_a_capture(gpucast, profile, gpucast_bin):
    traced = profile(MODULES)
    (names,) = [{e["name"] for e in ok(traced).events if e["name"].startswith("nn.Module: Block")}]
    assert names == {"nn.Module: Block_0"}  # the profiler counts for each class
    captured = gpucast(MODULES)
    of_trace, of_capture = breakdown(gpucast_bin, traced.path), breakdown(gpucast_bin, captured.capture_path)
    assert of_trace == of_capture
    paths = {(name, kind) for name, kind, *_ in of_trace}
    assert {("", "Net"), ("b.first", "Linear"), ("shared", "Linear"), ("never", "Linear"), ("<Softplus>", "Softplus")} <= paths
    held = {(name, category): int(most) for name, _, _, category, most, _ in of_trace}
    weights = 4 * (256 * 256 + 256)
    for path in ("a.first", "b.second", "shared", "kept.0", "entered.0", "last"):
        assert held[path, "parameters"] == held[path, "gradients"] == held[path, "optimizer_state"] // 2 == weights, path
    assert held["never", "parameters"] == 4 * (300 * 256) + 1536 and ("never", "gradients") not in held
    assert all(held[path, "intermediate_gradients"] >= 4 * 512 * 256 for path in ("a.first", "b.second", "kept.1", "last"))


@pytest.mark.once
def test_frames_of_modules_are_the_scripts(plain):
    trace = ok(plain)
    modules = Counter(event["name"] for event in trace.events if event["name"].startswith("nn.Module: "))
    assert {name: n for name, n in modules.items() if n >= 3} == {
        **{f"nn.Module: Linear_{i}": 3 for i in range(3)},
        **{f"nn.Module: ReLU_{i}": 3 for i in range(2)},
        "nn.Module: Sequential_0": 3,
    }
    ours = [event for event in trace.events if "gpucast/" in event["name"] and event.get("cat") == "python_function"]
    assert len(ours) < 1000


PLAIN = """
import sys
import torch
from torch import nn
if len(sys.argv) > 1:
    import torch._dynamo
    by_hand = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, with_stack=True, record_shapes=True)
    by_hand.start()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8 * 14 * 14, 10)
    def forward(self, x, scale=None):
        y = torch.relu(self.norm(self.convolution(x)))
        del x
        return self.head(nn.functional.dropout(y, 0.1).flatten(1)) * scale + torch.zeros(10)

net = Net()
optimizer = torch.optim.Adam(net.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for step in range(3):
    x, y = torch.randn(16, 3, 16, 16), torch.randint(0, 10, (16,))
    loss = nn.functional.cross_entropy(net(x, scale=torch.ones(())), y)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    if step < 2:
        scheduler.step()
if len(sys.argv) > 1:
    by_hand.stop()
    by_hand.export_chrome_trace(sys.argv[1])
"""


@pytest.mark.once
def test_script_for_the_cpu_allocates_as_without_us(profile, gpucast_bin, tmp_path):
    """Hooks, tables and marks add no allocation and keep nothing alive: sizes in order, frees included."""
    trace = ok(profile(PLAIN))
    assert trace.record["asked_device"] == "cpu"
    assert trace.names("to_device") == trace.names("on_device") == trace.names("to_host") == []
    hand = tmp_path / "hand.json"
    words = [sys.executable, str(profile.job / "train.py"), str(hand)]
    subprocess.run(words, capture_output=True, timeout=240)
    if not hand.exists():  # a CUDA build without NVIDIA's libraries: ours let it be imported
        subprocess.run([gpucast_bin, "run", "--steps", "100", "--", *words], capture_output=True, timeout=240)
    events = [event for event in json.loads(hand.read_text(errors="replace"), strict=False)["traceEvents"] if event["name"] == "[memory]"]
    by_hand = [event["args"]["Bytes"] for event in sorted(events, key=lambda event: event["args"]["Ev Idx"])]
    assert len(by_hand) > 500
    assert [event["args"]["Bytes"] for event in trace.memory()] == by_hand


@pytest.mark.once
def test_options_and_command_with_quotes_and_other_letters(profile):
    script = "import sys; " + repr('a "quoted" \\ word, Grüße') + "; exec(open('train.py').read())"
    done = profile(train_script(), "--steps", "1", command=[sys.executable, "-c", script], name="trace.json.gz")
    trace = ok(done)
    assert trace.record["command"] == [sys.executable, "-c", script]
    assert trace.names("forward") == ["forward#1"] and trace.record["steps"] == 1
    assert done.path.read_bytes()[:2] == b"\x1f\x8b"


# ---- a script's view of its GPU ------------------------------------------------------------------------------------------------


DEVICES = """
import copy, io
import numpy as np
import torch
from torch import nn

D = torch.device("cuda")
on, host = torch.zeros(3, device=D), torch.randn(3)
assert on.device == torch.device("cuda:0") and on.is_cuda and not on.is_cpu and on.get_device() == 0 and "cuda:0" in repr(on)
assert host.device.type == "cpu" and not host.is_cuda and host.get_device() == -1

# moves
moved = host.to("cuda:0")
assert moved.is_cuda and moved.data_ptr() != host.data_ptr()
assert moved.to("cuda") is moved and moved.cuda() is moved and moved.to(D, torch.float32) is moved and moved.to(host.cuda()) is moved
back = moved.cpu()
assert back.data_ptr() != moved.data_ptr() and not back.is_cuda
assert host.cpu() is host and not moved.to(host).is_cuda and host.to(moved).is_cuda
assert host.to(0).is_cuda and host.to(device="cuda", dtype=torch.half).dtype == torch.half and host.cuda(0, non_blocking=True).is_cuda
assert moved.half().is_cuda and moved.to(torch.float64).is_cuda and moved.to("cuda", copy=True) is not moved
assert moved.type() == "torch.cuda.FloatTensor" and host.type("torch.cuda.FloatTensor").is_cuda and host.type(torch.cuda.HalfTensor).is_cuda
assert not moved.type("torch.FloatTensor").is_cuda
assert host.pin_memory().cuda().is_cuda

# results of operators are where their inputs are
assert (moved + 1).is_cuda and (moved > 0).float().is_cuda and torch.stack([moved, moved]).is_cuda and moved[:2].is_cuda
assert not (host + 1).is_cuda and not torch.stack([torch.from_numpy(np.ones(3))]).is_cuda
assert ((host * 2).to("cuda")).is_cuda

# factories
assert torch.zeros_like(on).is_cuda and not torch.zeros_like(host).is_cuda and torch.empty_like(host, device="cuda").is_cuda
assert not torch.ones_like(on, device="cpu").is_cuda and on.new_zeros(4).is_cuda and not on.new_zeros(4, device="cpu").is_cuda
assert torch.tensor([1, 2], device="cuda:0").is_cuda and torch.as_tensor([1.0], device=D).is_cuda and torch.empty(2, device=0).is_cuda
array = np.ones(4)
torch.as_tensor(array, device="cuda").add_(1)
assert array[0] == 1
generator = torch.Generator(device="cuda").manual_seed(1)
assert torch.randn(3, generator=generator, device="cuda").is_cuda and isinstance(generator, torch.Generator)
assert torch.cuda.FloatTensor(2, 3).is_cuda and isinstance(on, torch.cuda.FloatTensor) and not isinstance(host, torch.cuda.FloatTensor)
with torch.device("cuda"):
    assert nn.Linear(3, 3).weight.is_cuda and torch.randn(2, 3).is_cuda and not torch.ones(1, device="cpu").is_cuda
assert not torch.randn(2).is_cuda
torch.set_default_device("cuda")
assert nn.Linear(2, 2).bias.is_cuda
torch.set_default_device("cpu")
assert not torch.ones(2).is_cuda
with torch.device("meta"):
    meta = nn.Linear(2, 2)
assert meta.weight.device.type == "meta" and meta.to_empty(device="cuda").weight.is_cuda

# modules
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4))
net[1].weight = net[0].weight
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
before = [id(parameter) for parameter in net.parameters()]
net.to(0)
assert before == [id(parameter) for parameter in net.parameters()] == [id(p) for p in optimizer.param_groups[0]["params"]]
assert net[0].weight is net[1].weight and net[0].weight.is_cuda and net[2].running_mean.is_cuda
places = [parameter.data_ptr() for parameter in net.parameters()]
assert places == [parameter.data_ptr() for parameter in net.cuda().to("cuda").parameters()]
x = torch.randn(5, 4).cuda()
net(x).sum().backward()
assert net[0].weight.grad.is_cuda and net(x).detach().is_cuda
gradient = net[0].weight.grad.data_ptr()
assert net.cuda()[0].weight.grad.data_ptr() == gradient
assert copy.deepcopy(net)[0].weight.is_cuda
net.cpu()
assert not net[0].weight.is_cuda and not net[0].weight.grad.is_cuda
net.cuda()
assert net[0].weight.is_cuda and net[0].weight.grad.is_cuda
assert nn.DataParallel(net)(x).is_cuda
lstm = nn.LSTM(4, 8, 2).cuda()
assert lstm(torch.randn(5, 2, 4, device="cuda"))[0].is_cuda

# files
file = io.BytesIO()
torch.save(net.state_dict(), file)
for where, place in (("cuda", True), (D, True), ("cpu", False), ({"cpu": "cuda:0"}, True), (lambda storage, tag: storage, False)):
    file.seek(0)
    assert torch.load(file, map_location=where)["0.weight"].is_cuda is place, where

# torch.cuda
cuda = torch.cuda
assert cuda.is_available() and cuda.device_count() == 1 and cuda.current_device() == 0 and "RTX 3060" in cuda.get_device_name()
assert cuda.get_device_properties(0).total_memory > 2**33 and cuda.get_device_capability() == (8, 6) and cuda.is_bf16_supported()
assert cuda.memory_allocated() == cuda.max_memory_reserved() == 0
for call in (cuda.synchronize, cuda.empty_cache, cuda.reset_peak_memory_stats, cuda.init, cuda.mem_get_info, cuda.memory_stats):
    call()
cuda.manual_seed(1), cuda.manual_seed_all(1), cuda.set_device(0), cuda.set_rng_state(cuda.get_rng_state()), torch.manual_seed(3)
stream, start, stop = cuda.Stream(), cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
start.record()
with cuda.stream(stream), cuda.device(0):
    cuda.current_stream().wait_stream(stream)
    on.record_stream(stream)
stop.record()
assert start.elapsed_time(stop) >= 0
with torch.random.fork_rng():
    torch.randn(3)
from torch.utils.checkpoint import checkpoint
for reentrant in (True, False):
    checkpoint(net, torch.randn(2, 4, device="cuda", requires_grad=True), use_reentrant=reentrant).sum().backward()
assert torch.compile(net)(x).is_cuda
with torch.profiler.profile() as own:
    own.step()
own.key_averages().table()
print("all of it")
"""


@pytest.mark.slow
@pytest.mark.once
def test_devices(profile):
    done = profile(DEVICES, "--gpu", "rtx3060")
    trace = ok(done)
    assert "all of it" in done.err
    assert "no optimizer step was made" in done.err
    assert trace.record["steps"] == 0 and trace.record["compiled"] is True


@pytest.mark.once
def test_optimizers_take_the_way_they_take_on_a_gpu(plain, profile):
    trace = ok(plain)
    assert any(event["name"] == "aten::_foreach_sqrt" for event in trace.events)
    fused = ok(profile(train_script().replace("lr=1e-3", "lr=1e-3, fused=True")))
    assert any(event["name"] == "aten::_fused_adam_" for event in fused.events)
    states = [row for row in fused.table("step", 1).values() if row[1].endswith(".step")]
    assert len(states) == 6 and fused.names("on_device") == ["on_device"] * 6


def test_mixed_precision(profile):
    script = """
import torch
from torch import nn
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30 * 30, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cuda")
while True:
    x, y = torch.randn(4, 3, 32, 32).cuda(non_blocking=True), torch.randint(0, 10, (4,), device="cuda")
    optimizer.zero_grad(set_to_none=False)
    with torch.autocast("cuda", dtype=torch.float16):
        out = net(x)
        assert out.dtype == torch.float32 and torch.is_autocast_enabled()
        with torch.autocast("cuda", enabled=False):
            loss = nn.functional.cross_entropy(out.float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    assert nn.utils.clip_grad_norm_(net.parameters(), 1.0).is_cuda
    scaler.step(optimizer)
    scaler.update()
"""
    trace = ok(profile(script))
    record = trace.record
    assert (record["autocast"], record["grad_scaler"], record["zero_grad_set_to_none"], record["steps"]) == ("float16", True, False, 3)
    assert trace.names("autocast") == ["autocast#float16", "autocast#off"] * 3
    autocast, forward = trace.marks("autocast#float16")[1], trace.marks("forward#2")[0]
    assert autocast["ts"] < forward["ts"] and forward["ts"] + forward["dur"] < autocast["ts"] + autocast["dur"]
    assert trace.names("to_host") == []  # nothing goes to the host and back
    assert trace.names("to_device#tensor") == ["to_device#tensor"] * 3


@pytest.mark.once
@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_data_loader_workers(profile, context):
    workers = 1 if context == "spawn" else 2  # they import PyTorch anew
    script = f"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 256
    def __getitem__(self, index):
        return torch.randn(32) * 2 + 1, index % 10

if __name__ == "__main__":
    net = nn.Linear(32, 10).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for x, y in DataLoader(Data(), batch_size=16, num_workers={workers}, pin_memory=True, multiprocessing_context="{context}"):
        assert not x.is_cuda
        loss = nn.functional.cross_entropy(net(x.to("cuda", non_blocking=True)), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    trace = ok(profile(script))
    assert trace.record["steps"] == 3 and trace.record["batch_size"] == 16
    assert trace.names("to_device#tensor") == ["to_device#tensor"] * 6
    assert [trace.allocated_within(mark) for mark in trace.marks("to_device#tensor")[:2]] == [[16 * 32 * 4], [16 * 8]]


@pytest.mark.once
def test_host_tensors_between_steps(profile):
    """Gradients are accumulated, and the next batch is made by hand between a backward and the step: it is still the host's."""
    after = "for part in range(2):\n    nn.functional.cross_entropy(model((torch.stack(list(x.cpu())) / 2).to('cuda')), y).backward()"
    trace = ok(profile(train_script(after_step=after)))
    assert trace.names("to_device#tensor") == ["to_device#tensor"] * (3 * 2 + 2 * 2)


def test_transformers(profile):
    if find_spec("transformers") is None:
        pytest.skip("no transformers")
    script = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=500)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
while True:
    ids = torch.randint(0, 500, (2, 64)).to("cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    done = profile(script)
    trace = ok(done)
    assert trace.record["steps"] == 3 and trace.record["batch_size"] == 2
    assert ("input", "input_ids") in trace.table("forward", 1) and ("parameter", "transformer.wte.weight") in trace.table("forward", 1)
    assert ("parameter", "lm_head.weight") not in trace.table("forward", 1)  # tied
    assert done.path.stat().st_size < 30e6  # the library's imports are not in it


def test_hugging_face_trainer(profile):
    if find_spec("transformers") is None or find_spec("accelerate") is None:
        pytest.skip("no transformers and accelerate")
    script = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, index):
        ids = torch.randint(0, 500, (32,))
        return {"input_ids": ids, "labels": ids}
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=500))
arguments = TrainingArguments("out", per_device_train_batch_size=4, report_to=[], fp16=True, save_steps=1)
Trainer(model=model, args=arguments, train_dataset=Data()).train()
"""
    done = profile(script)
    assert ok(done).record["autocast"] == "float16"
    assert "not written" in done.err


@pytest.mark.once
@pytest.mark.parametrize(
    "words",
    [
        ("train_mlp.py", "--hidden", "256"),
        ("train_gpt.py", "--batch", "2", "--sequence", "32", "--layers", "1", "--width", "32", "--heads", "2"),
    ],
)
@pytest.mark.slow
def test_examples(profile, words):
    trace = ok(profile("", command=[sys.executable, str(ROOT / "examples" / words[0]), *words[1:]]))
    assert trace.record["steps"] == 3 and trace.record["asked_device"] == "cuda"


@pytest.mark.slow
@pytest.mark.once
def test_example_resnet(profile):
    if find_spec("torchvision") is None:
        pytest.skip("no torchvision")
    words = ["--model", "resnet18", "--batch", "2", "--image-size", "64", "--amp", "--channels-last", "--workers", "2"]
    trace = ok(profile("", command=[sys.executable, str(ROOT / "examples/train_resnet50.py"), *words]))
    assert trace.record["autocast"] == "bfloat16" and trace.record["batch_size"] == 2


# ---- several processes ----------------------------------------------------------------------------------------------------------


@pytest.mark.once
@pytest.mark.slow
def test_torchrun(profile):
    script = """
import os
import torch
import torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 10).to(rank), device_ids=[rank])
optimizer = torch.optim.Adam(model.parameters())
while True:
    loss = model(torch.randn(8, 64).to(rank)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach())
    dist.barrier(device_ids=[rank])
"""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    done = profile(script, command=launcher, name="trace.json.gz")
    assert (ok(done).record["rank"], done.trace.record["world_size"]) == (0, 2)
    other = Trace(done.path.with_name("trace.rank1.json.gz"))
    assert other.record["rank"] == 1 and other.record["steps"] == 3


@pytest.mark.slow
@pytest.mark.once
def test_a_check_before_the_job_is_not_the_job(profile):
    check = f"{sys.executable} -c 'import torch; torch.zeros(3)'"
    done = profile(train_script(), command=["sh", "-c", f"{check} && {sys.executable} train.py"])
    assert ok(done).record["steps"] == 3
    assert "PythonTracer" not in done.err


# ---- ends -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.once
@pytest.mark.slow
def test_shell_does_not_go_on(profile):
    for steps in (2, 100):
        ok(profile(train_script(steps=steps), command=["sh", "-c", f"{sys.executable} train.py && touch uploaded; touch after"]))
        assert [path.name for path in profile.job.iterdir()] == ["train.py"]


@pytest.mark.once
def test_script_ends_early_and_writes_no_checkpoint(profile):
    checkpoint = profile.job / "model.pt"
    checkpoint.write_bytes(b"real")
    done = profile(train_script(steps=2, after_step="torch.save(model.state_dict(), 'model.pt')"))
    assert ok(done).record["end_reason"] == "script_end"
    assert "ended after 2 of 3 optimizer steps" in done.err
    assert checkpoint.read_bytes() == b"real" and "not written" in done.err and "virtual GPU" not in done.err


@pytest.mark.once
def test_script_raises(profile):
    done = profile(train_script(after_step="if step == 1: raise ValueError('bad batch')"))
    assert done.code == 2 and "ValueError: bad batch" in done.err and "_gpucast" not in done.err
    assert (done.trace.record["steps"], done.trace.record["end_reason"]) == (2, "exception")


@pytest.mark.slow
@pytest.mark.once
def test_own_exit_code(profile):
    done = profile(train_script(steps=2, at_end="raise SystemExit(7)"))
    assert done.code == 2 and "exit code 7" in done.err and done.trace.record["steps"] == 2


@pytest.mark.once
def test_script_is_killed(profile):
    done = profile(train_script(after_step="import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))
    assert done.code == 2 and "signal 11" in done.err and not done.path.exists()


@pytest.mark.once
def test_no_optimizer_step(profile):
    done = profile("import torch\nmodel = torch.nn.Linear(3, 3)\nmodel(torch.randn(2, 3))")
    assert ok(done).record["steps"] == 0 and "no optimizer step was made" in done.err


@pytest.mark.once
@pytest.mark.slow
def test_timeout(profile):
    done = profile(train_script(steps=1, at_end="import time; time.sleep(1000)"), "--timeout", "20")
    assert ok(done).record["end_reason"] == "timeout" and done.trace.record["steps"] == 1


@pytest.mark.once
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("print(1)", "without importing PyTorch"),
        (WITHOUT_TORCH, "PyTorch is not installed in this Python"),
        ("import torch; torch.zeros(3)", "ran no module"),
        pytest.param("import torch; raise KeyError('lr')", "before a module ran", marks=pytest.mark.slow),
        ("import nowhere", "before it imported PyTorch"),
    ],
)
def test_nothing_to_profile(profile, script, message):
    done = profile(script)
    assert done.code == 2 and done.out == "" and message in done.err and "internal error" not in done.err
    assert not done.path.exists()


@pytest.mark.once
def test_output_exists(gpucast_bin, tmp_path):
    output = tmp_path / "trace.json"
    output.write_text("mine")
    words = [gpucast_bin, "profile", "-o", str(output), "--", "touch", str(tmp_path / "started")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "the output file exists" in done.stderr and "--force" in done.stderr
    assert output.read_text() == "mine" and not (tmp_path / "started").exists()
    done = subprocess.run([gpucast_bin, "profile", "-o", str(tmp_path), "--", "true"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "-o trace.json" in done.stderr


@pytest.mark.once
def test_interrupted(gpucast_bin, tmp_path):
    (tmp_path / "train.py").write_text(train_script(steps=10**9, after_step="print('step', step, flush=True)"))
    words = [gpucast_bin, "profile", "--steps", "1000000", "--", "sh", "-c", f"sleep 1000 & {sys.executable} train.py; touch after"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("step 3"):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and out == "" and "interrupted" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tmp", "train.py"]


# ---- other commands point here ----------------------------------------------------------------------------------------------------


@pytest.mark.once
def test_cpu_only_torch_is_told(gpucast_bin, fake_torch, tmp_path):
    fake_torch("2.13.0+cpu")
    (tmp_path / "fake/torch/__init__.py").write_text("from . import version\n__version__ = version.__version__\n")
    run = [gpucast_bin, "run", "--", sys.executable, "-c", "import torch"]
    for words in (run, [gpucast_bin, "doctor", "--python", sys.executable]):
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "gpucast profile -- python train.py" in done.stdout + done.stderr, words
