"""What a capture holds: exact peaks, exact places of marks, known sums, and an allocator that does not notice us."""

import json
import subprocess
import sys
from importlib.util import find_spec
from itertools import groupby

import pytest
from conftest import ROOT, train_script

PRINT_PEAKS = """
import torch
def print_peaks():
    print(f"allocated={torch.cuda.max_memory_allocated()}", flush=True)
    print(f"reserved={torch.cuda.max_memory_reserved()}", flush=True)
"""


def positions_are_exact(capture):
    """Every mark lies between the right allocator events: counting as readers do, and its tensors are alive there."""
    allocs = frees = 0
    live = {}
    marks = []
    for event in capture.events:
        if event[0] == "alloc":
            allocs += 1
            live[event[1]] = event[2]
        elif event[0] == "free_requested":
            frees += 1
            assert live.pop(event[1]) == event[2]
        elif event[0] == "mark":
            assert (event[2], event[3]) == (allocs, frees), event
            marks.append(event[1])
        elif event[0] == "tensor":
            assert event[1] == marks[-1]
            # A storage may be a part of a block (a view of flattened parameters), never outside of one.
            assert any(address <= event[3] and event[3] + event[4] <= address + size for address, size in live.items()), event
    assert marks == sorted(marks)


# ---- peaks -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["last step", "script end"])
def test_peaks_are_pytorchs(gpucast, where):
    if where == "last step":
        # A hook of the optimizer's own runs before the hook that ends the capture.
        script = PRINT_PEAKS + train_script().replace("for step", "optimizer.register_step_post_hook(lambda *_: print_peaks())\nfor step")
    else:
        script = PRINT_PEAKS + train_script(steps=2, at_end="print_peaks()")
    done = gpucast(script)
    assert done.code == 0, done.err
    last = done.err.rindex("allocated=")
    done.err = done.err[last:]
    assert done.report["peak"]["allocated_bytes"] == done.printed("allocated") > 0
    assert done.report["peak"]["reserved_bytes"] == done.printed("reserved") > 0
    stats = done.capture.one("end")["torch_stats"]
    assert stats["peak_reserved_bytes"] == done.printed("reserved")


def test_users_resets_do_not_move_anything(gpucast):
    resets = """torch.cuda.reset_peak_memory_stats()
torch.cuda.reset_accumulated_memory_stats()
torch.cuda.memory._record_memory_history(enabled=None)
torch.cuda.memory._record_memory_history(max_entries=5)"""
    plain = gpucast(train_script())
    done = gpucast(train_script(after_step=resets))
    assert done.code == 0, done.err
    assert done.report["peak"]["allocated_bytes"] == plain.report["peak"]["allocated_bytes"]
    positions_are_exact(done.capture)
    assert len(done.capture.marks("stats_reset")) == 4  # after steps 1 and 2
    assert done.capture.one("end")["torch_stats"] == plain.capture.one("end")["torch_stats"]
    assert [line["code"] for line in done.capture.all("warning")] == ["memory_history_kept"]


def test_users_snapshot_keeps_working(gpucast):
    script = train_script(after_step="torch.cuda.memory._dump_snapshot('s.pickle')\nassert torch.cuda.memory._snapshot()['segments']")
    done = gpucast(script)
    assert done.code == 0, done.err
    assert (gpucast.job / "s.pickle").stat().st_size > 0


# ---- known sums ------------------------------------------------------------------------------------------------------------------


