"""Programs that read values from the card and cannot go on with zeros."""

import subprocess
import sys
from importlib.util import find_spec

import pytest
from conftest import train_script

SCALER = """
import torch
from torch import nn

model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for step in range(3):
    optimizer.zero_grad()
    before = scaler.get_scale()
    with torch.autocast("cuda", torch.float16):
        loss = model(torch.randn(8, 64, device="cuda")).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() >= before, "the step was skipped"
    print("scale=%d" % scaler.get_scale())
"""

# As policies and variational models use them, checked where they are made and where samples are scored.
DISTRIBUTIONS = """
import torch
from torch.distributions import Bernoulli, Categorical, Dirichlet, Independent, MultivariateNormal, Normal, kl_divergence

def check(device):
    mean, deviation = torch.zeros(4, 3, device=device), torch.ones(4, 3, device=device)
    normal = Independent(Normal(mean, deviation), 1)
    normal.log_prob(normal.sample())
    kl_divergence(Normal(mean, deviation), Normal(mean + 1, deviation)).sum()
    for made in (Categorical(logits=mean), Categorical(probs=deviation / 3), Bernoulli(logits=mean), Dirichlet(deviation)):
        made.log_prob(made.sample())
    MultivariateNormal(torch.zeros(3, device=device), torch.eye(3, device=device))

check("cuda")
assert torch.ones(4).all() is not True and not torch.zeros(4).all() and "all" not in vars(torch.Tensor)
for bad in (-1.0, float("nan")):  # what lies on the host is known
    try:
        Normal(torch.zeros(2), torch.full((2,), bad))
        raise SystemExit("not checked")
    except ValueError:
        pass
"""

GENERATE = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

sizes = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=200)
model = LlamaForCausalLM(LlamaConfig(**sizes)).cuda()
calls = []
model.register_forward_hook(lambda *_: calls.append(1))
prompt = torch.ones(2, 5, dtype=torch.long, device="cuda")
for options in (dict(do_sample=False), dict(do_sample=True), dict(num_beams=2)):
    calls.clear()
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, pad_token_id=0, **options)
    assert len(calls) == 16 and out.shape[1] == 21, (options, len(calls), out.shape)
"""


def warnings(run):
    return [warning["message"] for warning in run.report["warnings"] if warning["code"] == "value_assumed"]


def test_gradient_scaler(gpucast):
    run = gpucast(SCALER, "--steps", "4")
    assert run.code == 0, run.err
    assert run.report["steps"] == 3 and run.printed("scale") == 65536
    assert len(warnings(run)) == 1 and "65536" in warnings(run)[0]


def test_distributions(gpucast):
    run = gpucast(DISTRIBUTIONS + train_script())
    assert run.code == 0, run.err
    assert run.report["steps"] == 3 and len(warnings(run)) == 2


@pytest.mark.skipif(find_spec("transformers") is None, reason="no transformers here")
def test_generate_ends_at_its_length(gpucast):
    run = gpucast(GENERATE + train_script(), timeout=100)
    assert run.code == 0, run.err
    assert run.report["steps"] == 3 and sum("length limit" in one for one in warnings(run)) == 1


@pytest.mark.parametrize("values", [pytest.param("off", marks=pytest.mark.slow), "on"])
def test_traced_module(gpucast, values):
    """torch.jit.trace runs the module twice and compares the graphs: nothing of ours may be in them. Sizes are tensors then."""
    run = gpucast(
        """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU()).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
traced = torch.jit.trace(model, torch.randn(8, 64, device="cuda"))
print(f"nodes={len(list(traced.inlined_graph.nodes()))}")
for _ in range(3):
    traced(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
""",
        "--values",
        values,
    )
    assert run.code == 0, run.err
    assert run.report["steps"] == 3 and run.printed("nodes") == 6  # two modules, weight, bias, linear, relu
    assert "hook_failed" not in [warning["code"] for warning in run.report["warnings"]]


ASSERTS = """
import torch
x = torch.randn(300, 70, device="cuda")
y, z = torch.empty_like(x), torch.softmax(x, -1)
assert torch.allclose(y, z), "a kernel and its reference"
assert torch.allclose(y, z) and torch.equal(y, z)
assert not torch.equal(y, z)
assert torch.all(y > 100)
assert (y == z).all().item(), (y, z)
assert (y - z).abs().max() < 1e-3
assert not torch.isnan(y).any() and (y - z).norm() < 1
def fails(condition):
    try:
        assert condition
    except AssertionError:
        return True
print(torch.allclose(y, z), fails(torch.zeros(1).any()), fails(False))
"""


@pytest.mark.once
@pytest.mark.parametrize("words", [["--warp"], ["--values", "on"], pytest.param(["--values", "off"], marks=pytest.mark.slow), []])
def test_asserts_of_values_on_the_card_hold(gpucast_bin, tmp_path, words):
    script = tmp_path / "check.py"
    script.write_text(ASSERTS)
    done = subprocess.run(
        [gpucast_bin, "run", "--gpu", "a100-80", *words, "--until-end", "--", sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "AssertionError" not in done.stdout + done.stderr
    assert "False True True" in done.stdout + done.stderr, done.stderr
    assert (done.stdout + done.stderr).count("asserts of values on the card are assumed to hold") == 1
