"""Scripts that depend on values on the card: values from the host are followed, the others are assumed and reported."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import train_script

PROGRAMS = Path(__file__).resolve().parent.parent / "programs/values.py"
LARGE_PROGRAMS = PROGRAMS.with_name("large_values.py")

# Graphs of a batch are pooled like in PyTorch Geometric; words of several lengths follow one another.
POOLS = """
import torch

model = torch.nn.Linear(16, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    graph = torch.tensor([0, 0, 1, 1, 1, 2, 4, 4]).cuda()
    graphs = graph.unique()
    hidden = model(torch.randn(8, 16, device="cuda"))
    pooled = torch.zeros(int(graph.max()) + 1, 8, device="cuda").index_add_(0, graph, hidden)
    long = hidden[graph > 1]
    (pooled.sum() + long.sum()).backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
print("graphs=%d" % len(graphs))
print("pooled=%d" % len(pooled))
print("long=%d" % len(long))
print("peak=%d" % torch.cuda.max_memory_allocated())
"""

# A layer of experts, one after the other.
EXPERTS = """
import sys, torch
from torch import nn

router, experts = nn.Linear(64, 8).cuda(), nn.ModuleList(nn.Linear(64, 64) for _ in range(8)).cuda()
optimizer = torch.optim.SGD([*router.parameters(), *experts.parameters()], lr=0.1)
for step in range(3):
    x = torch.randn(1024, 64, device="cuda")
    chosen = router(x).softmax(-1).topk(2, dim=-1).indices
    mask = nn.functional.one_hot(chosen, 8).permute(2, 1, 0)
    out, taken = torch.zeros_like(x), []
    for number, expert in enumerate(experts):
        _, tokens = torch.where(mask[number])
        out.index_add_(0, tokens, expert(x[tokens]))
        taken.append(len(tokens))
    out.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("tokens=%d" % sum(taken))
print("busiest=%d" % max(taken))
"""

# Speech to text as in Hugging Face's Wav2Vec2ForCTC: PyTorch reads the lengths of the labels from the card.
SPEECH = """
import torch
from torch.nn.functional import ctc_loss

model = torch.nn.Linear(64, 32).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    labels = torch.tensor([[5, 6, 7, -100], [8, -100, -100, -100]]).cuda()
    inside = labels >= 0
    lengths, words = inside.sum(-1), labels.masked_select(inside)
    scores = model(torch.randn(50, 2, 64, device="cuda")).log_softmax(-1)
    with torch.backends.cudnn.flags(enabled=False):
        loss = ctc_loss(scores, words, torch.full((2,), 50), target_lengths=lengths, zero_infinity=True)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("words=%d" % len(words))
"""

# As Hugging Face's blocks of experts, with a one-hot matrix of 2 million elements; experts that get no token are left out.
LARGE_EXPERTS = """
import torch
from torch import nn

experts, chosen_of, tokens, width = 64, 8, 4096, 16
router, up = nn.Linear(width, experts).cuda(), nn.Parameter(torch.randn(experts, width, width, device="cuda"))
optimizer = torch.optim.SGD([*router.parameters(), up], lr=0.1)
taken = []
for step in range(2):
    x = torch.randn(tokens, width, device="cuda")
    weights, chosen = router(x).softmax(-1).topk(chosen_of, dim=-1)
    out = torch.zeros_like(x)
    with torch.no_grad():
        mask = nn.functional.one_hot(chosen, num_classes=experts).permute(2, 1, 0)
        hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
    for number in hit:
        number = number[0]
        place, token = torch.where(mask[number])
        out.index_add_(0, token, nn.functional.linear(x[token], up[number]) * weights[token, place, None])
        taken.append(len(token))
    out.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("tokens=%d" % sum(taken))
print("busiest=%d" % max(taken))
"""

# As Switch Transformers: one expert a token, no more tokens than its capacity. The mask is a column, so that counting it needs a copy,
# and autograd counts it again.
SWITCH = """
import torch
from torch import nn

router, experts = nn.Linear(16, 4).cuda(), nn.ModuleDict({f"expert_{number}": nn.Linear(16, 16) for number in range(4)}).cuda()
optimizer = torch.optim.SGD([*router.parameters(), *experts.parameters()], lr=0.1)
for step in range(2):
    x = torch.randn(2, 512, 16, device="cuda", requires_grad=True)
    probabilities = router(x).softmax(-1)
    mask = nn.functional.one_hot(probabilities.argmax(-1), 4)
    mask = mask * (mask.cumsum(-2) <= 64)
    out, tokens = torch.zeros_like(x), 0
    for number in mask.flatten(0, 1).sum(0).nonzero():
        of_expert = mask.bool()[:, :, number[0]]
        out[of_expert] = experts[f"expert_{number[0]}"](x[of_expert])
        tokens += out[of_expert].shape[0]
    (probabilities.max(-1).values.unsqueeze(-1) * out).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("tokens=%d" % tokens)
"""

# As hlb-CIFAR10 crops pictures: a square of each, at a place that the card draws; one mask for all colours.
CROPS = """
import torch

model = torch.nn.Conv2d(3, 8, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    pictures = torch.randn(512, 3, 20, 20, device="cuda")
    inside = []
    for shape in ((1, 1, 20, 1), (1, 1, 1, 20)):
        center = torch.empty(512, dtype=torch.long, device="cuda").random_(7, 12)
        away = torch.arange(20, device="cuda").view(shape) - center.view(-1, 1, 1, 1)
        inside.append((away >= -7) * (away <= 8))
    crops = torch.masked_select(pictures, inside[0] * inside[1]).view(512, 3, 16, 16)
    model(crops).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("crops=%d" % crops.numel())
"""

# Right answers counted like in most scripts, and one check of a value from the host.
ACCURACY = """
import torch

model = torch.nn.Linear(32, 10).cuda()
optimizer = torch.optim.AdamW(model.parameters())
right = 0
for step in range(4):
    x, y = torch.randn(64, 32).cuda(), torch.randint(0, 10, (64,)).cuda()
    out = model(x)
    right += (out.argmax(1) == y).sum().item()
    loss = torch.nn.functional.cross_entropy(out, y)
    if torch.isnan(loss):
        raise RuntimeError("nan")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"{loss.item():.3f} {right / 64}")
"""

# What transformers asks of a mask, to leave it out where nothing is padded.
MASKED = """
import torch

model = torch.nn.Linear(32, 32).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
masked = 0
for step in range(3):
    mask = torch.ones(8, 512, dtype=torch.long).cuda()
    x = model(torch.randn(8, 512, 32, device="cuda"))
    if not torch.all(mask == 1):
        masked += 1
        x = x * mask[..., None]
    x.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("masked=%d" % masked)
"""

CHECKED = """
import torch
labels = torch.arange(10).cuda()
if not (labels >= 0).all() or not labels.max() == 9:
    raise ValueError("labels are wrong")
"""

COMPILED = """
import torch
from torch._dynamo.utils import counters

torch.set_default_device("cuda")  # a mode of PyTorch's own
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).cuda()
compiled, optimizer = torch.compile(model), torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    y = torch.arange(30).remainder(10)
    out = compiled(torch.randn(30, 64))
    own = [len(out[y == label]) for label in range(int(y.max()) + 1)]
    with torch.device("cpu"):
        assert not torch.ones(1).is_cuda
    out.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("labels=%d" % len(own))
