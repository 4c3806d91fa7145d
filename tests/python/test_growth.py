"""Memory that grows from step to step: what is growth and what is not, who holds it, and that looking does not change it."""

import subprocess
import sys

import pytest
from conftest import CYCLES, Capture

LOOP = """
import collections
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
def main():
    for step in range(40):
        batch = torch.randn(1024, 256, device="cuda")
        out = model(batch)
        loss = out.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {after}

main()
"""
OUTPUT_BYTES = 1024 * 256 * 4


def script(before, after):
    return LOOP.format(before=before, after=after)


@pytest.mark.once
def test_outputs_in_a_list_grow(gpucast):
    text = script("outputs = []", "outputs.append(out)")
    done = gpucast(text)
    growth = done.report["growth"]
    assert (done.code, done.report["verdict"], growth["bytes_per_step"]) == (0, "grows", OUTPUT_BYTES)
    holder = growth["holders"][0]
    assert (holder["name"], holder["container"], holder["graph"]) == ("outputs", "list", True)
    line = text.splitlines().index("        outputs.append(out)") + 1
    assert [kept.rpartition(":")[2] for kept in holder["kept_at"]] == [str(line)]
    assert holder["made"][0]["module"] == "2 (Linear)"
    assert growth["oom_step"] > 1000 and growth["oom_step_exact"]