def test_mlp_on_paper(gpucast):
    done = gpucast(train_script())
    assert done.code == 0, done.err
    capture = done.capture
    shapes = {"0.weight": 512 * 256, "0.bias": 512, "2.weight": 256 * 512, "2.bias": 256, "4.weight": 10 * 256, "4.bias": 10}
    expected = {name: 4 * count for name, count in shapes.items()}
    assert capture.tensors("parameter") == expected
    assert capture.tensors("gradient") == expected
    adam = {f"{name}.{key}": size for name, size in expected.items() for key in ("exp_avg", "exp_avg_sq")}
    assert capture.tensors("optimizer_state") == adam
    # The batch is the model's input, the labels are the loss function's; here that is a function, no module.
    assert capture.tensors("input") == {"0": 64 * 256 * 4}
    rounded = sum((size + 511) // 512 * 512 for size in expected.values())
    categories = {entry["name"]: entry["bytes"] for entry in done.report["categories"]}
    assert categories["parameters"] == rounded
    assert categories["optimizer_state"] == 2 * rounded
    assert sum(categories.values()) == done.report["peak"]["allocated_bytes"]


def test_marks_of_a_step(gpucast):
    capture = gpucast(train_script()).capture
    positions_are_exact(capture)
    kinds = ("phase_begin", "phase_end", "step")
    phases = [(mark[5], mark[6]) for mark in capture.of("mark") if mark[5] in kinds]
    one = [
        *[("phase_begin", "zero_grad"), ("phase_end", "zero_grad")],
        *[("phase_begin", "forward"), ("phase_end", "forward")],
        *[("phase_begin", "backward"), ("phase_end", "backward")],
        *[("phase_begin", "optimizer_step"), ("phase_end", "optimizer_step")],
    ]
    expected = [("phase_begin", "model_to_device"), ("phase_end", "model_to_device")]
    for step in (1, 2, 3):
        expected += [*one, ("step", step)]
    assert phases == expected
    modules = {module["id"]: module for module in capture.all("module")}
    names = {number: module["name"] for number, module in modules.items()}
    assert list(names.values()) == ["", "0", "1", "2", "3", "4"]
    assert all(module["parent"] == (-1 if module["name"] == "" else 1) for module in modules.values())
    forward = [names[value] for _, _, _, value in capture.marks("module_begin")]
    assert forward == ["", "0", "1", "2", "3", "4"] * 3
    backward = [names.get(value, "outside") for _, _, _, value in capture.marks("module_backward")]
    assert [name for name, _ in groupby(backward)] == ["outside", "4", "3", "2", "1", "0"] * 3
    nodes = [mark[7] for mark in capture.of("mark") if mark[5] == "module_backward"]
    assert nodes[:3] == ["NllLossBackward0", "LogSoftmaxBackward0", "AddmmBackward0"]
    assert "AccumulateGrad" not in " ".join(nodes)
    end = capture.one("end")
    assert end["reason"] == "steps" and end["optimizer_steps"] == 3
    assert sum(segment[1] for segment in end["segments"]) == end["torch_stats"]["reserved_bytes"]


def test_stacks_name_the_users_lines(gpucast):
    capture = gpucast(train_script()).capture
    stacks = {stack["id"]: stack["frames"] for stack in capture.all("stack")}
    files = {frame[0] for frames in stacks.values() for frame in frames}
    assert any(name.endswith("train.py") for name in files)
    assert not any("/python/gpucast/" in name for name in files)
    assert all(event[4] in stacks for event in capture.of("alloc") if event[4] != -1)
    named = [event for event in capture.of("alloc") if event[4] != -1]
    assert len(named) > len(capture.of("alloc")) / 2
    assert len({json.dumps(frames) for frames in stacks.values()}) == len(stacks)


# ---- steps -----------------------------------------------------------------------------------------------------------------------


def test_steps_option(gpucast):
    done = gpucast(train_script(), "--steps", "5")
    assert [value for _, _, _, value in done.capture.marks("step")] == [1, 2, 3, 4, 5]


def test_a_backward_in_a_function_mode_is_one(gpucast):
    """PyTorch calls torch.autograd.backward again for the mode."""
    mode = """
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))
"""
    script = train_script().replace("loss.backward()", "(Mode().__enter__(), torch.autograd.backward(loss))")
    usual, inside = gpucast(train_script()).capture, gpucast("import torch" + mode + script).capture
    assert [value for *_, value in inside.marks("phase_begin")] == [value for *_, value in usual.marks("phase_begin")]


def test_a_backward_by_the_engine_itself(gpucast):
    """Megatron's pipelines call it past torch.autograd.backward."""
    call = "torch.autograd.Variable._execution_engine.run_backward((loss,), (torch.ones_like(loss),), False, False, (), True, True)"
    usual, direct = gpucast(train_script()).capture, gpucast(train_script().replace("loss.backward()", call)).capture
    for kind in ("phase_begin", "phase_end", "module_backward"):
        assert [mark[3] for mark in direct.marks(kind)] == [mark[3] for mark in usual.marks(kind)]


def test_no_step_at_all(gpucast):
    done = gpucast("import torch\nx = torch.ones(1000, 1000, device='cuda')\ny = x @ x")
    assert done.code == 0, done.err
    assert done.capture.one("end")["reason"] == "script_end"
    assert any("step" in warning["message"] for warning in done.report["warnings"])


def test_gradient_accumulation(gpucast):
    script = (
        train_script()
        .replace("optimizer.zero_grad()", "")
        .replace("optimizer.step()", "if step % 4 == 3: optimizer.step(); optimizer.zero_grad()")
    )
    capture = gpucast(script).capture
    assert len(capture.marks("step")) == 3
    assert sum(value == "backward" for _, _, _, value in capture.marks("phase_begin")) == 12


def test_grad_scaler(gpucast):
    script = (
        train_script()
        .replace("for step", "scaler = torch.amp.GradScaler('cuda')\nfor step")
        .replace("loss = ", "with torch.autocast('cuda', torch.float16):\n        loss = ")
        .replace("loss.backward()", "scaler.scale(loss).backward()")
        .replace("optimizer.step()", "scaler.step(optimizer); scaler.update()")
    )
    done = gpucast(script)
    assert done.code == 0, done.err
    assert len(done.capture.marks("step")) == 3
    positions_are_exact(done.capture)


TWO_OPTIMIZERS = """
import torch
from torch import nn
a, b = nn.Linear(64, 64).cuda(), nn.Linear(64, 64).cuda()
first, second = torch.optim.Adam(a.parameters()), torch.optim.Adam(b.parameters())
for i in range(100):
    for _ in range(FIRST):
        first.zero_grad()
        a(torch.randn(8, 64, device="cuda")).sum().backward()
        first.step()
    second.zero_grad()
    b(a(torch.randn(8, 64, device="cuda"))).sum().backward()
    second.step()
"""


@pytest.mark.parametrize("first", [1, 5])
def test_two_optimizers(gpucast, first):
    capture = gpucast(TWO_OPTIMIZERS.replace("FIRST", str(first))).capture
    assert [value for _, _, _, value in capture.marks("step")] == [1, 2, 3]
    updates = sum(value == "optimizer_step" for _, _, _, value in capture.marks("phase_begin"))
    assert updates == 3 * (first + 1)
    assert sum(name.endswith("exp_avg") for name in capture.tensors("optimizer_state")) == 2  # both are "weight", "bias"


def test_optimizer_that_never_steps(gpucast):
    script = train_script().replace("for step", "warm_up = torch.optim.SGD(model.parameters(), lr=1.0)\nfor step")
    capture = gpucast(script).capture
    assert [value for _, _, _, value in capture.marks("step")] == [1, 2, 3]
    assert capture.one("end")["optimizer_steps"] == 3


# ---- the allocator does not notice us -----------------------------------------------------------------------------------------------

# Records the history itself, under `gpucast run`'s environment without our hooks: `bare` only loads the libraries.
BARE = """
import json, os, sys
if MODE == "bare":
    import _gpucast.capture as capture
    capture.after_torch = lambda module: None
import torch
if MODE == "bare":
    torch.cuda.memory._record_memory_history(enabled="all", context=None)
    import atexit
    def dump():
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        json.dump([[e["action"], e.get("addr", 0), e["size"], e["stream"]] for e in trace], open("bare.json", "w"))
    atexit.register(dump)
"""

MODELS = {
    "resnet": """
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.conv2, self.bn2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.relu = nn.ReLU(inplace=True)
    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x
        return self.relu(y)
model = nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), Block(32), nn.MaxPool2d(2), Block(32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()
for i in range(3):
    x, y = torch.randn(8, 3, 64, 64, device="cuda"), torch.zeros(8, dtype=torch.long, device="cuda")
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    penalty = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
""",
    "transformer": """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
    def forward(self, hidden, *, scale=1.0):
        q, k, v = self.qkv(self.norm1(hidden)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in (q, k, v))
        hidden = hidden + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)) * scale
        return hidden + self.mlp(self.norm2(hidden))
class Model(nn.Module):
    def __init__(self, d=128):
        super().__init__()
        self.embed, self.head = nn.Embedding(1000, d), nn.Linear(d, 1000, bias=False)
        self.layers = nn.ModuleList(Layer(d) for _ in range(4))
        self.head.weight = self.embed.weight
    def forward(self, tokens):
        h = self.embed(tokens)
        h = self.layers[0](hidden=h)
        h = checkpoint(self.layers[1], h, use_reentrant=False)
        h = checkpoint(self.layers[2], h, use_reentrant=True)
        h = self.layers[3](hidden=h * 2)
        return {"logits": self.head(h)}
model = Model().to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for i in range(3):
    for _ in range(2):
        tokens = torch.zeros(4, 64, dtype=torch.long).pin_memory().to("cuda", non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):  # PyTorch empties the cache in the order of host addresses
            logits = model(tokens=tokens)["logits"]
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""",
}


@pytest.mark.parametrize("model", [pytest.param(model, marks=pytest.mark.slow) if model == "resnet" else model for model in MODELS])
def test_allocator_history_is_the_same_without_us(gpucast, model):
    hooked = gpucast('MODE = "hooked"\n' + BARE + MODELS[model], "--steps", "100")
    assert hooked.code == 0, hooked.err
    gpucast('MODE = "bare"\n' + BARE + MODELS[model], keep=False)
    names = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free")
    bare = [event for event in json.loads((gpucast.job / "bare.json").read_text()) if event[0] in names]
    assert len(bare) > 300
    assert hooked.capture.allocator() == bare
    positions_are_exact(hooked.capture)
    assert hooked.capture.all("warning") == []


def test_backward_modules(gpucast):
    """Each operator's backward belongs to the module of its forward, residual additions to the block around."""
    capture = gpucast(MODELS["resnet"]).capture
    names = {module["id"]: module["name"] or module["type"] for module in capture.all("module")}
    passes = []
    for mark in capture.of("mark"):
        if mark[5:] == ["phase_begin", "backward"]:
            passes.append([])
        elif mark[5] == "module_backward":
            name = names.get(mark[6], "outside")
            passes[-1] += [name] if passes[-1][-1:] != [name] else []  # several nodes of one module
    assert len(passes) == 6 and passes[0] == passes[2] == passes[4] and passes[1] == passes[3] == passes[5]
    assert passes[1] == [
        *["CrossEntropyLoss", "6", "5", "4"],
        *["3.relu", "3", "3.bn2", "3.conv2", "3.relu", "3.bn1", "3.conv1"],
        *["2", "1.relu", "1", "1.bn2", "1.conv2", "1.relu", "1.bn1", "1.conv1", "0"],
    ]


def test_checkpointed_forward_nests_in_backward(gpucast):
    capture = gpucast(MODELS["transformer"]).capture
    depth, nested = [], 0
    for mark in capture.of("mark"):
        if mark[5] == "phase_begin":
            nested += mark[6] == "forward" and "backward" in depth
            depth.append(mark[6])
        elif mark[5] == "phase_end":
            assert depth.pop() == mark[6]
    assert nested >= 2 * 6  # two checkpointed layers, six passes
    assert capture.tensors("input")["tokens"] == 4 * 64 * 8


def test_exception_leaves_no_open_count(gpucast):
    script = train_script(after_step="try:\n    model(torch.zeros(1, 3, device='cuda'))\nexcept RuntimeError:\n    pass")
    done = gpucast(script)
    assert done.code == 0, done.err
    begun = [value for _, _, _, value in done.capture.marks("module_begin")]
    ended = [value for _, _, _, value in done.capture.marks("module_end")]
    assert sorted(begun) == sorted(ended)


def test_a_hook_that_fails_is_switched_off(gpucast):
    """A model whose modules cannot be walked: the script must not notice us."""
    script = (
        train_script()
        .replace(
            '.to("cuda")\noptimizer',
            "\ndef broken(*_, **__):\n    raise RuntimeError('not now')\nmodel.named_modules = broken\nmodel.to('cuda')\noptimizer",
        )
        .replace("Adam(model.parameters()", "Adam([p for layer in model for p in layer.parameters()]")
    )
    done = gpucast(script)
    assert done.code == 0, done.err
    warnings = done.capture.all("warning")
    assert {warning["code"] for warning in warnings} == {"hook_failed"}
    assert all("not now" in warning["message"] for warning in warnings) and 1 <= len(warnings) <= 3
    assert len(done.capture.marks("step")) == 3


# ---- examples ----------------------------------------------------------------------------------------------------------------------

EXAMPLES = {"train_mlp.py": [], "train_gpt.py": [], "train_ncf.py": [], "train_resnet50.py": ["--batch", "8"]}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_peaks_are_pytorchs(gpucast, name):
    if name == "train_resnet50.py" and find_spec("torchvision") is None:
        pytest.skip("no torchvision")
    script = (
        PRINT_PEAKS
        + f"""
import runpy, sys
torch.optim.Optimizer.register_step_post_hook
from torch.optim.optimizer import register_optimizer_step_post_hook
construct = torch.optim.Optimizer.__init__
def with_hook(self, *args, **kwargs):
    construct(self, *args, **kwargs)
    self.register_step_post_hook(lambda *_: print_peaks())
torch.optim.Optimizer.__init__ = with_hook
sys.argv = [{str(ROOT / "examples" / name)!r}, *{EXAMPLES[name]!r}]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    )
    done = gpucast(script, "--gpu", "rtx3060")
    assert done.code in (0, 1), done.err
    assert len(done.capture.marks("step")) == 3, "blocks of ResNet-50 become larger in step 3, but its tensors do not"
    done.err = done.err[done.err.rindex("allocated=") :]
    assert done.report["peak"]["allocated_bytes"] == done.printed("allocated") > 0
    assert done.report["peak"]["reserved_bytes"] == done.printed("reserved") > 0
    positions_are_exact(done.capture)
    assert [line for line in done.capture.all("warning") if line["code"] == "hook_failed"] == []


def test_analyze_gives_the_same_report(gpucast, gpucast_bin, tmp_path):
    done = gpucast(train_script(), "--gpu", "rtx3060")
    (capture,) = tmp_path.glob("*.gpucast")
    again = subprocess.run([gpucast_bin, "analyze", str(capture), "--format", "json"], capture_output=True, text=True)
    assert again.returncode == done.code
    assert json.loads(again.stdout) == done.report


def test_the_python_that_ran(gpucast):
    process = gpucast(train_script(), arguments=["--lr", "0.1"]).capture.one("process")
    assert process["argv"] == ["train.py", "--lr", "0.1"]
    assert process["python"] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.once
def test_the_snapshot_imports_no_compiler(gpucast):
    """PyTorch 2.12 and newer import torch._inductor when they look up stacks: seconds at the end of a script that never used it."""
    script = "import torch\nwith torch.no_grad():\n    torch.nn.Linear(9, 9).cuda().eval()(torch.randn(4, 9, device='cuda'))\n"
    run = gpucast(script, "--until-end", command=[sys.executable, "-X", "importtime", "train.py"], fresh=True)
    assert "torch.nn" in run.err and "torch._inductor" not in run.err
    assert run.capture.of("alloc")
