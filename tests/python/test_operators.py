"""One step's operators in a capture: each launch has one, and a script that profiles itself goes first. That the allocator's history is the
same without them is in test_capture.py, with all other hooks."""

from bisect import bisect_right

import pytest

SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5)).cuda()
model(torch.zeros(2, 3, 16, 16, device="cuda"))
optimizer = torch.optim.AdamW(model.parameters())
{before}
for step in range({steps}):
    loss = model(torch.randn(4, 3, 16, 16).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {inside}
{after}
"""


def script(steps=4, before="", inside="", after=""):
    return SCRIPT.format(steps=steps, before=before, inside=inside, after=after)


def launches(capture):
    """(time_ns, what) of the work between the marks, on the operators' clock."""
    (record,) = capture.all("operators")
    shift = capture.one("clock")["unix_ns"] - record["unix_ns"]
    mark, out = 0, []
    for line in capture.events:
        if line[0] == "vgpu_mark":
            mark = line[1]
        elif line[0] in ("kernel", "call", "memcpy", "memset") and record["marks"][0] <= mark < record["marks"][1]:
            out.append((line[6 if line[0] == "memcpy" else -1] + shift, line[0]))
    return out


@pytest.mark.parametrize(("options", "step"), [((), 2), (("--steps", "2"), 2), (("--steps", "1"), 1)])
def test_each_launch_of_a_step_has_an_operator(gpucast, options, step):
    run = gpucast(script(), *options)
    assert run.report["warnings"] == []
    capture = run.capture
    (record,) = capture.all("operators")
    assert record["step"] == step
    assert record["tf32"] == {"cublas": False, "cudnn": True}
    kinds = {line[1]: (line[2], line[3]) for line in capture.of("operator_kind")}
    calls = [line[1:] for line in capture.of("operator")]
    starts = [start for _, _, start, _ in calls]
    assert starts == sorted(starts)
    assert starts[0] == 0
    work = launches(capture)
    assert len(work) > 20
    for time, what in work:
        around = [call for call in calls[: bisect_right(starts, time)] if time <= call[2] + call[3]]
        assert around, what
    names = {kinds[call[0]][0] for call in calls}
    assert {"aten::cudnn_convolution", "aten::convolution_backward", "aten::addmm"} <= names
    inputs = [str(inputs[:2]) for name, inputs in kinds.values() if name == "aten::cudnn_convolution"]
    assert str([{"float32": [[4, 3, 16, 16], [768, 256, 16, 1]]}, {"float32": [[8, 3, 3, 3], [27, 9, 3, 1]]}]) in inputs


EVALUATION = "(model.eval(), [torch.no_grad()(model)(torch.zeros(4, 3, 16, 16).cuda()) for _ in range(8)], model.train())"


@pytest.mark.parametrize(
    ("inside", "step"), [(f"step % 50 == 0 and {EVALUATION}", 3), (f"step % 2 == 0 and {EVALUATION}", 3), (EVALUATION, 2)]
)
def test_a_step_without_the_evaluation_after_the_first_step(gpucast, inside, step):
    """A script that evaluates in every step keeps its second one."""
    capture = gpucast(script(inside=inside)).capture
    (record,) = capture.all("operators")
    assert record["step"] == step
    kinds = {line[1]: line[2] for line in capture.of("operator_kind")}
    names = [kinds[line[1]] for line in capture.of("operator")]
    assert names.count("aten::cudnn_convolution") == (9 if step == 2 else 1)


def test_a_tensor_that_is_there_twice_says_so(gpucast):
    run = gpucast(script(inside="(model[0].weight * model[0].weight).add_(model[0].weight)"))
    once, again = ({"float32": [[8, 3, 3, 3], [27, 9, 3, 1], *word]} for word in ([], ["again"]))
    kinds = [(name, inputs[:2]) for _, _, name, inputs in run.capture.of("operator_kind")]
    assert ("aten::mul", [once, again]) in kinds
    assert ("aten::add_", [once, once]) in kinds


def test_a_script_that_profiles_itself_goes_first(gpucast):
    profiled = gpucast(
        script(
            before="profiler = torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=2))\nprofiler.start()",
            inside="profiler.step()",
            after="profiler.stop(); print('seen=%d' % len(profiler.events()))",
        ),
        "--steps",
        "9",
    )
    assert profiled.code == 0, profiled.err
    assert profiled.printed("seen") > 20
    assert not profiled.capture.all("warning")
    assert not profiled.capture.all("operators")


def test_a_profiler_that_began_before_cuda_keeps_its_trace(gpucast):
    first = "import torch\nprofiler = torch.profiler.profile()\nprofiler.start()\n"
    profiled = gpucast(first + script(after="profiler.stop(); print('seen=%d' % len(profiler.events()))"), "--steps", "9")
    assert profiled.code == 0, profiled.err
    assert profiled.printed("seen") > 20
    assert not profiled.capture.all("operators")


def test_nothing_of_a_step_that_was_not_whole(gpucast):
    capture = gpucast(script(steps=1)).capture
    assert not capture.all("operators")
    assert not capture.of("operator", "operator_kind")


@pytest.mark.once
def test_a_step_that_is_very_long_is_given_up(gpucast):
    run = gpucast("import os\nos.environ['GPUCAST_OBSERVE_S'] = '0'\n" + script())
    assert run.code == 0
    assert not run.capture.all("operators")
    assert run.report["warnings"] == []


def test_nothing_is_said_on_standard_error(gpucast):
    run = gpucast(script())
    assert "USDT" not in run.err
    assert not run.capture.all("warning")


RANGES = """
import contextlib
import torch

held = []

@contextlib.contextmanager
def ranges():
    with contextlib.ExitStack() as opened:
        for number in range(100):
            opened.enter_context(torch.autograd.profiler.record_function(f"range {number}"))
        yield
        held.extend(bytearray(size) for size in range(70_000, 80_000, 16))  # malloc gives them what PyTorch has freed

model = torch.nn.Linear(64, 8).cuda()
batch = torch.randn(32, 64, device="cuda")
"""

WITHOUT_OPTIMIZER = """
for _ in range(8):  # passes that may be steps: a profiler runs from each to the next
    with ranges():
        model(batch).square().mean().backward()
"""

# As torchtitan: a graph is captured in the step that is observed, so that a profiler runs in the next step, too.
GRAPH_IN_A_STEP = """
optimizer = torch.optim.AdamW(model.parameters())
graph = torch.cuda.CUDAGraph()
for step in range(4):
    if step == 0:
        model(batch).square().mean().backward()
    elif step == 1:
        with torch.cuda.graph(graph):
            model(batch).square().mean().backward()
    if step > 0:
        graph.replay()
    for _ in range(5000):  # the first operators of the next step do not fill the memory of this one
        batch + 1
    with ranges():
        optimizer.step()
"""


@pytest.mark.once
@pytest.mark.parametrize("steps", [WITHOUT_OPTIMIZER, GRAPH_IN_A_STEP], ids=["without an optimizer", "a graph in a step"])
def test_a_range_of_the_script_ends_after_the_profiler_under_which_it_began(gpucast, steps):
    """PyTorch frees a profiler's memory at its end. A range that ends under the next profiler would write to it."""
    run = gpucast(RANGES + steps + 'print("written=%d" % sum(any(memory) for memory in held))', "--until-end")
    assert run.code == 0, run.err
    assert run.printed("written") == 0