@pytest.mark.once
def test_a_script_that_has_ended_still_has_its_lines(gpucast_bin, tmp_path):
    """In a process of its own: there Python deletes the name of the script's file at the end."""
    (tmp_path / "ends.py").write_text(CYCLES)
    capture = tmp_path / "ends.gpucast"
    command = [gpucast_bin, "run", "--steps", "5", "-o", str(capture), "--", sys.executable, "ends.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=240)
    (record,) = (line for line in Capture(capture).lines if isinstance(line, dict) and line.get("record") == "holders")
    (holder,) = (holder for holder in record["holders"] if holder["name"] == "node.tensor")
    line = next(number for number, text in enumerate(CYCLES.splitlines(), 1) if "node.tensor" in text)
    assert [kept.rpartition(":")[2] for kept in holder["kept_at"]] == [str(line)]


@pytest.mark.once
def test_looking_at_holders_changes_no_allocation(gpucast):
    """The run that goes on by itself, and one with a number of steps, which never looks before its end."""
    text = script("outputs = collections.defaultdict(list)", "outputs[step % 2].append(out)")
    looked = gpucast(text)
    steps = looked.report["steps"]
    assert looked.report["verdict"] == "grows" and steps > 3
    plain = gpucast(text, "--steps", str(steps))

    def events(run):
        return [event[:4] for event in run.capture.events if event[0] in ("alloc", "free_requested", "segment_alloc")]

    assert events(looked) == events(plain)


@pytest.mark.once
def test_a_buffer_with_a_greatest_length_fills(gpucast):
    done = gpucast(script("buffer = collections.deque(maxlen=100)", "buffer.append(batch.clone())"))
    assert done.report["verdict"] == "fits"
    assert [warning["code"] for warning in done.report["warnings"]] == ["memory_fills"]
    assert done.report["growth"]["fills_bytes"] == (100 - done.report["growth"]["holders"][0]["length"]) * OUTPUT_BYTES


@pytest.mark.once
def test_a_list_that_drops_its_oldest_entries_is_no_growth(gpucast):
    done = gpucast(script("buffer = []", "buffer.append(batch.clone()); buffer[:] = buffer[-9:]"))
    assert (done.report["verdict"], done.report["growth"]) == ("fits", None)


@pytest.mark.once
def test_steps_of_the_job(gpucast, gpucast_bin):
    run = gpucast(script("outputs = []", "outputs.append(out.detach())"), "--steps-total", "1000000")
    assert run.code == 1
    for steps, code in ((1000, 0), (1_000_000, 1)):
        words = [gpucast_bin, "analyze", run.capture_path, "--steps-total", str(steps)]
        assert subprocess.run(words, capture_output=True, timeout=60).returncode == code


@pytest.mark.once
def test_steps_after_a_search_for_the_learning_rate(gpucast):
    """Its optimizer is alive, and never steps again."""
    done = gpucast(script("finder = torch.optim.SGD(model.parameters(), lr=1)\nfor _ in range(5): finder.step()", ""), "--steps", "12")
    assert done.report["steps"] == 12
    assert sum(event[0] == "mark" and event[5] == "step" for event in done.capture.events) == 12


@pytest.mark.once
def test_a_list_that_is_filled_up_to_a_length_is_no_growth(gpucast):
    done = gpucast(script("items = []", "if len(items) < 15: items.append(out.detach())"))
    assert (done.code, done.report["verdict"]) == (0, "fits")
    assert done.report["steps"] > 15


EPOCHS = """
import torch

model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    out = model(torch.randn(1024, 256, device="cuda"))
    optimizer.zero_grad()
    out.pow(2).mean().backward()
    optimizer.step()
    return out.detach()

def epoch():
    outputs = []
    for _ in range(14):
        outputs.append(step())
    return torch.cat(outputs).mean()

"""


@pytest.mark.once
def test_a_list_of_one_epoch_is_no_growth(gpucast):
    done = gpucast(EPOCHS + "for _ in range(5): epoch()")
    assert (done.code, done.report["verdict"]) == (0, "fits")
    assert done.report["steps"] > 14


@pytest.mark.once
def test_a_list_of_a_function_that_is_called_once_grows(gpucast):
    done = gpucast(EPOCHS.replace("range(14)", "range(100)") + "epoch()")
    assert (done.code, done.report["verdict"]) == (0, "grows")
    assert done.report["growth"]["bytes_per_step"] == OUTPUT_BYTES


@pytest.mark.once
def test_a_queue_that_is_cut_is_no_growth(gpucast):
    queue = """
queue = torch.empty(0, 256, device="cuda")
for _ in range(60):
    queue = torch.cat([queue, step()])[-16 * 1024:]
"""
    done = gpucast(EPOCHS + queue)
    assert (done.code, done.report["verdict"]) == (0, "fits")
    assert done.report["steps"] > 16


@pytest.mark.once
def test_an_optimizer_for_each_step_is_counted(gpucast):
    made = """
kept = []
for _ in range(2000):
    optimizer = torch.optim.Adam(model.parameters())
    kept.append(optimizer)
    step()
"""
    done = gpucast(EPOCHS + made)
    assert (done.code, done.report["verdict"]) == (0, "grows")
    assert done.report["steps"] <= 60


HOLDERS = """
import functools

class Memory(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("past", torch.empty(0, 256, device="cuda"))

    def forward(self, x):
        self.past = torch.cat([self.past, x.detach()])  # past
        return x

class Results:
    seen = []

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.doubled = x * 2  # a cycle: Python's garbage collector frees it
        return ctx.doubled

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2

@functools.lru_cache(maxsize=None)  # cache
def mask(key):
    return torch.ones(512, 512, device="cuda")

def fails(out):
    noise = torch.randn_like(out)
    raise ValueError("bad batch")

memory = torch.nn.Sequential(Memory())
errors = []
for number in range(200):
    out = memory(step())
    mask(number)
    Results.seen.append(out[:512].clone())  # seen
    Double.apply(torch.randn(64, 256, device="cuda", requires_grad=True)).sum().backward()
    try:
        fails(out)
    except ValueError as error:
        errors.append(error)  # errors
"""


@pytest.mark.once
def test_what_holds_the_tensors_is_named_by_its_kind(gpucast):
    text = EPOCHS + HOLDERS
    done = gpucast(text)
    growth = done.report["growth"]
    assert growth["bytes_per_step"] == 4 * OUTPUT_BYTES + OUTPUT_BYTES // 2
    assert "waits_for_collection" in [warning["code"] for warning in done.report["warnings"]]
    found = {holder["container"]: holder for holder in growth["holders"]}
    named = {kind: holder["name"] for kind, holder in found.items()}
    assert named == {"variable": "memory.0.past", "list": "Results.seen", "lru_cache": "mask", "exceptions": "errors"}
    lines = {line.partition("# ")[2]: str(number) for number, line in enumerate(text.splitlines(), 1) if "  # " in line}
    kept = {kind: [at.rpartition(":")[2] for at in holder["kept_at"]] for kind, holder in found.items()}
    expected = {"variable": "past", "list": "seen", "lru_cache": "cache", "exceptions": "errors"}
    assert kept == {kind: [lines[comment]] for kind, comment in expected.items()}


@pytest.mark.once
def test_what_is_kept_every_four_steps_is_waited_for(gpucast):
    kept = """
kept, every = [], 4
for number in range(60):
    out = step()
    if number % every == 3:
        kept.append(out)
"""
    growth = gpucast(EPOCHS + kept).report["growth"]
    assert (growth["bytes_per_step"], growth["every_steps"]) == (OUTPUT_BYTES // 4, 4)
    printed = gpucast(EPOCHS + kept.replace("kept.append(out)", "kept.append(out.mean().item())"))
    assert printed.report["steps"] == 3


@pytest.mark.once
def test_an_evaluation_every_five_steps_comes_under_auto(gpucast):
    evaluated = """
import argparse

def evaluate():
    model.eval()
    with torch.no_grad():
        return model(torch.randn(1024, 256, device="cuda"))

def main(options, results):
    for number in range(1, 60):
        step()
        if number % options.eval_every == 0:
            results.append(evaluate())

main(argparse.Namespace(eval_every=5), [])
"""
    growth = gpucast(EPOCHS + evaluated, "--steps", "auto").report["growth"]
    assert growth["bytes_per_step"] == OUTPUT_BYTES // 5
