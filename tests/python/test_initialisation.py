"""Weights that the script would draw on the host and that are left undrawn: the effects that the script sees."""

from conftest import train_script

# The output of each must equal PyTorch's alone: drawn(...) is its own function, which is not left out.
SCRIPT = """
import math, os, resource
import torch
from torch import nn
from _gpucast import initialisation

def same_generator(dtype, count, name):
    states = []
    for fill in (getattr(nn.Parameter(torch.empty(count, dtype=dtype), False), name), drawn(name, torch.empty(count, dtype=dtype))):
        torch.manual_seed(3)
        torch.rand(1000)
        values = fill(0.0, 0.5)
        states.append(torch.get_rng_state())
    return torch.equal(*states)

def drawn(name, tensor):
    return lambda *args: initialisation._really(getattr(tensor, name), *args)

large = 1 << 20
for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
    for count in (large, large + 16, large + 3, 100):
        for name in ("normal_", "uniform_"):
            assert same_generator(dtype, count, name), (dtype, count, name)

def zeros(tensor):
    return not tensor.any()

# Left out: a module's weights and the functions that initialise them, in memory with numbers in it before.
memory = torch.ones(1024, 1025)
assert zeros(nn.init.normal_(memory)) and zeros(nn.Linear(1024, 1024).weight) and zeros(nn.init.kaiming_uniform_(torch.ones(1024, 1024)))
weight = nn.Parameter(torch.ones(1024, 1024))
def _init_weights(module):
    weight.data.normal_(mean=0.0, std=0.02)
_init_weights(weight)
assert zeros(weight)
# Not left out: data, small ones, other orders of memory, whole numbers.
assert not zeros(torch.ones(1024, 1024).normal_()) and not zeros(torch.randn(1024, 1024)) and not zeros(nn.Linear(100, 100).weight)
assert not zeros(nn.init.normal_(torch.ones(1024, 512)[:, ::2])) and not zeros(nn.init.normal_(torch.ones(1024, 1024).t()[:1000]))

# An error of the script's stays one.
for wrong in (lambda: nn.Parameter(torch.ones(1024, 1024)).normal_(), lambda: nn.init.normal_(torch.ones(1024, 1024), std=-1.0)):
    try:
        wrong()
        raise SystemExit("no error")
    except RuntimeError:
        pass

# Many projects' own function, as PyTorch 1 had it. From its second call on it is left out.
def own_truncated_(tensor, mean, std, a, b):
    low, high = ((1.0 + math.erf((at - mean) / std / math.sqrt(2.0))) / 2.0 for at in (a, b))
    tensor.uniform_(2 * low - 1, 2 * high - 1)
    return tensor.erfinv_().mul_(std * math.sqrt(2.0)).add_(mean).clamp_(min=a, max=b)

@torch.no_grad()
def own_truncated(tensor):
    return own_truncated_(tensor, 1.0, 0.5, -2.0, 2.0)

own_truncated(torch.empty(1024, 1024))
assert zeros(own_truncated(nn.Parameter(torch.ones(1024, 1024)))) and not zeros(own_truncated(nn.Parameter(torch.ones(10, 10))))

# What is saved before CUDA is in use holds the numbers that the seed gives.
for initialise in (nn.init.normal_, nn.init.trunc_normal_, nn.init.xavier_uniform_, own_truncated):
    torch.manual_seed(7)
    left_out = initialise(nn.Parameter(torch.empty(1024, 1024)))
    after = torch.get_rng_state()
    torch.save({"weight": left_out}, "weight.pt")
    torch.manual_seed(7)
    expected = initialisation._really(initialise, torch.empty(1024, 1024))
    assert torch.equal(after, torch.get_rng_state()), initialise
    assert torch.equal(torch.load("weight.pt")["weight"], expected) and torch.equal(left_out, expected) and not zeros(expected)

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
layers = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(16)])  # 4 GiB
layers.cuda()
print("host_kib=%d" % (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
del layers
"""


def test_what_a_script_sees(gpucast):
    run = gpucast(SCRIPT + train_script(), "--gpu", "a100-80", timeout=120)
    assert run.code == 0, run.err
    assert run.report["steps"] == 3 and run.report["peak"]["allocated_bytes"] > 2**32
    assert run.printed("host_kib") < 200 << 10