print("of_each=%d" % own[3])
print("graphs=%d" % counters["stats"]["unique_graphs"])
"""

# Each step adds to four million known numbers, which takes the host long.
LONG_TO_FOLLOW = """
import torch

torch.set_num_threads(1)
model = torch.nn.Linear(32, 10).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    numbers = torch.arange(4_000_000, device="cuda")
    for _ in range(30):
        numbers = numbers + 1
    model(torch.randn(64, 32, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

AGAIN = "started again, following them"


def assumed(run):
    return [warning["message"] for warning in run.report["warnings"] if warning["code"] == "value_assumed"]


def all_answer_as_on_the_host(text):
    programs, same = re.search(r"^of (\d+) programs (\d+) give the same answers", text, re.MULTILINE).groups()
    assert programs == same and int(same) > 50, text


@pytest.mark.parametrize("how", [pytest.param("none", marks=pytest.mark.slow), "typical", pytest.param("most", marks=pytest.mark.once)])
def test_programs_answer_as_on_the_host(gpucast, how):
    run = gpucast("", "--values", "on", "--assume", how, command=[sys.executable, str(PROGRAMS)])
    all_answer_as_on_the_host(run.err)
    assert assumed(run)


@pytest.mark.once
def test_programs_answer_as_on_the_host_under_a_clock(gpucast_bin):
    """With a clock, calls of which nothing is known take a short way."""
    command = [gpucast_bin, "run", "--warp", "--gpu", "a100-80", "--", sys.executable, str(PROGRAMS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    all_answer_as_on_the_host(done.stdout)


@pytest.mark.once
def test_a_run_that_counts_starts_again(gpucast, leaves_nothing):
    run = gpucast(POOLS, "--steps", "4")
    assert run.code == 0, run.err
    assert run.err.count(AGAIN) == 1
    assert (run.printed("graphs"), run.printed("pooled"), run.printed("long")) == (4, 5, 3)
    assert run.report["steps"] == 3 and run.report["peak"]["allocated_bytes"] == run.printed("peak") and not assumed(run)


COMPILED_LATER = """
import functools
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

compiled = torch.compile(lambda x: torch.nn.functional.normalize(x))
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.AdamW(model.parameters())
contexts = functools.partial(create_selective_checkpoint_contexts, lambda *_, **__: CheckpointPolicy.PREFER_RECOMPUTE)
for step in range(2):
    torch.randint(0, 9, (1,), device="cuda").item()
    x = torch.randn(32, 64, device="cuda")
    checkpoint(lambda x: compiled(model(x)), x, use_reentrant=False, context_fn=contexts).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.once
def test_a_function_compiled_later_does_not_see_the_mode(gpucast):
    """The script reads a number before the first call: from then on numbers are followed, and the compiler broke the graph there."""
    run = gpucast(COMPILED_LATER, "--steps", "2")
    assert run.code == 0, run.err
    assert AGAIN not in run.err and "thread_time_ns" not in run.err


BLOCK_MASK = """
import torch
from torch.nn.attention.flex_attention import create_block_mask

make = torch.compile(create_block_mask, fullgraph=True)
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(2):
    make(lambda b, h, q, k: q // 128 >= k // 128, None, None, 512, 512, device="cuda")
    model(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.once
def test_a_compiled_block_mask_while_values_are_followed(gpucast):
    """In a mask function `q // 128` asks has_torch_function, which the compiler has to recognize."""
    run = gpucast(BLOCK_MASK, "--steps", "2", "--values", "on")
    assert run.code == 0 and run.report["steps"] == 2, run.err


ON_HOST = """
import torch

model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(2):
    copied = torch.arange(8, device="cuda").sum().to("cpu", non_blocking=True)
    assert (copied.item(), copied._version) == (28, 0), (copied, copied._version)
    model(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.once
def test_off_reads_zeros(gpucast):
    run = gpucast(POOLS + MASKED, "--steps", "7", "--values", "off")
    assert run.code == 0 and AGAIN not in run.err
    assert (run.printed("graphs"), run.printed("pooled"), run.printed("long")) == (0, 1, 0)
    assert run.printed("masked") == 3


@pytest.mark.once
def test_tokens_are_spread_over_experts(gpucast):
    run = gpucast(EXPERTS, "--steps", "4")
    assert run.code == 0, run.err
    assert run.printed("tokens") == 2048 and 256 < run.printed("busiest") < 340
    assert len(assumed(run)) == 1
    assert re.match(r"train\.py:13: where\(\) in 24 reads: \d+ to \d+; .*--assume typical", assumed(run)[0])


@pytest.mark.slow
@pytest.mark.once
def test_large_values_are_as_on_the_host(gpucast):
    run = gpucast("", "--values", "on", command=[sys.executable, str(LARGE_PROGRAMS)])
    programs, same = re.search(r"^of (\d+) programs (\d+) give the same answers", run.err, re.MULTILINE).groups()
    assert programs == same and int(same) > 10, run.err


@pytest.fixture(scope="module")
def together(open_batch, tmp_path_factory):
    """One run of several scripts."""
    folder = tmp_path_factory.mktemp("together")
    (folder / "train.py").write_text(LARGE_EXPERTS + SWITCH.replace("tokens=%d", "kept=%d") + SPEECH + CROPS)
    run = open_batch.gpucast(folder, [sys.executable, "train.py"], "--until-end", capture=folder / "train.gpucast")
    assert run.code == 0 and run.report["steps"] == 2 + 2 + 3 + 3, run.err
    return run


@pytest.mark.once
def test_a_large_router(together):
    """4096 x 8 of 64: 512 tokens an expert on average, with a deviation of about 21."""
    run = together
    assert run.printed("tokens") == 2 * 4096 * 8 and 520 < run.printed("busiest") < 640
    line = next(one for one in assumed(run) if "where()" in one)
    assert "(8 of 64 distinct drawn evenly)" in line and "--assume typical" in line


@pytest.mark.once
def test_a_skewed_router(gpucast):
    run = gpucast(LARGE_EXPERTS, "--steps", "3", "--assume", "skew:1.5")
    assert run.code == 0, run.err
    assert run.printed("tokens") == 2 * 4096 * 8 and 3900 < run.printed("busiest") <= 4096  # in nearly each token's eight
    line = next(one for one in assumed(run) if "where()" in one)
    assert "drawn by Zipf's law with exponent 1.5" in line and "--assume skew:1.5" in line


@pytest.mark.once
def test_a_bad_skew(gpucast):
    for bad in ("skew", "skew:x", "skew:0", "skew:-1"):
        run = gpucast(EXPERTS, "--assume", bad)
        assert run.code != 0 and f"{bad}: X must be a number above 0" in run.err


@pytest.mark.once
def test_experts_with_a_capacity(together):
    assert together.printed("kept") == 2 * 4 * 64


@pytest.mark.once
def test_an_ordinary_script_runs_once(gpucast):
    peaks = set()
    for how in ("auto", "off", "on"):
        run = gpucast(ACCURACY, "--values", how)
        assert run.code == 0 and AGAIN not in run.err, run.err
        assert bool(assumed(run)) == (how == "on")
        peaks.add((run.report["peak"]["allocated_bytes"], run.report["peak"]["reserved_bytes"], run.report["counts"]["allocator_events"]))
    assert len(peaks) == 1


def test_an_exception_after_an_unknown_value(gpucast):
    run = gpucast(CHECKED + train_script())
    assert run.code == 0 and AGAIN in run.err, run.err
    assert run.report["steps"] == 3


@pytest.mark.once
def test_a_known_condition(gpucast):
    run = gpucast(MASKED, "--steps", "4")
    assert run.code == 0 and AGAIN in run.err, run.err
    assert run.printed("masked") == 0 and not assumed(run)


# As a library does when it is imported (bitsandbytes).
NEVER_CALLED = """
import torch
never_called = torch.compile(lambda x: x + 1)
"""


@pytest.mark.slow
@pytest.mark.once
def test_a_compiled_function_that_is_never_called_changes_nothing(gpucast):
    run = gpucast(NEVER_CALLED + MASKED, "--steps", "4")
    assert run.code == 0 and run.printed("masked") == 0, run.err


# The names of transformers' modules, without its models.
WITH_TRANSFORMERS = """
import sys
import types
sys.modules["transformers.modeling_utils"] = types.ModuleType("transformers.modeling_utils")
"""


@pytest.mark.once
def test_models_of_transformers_are_followed_from_the_start(gpucast):
    run = gpucast(WITH_TRANSFORMERS + MASKED, "--steps", "4")
    assert run.code == 0 and AGAIN not in run.err, run.err
    assert run.printed("masked") == 0


DEFAULT_DEVICE = """
import torch
torch.set_default_device("cuda")
torch.set_default_device(None)
torch.set_default_device("cuda")
"""
DEFAULT_DEVICE_ENDS = """
torch.set_default_device(None)
assert not torch.ones(1).is_cuda
"""


@pytest.mark.once
def test_a_default_device_does_not_keep_values_from_being_followed(gpucast):
    run = gpucast(WITH_TRANSFORMERS + DEFAULT_DEVICE + MASKED + DEFAULT_DEVICE_ENDS, "--steps", "4")
    assert run.code == 0 and run.printed("masked") == 0, run.err


GOES_WELL = """
import torch

model = torch.nn.Linear(32, 10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(64, 32).cuda()).sum()
    if torch.isnan(loss) or torch.isinf(loss) or not torch.isfinite(loss):  # as transformers' Trainer asks
        raise RuntimeError("loss")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.once
def test_a_copy_keeps_its_version_and_a_loss_is_finite_without_a_warning(gpucast):
    """Selective checkpoints refuse a kept tensor whose version has changed."""
    run = gpucast(ON_HOST + GOES_WELL, "--values", "on", "--steps", "5")
    assert run.code == 0 and run.report["steps"] == 5 and not assumed(run), run.err


@pytest.mark.slow
def test_compiled_code_is_left_alone(gpucast):
    run = gpucast(COMPILED, "--steps", "4")
    assert run.code == 0 and AGAIN in run.err, run.err
    assert (run.printed("labels"), run.printed("of_each"), run.printed("graphs")) == (10, 3, 1)


@pytest.mark.once
def test_following_takes_no_time_of_a_step(gpucast, gpucast_bin):
    """Host time of the observed step, and gpucast's own time in it, in milliseconds."""
    own, host = {}, {}
    for how in ("on", "off"):
        run = gpucast(LONG_TO_FOLLOW, "--steps", "3", "--values", how)
        assert run.code == 0, run.err
        ends = next(record["hooks_us"] for record in run.capture.records if record["record"] == "operators")
        own[how] = (ends[3] - ends[1]) / 1e3
        words = [gpucast_bin, "time", str(run.capture_path), "--gpu", "a100-80", "--format", "json"]
        told = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        host[how] = told["cards"][0]["host_ns"] / 1e6
    assert own["on"] > own["off"] + 60
    assert host["on"] < host["off"] + 0.3 * (own["on"] - own["off"]), (host, own)


@pytest.mark.once
def test_lengths_of_labels(together):
    assert together.printed("words") == 4


@pytest.mark.once
def test_squares_at_drawn_places(together):
    assert together.printed("crops") == 512 * 3 * 16 * 16
