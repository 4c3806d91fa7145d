"""One operator at random shapes, forward and backward, in each of a few steps. Runs under `gpucast time`.

python random_products.py OPERATOR SHAPES REPORT: REPORT gets the FLOPs of one step by PyTorch's own counter. That counter does not know
grouped_mm, and takes the weights' gradient of a grouped convolution for one without groups: there it is the formula.
"""

import pathlib
import random
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

SEED = 33


def tensor(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def of_module(module, *shape):
    module = module.to("cuda", torch.bfloat16)
    x = tensor(*shape)
    return lambda: module(x)


def product(function):
    def make(draw):
        batch, m, n, k = draw(1, 16), draw(1, 512), draw(1, 512), draw(1, 512)
        a, b = tensor(batch, m, k), tensor(batch, k, n)
        bias = tensor(batch, m, n)
        return lambda: function(bias, a, b)

    return make


def linear(draw):
    inner = draw(8, 1024)
    return of_module(nn.Linear(inner, draw(8, 1024)), draw(1, 512), inner)


def convolution(kind, dimensions, most_groups=1):
    def make(draw):
        groups = draw(1, most_groups)
        channels, out, window, stride = groups * draw(1, 32), groups * draw(1, 32), draw(1, 5), draw(1, 2)
        module = kind(channels, out, window, stride=stride, padding=draw(0, window - 1), groups=groups)
        run = of_module(module, draw(1, 8), channels, *(draw(8, 64 if dimensions < 3 else 16) for _ in range(dimensions)))
        if most_groups > 1:
            run.flops = 3 * 2 * run().numel() * module.weight[0].numel()  # the result, and two gradients
        return run

    return make


def attention(backend):
    def make(draw):
        batch, heads, width = draw(1, 4), draw(1, 16), 8 * draw(2, 16)
        queries, keys = 8 * draw(1, 128), 8 * draw(1, 128)
        q, k, v = tensor(batch, heads, queries, width), tensor(batch, heads, keys, width), tensor(batch, heads, keys, width)

        def run():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v)

        return run

    return make


def grouped(draw):
    groups, rows, inner, columns = draw(1, 16), 16 * draw(1, 64), 16 * draw(1, 64), 16 * draw(1, 64)
    a, b = tensor(groups * rows, inner), tensor(groups, columns, inner)
    ends = torch.arange(1, groups + 1, device="cuda", dtype=torch.int32) * rows

    def run():
        return F.grouped_mm(a, b.transpose(-2, -1), offs=ends)

    run.flops = 3 * 2 * groups * rows * inner * columns
    return run


def encoder(draw):
    heads = draw(1, 8)
    width = heads * 8 * draw(1, 8)
    layer = nn.TransformerEncoderLayer(width, heads, draw(8, 1024), batch_first=True, dropout=0.0)
    return of_module(layer, draw(1, 8), draw(1, 256), width)


OPERATORS = {
    "linear": linear,
    "bmm": product(lambda bias, a, b: torch.bmm(a, b)),
    "baddbmm": product(torch.baddbmm),
    "einsum": product(lambda bias, a, b: torch.einsum("bmk,bkn->bnm", a, b)),
    "conv1d": convolution(nn.Conv1d, 1),
    "conv2d": convolution(nn.Conv2d, 2),
    "conv3d": convolution(nn.Conv3d, 3),
    "conv2d_grouped": convolution(nn.Conv2d, 2, most_groups=8),
    "conv_transpose2d": convolution(nn.ConvTranspose2d, 2),
    "attention_flash": attention(SDPBackend.FLASH_ATTENTION),
    "attention_efficient": attention(SDPBackend.EFFICIENT_ATTENTION),
    "attention_cudnn": attention(SDPBackend.CUDNN_ATTENTION),
    "attention_math": attention(SDPBackend.MATH),
    "transformer_layer": encoder,
    "grouped_mm": grouped,
}


def main():
    name, shapes, report = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
    drawn = random.Random(f"{SEED} {name}")
    runs = [OPERATORS[name](drawn.randint) for _ in range(shapes)]
    parameter = tensor(8)
    optimizer = torch.optim.SGD([parameter], lr=0.1)

    def step():
        for run in runs:
            result = run()
            (result * result).mean().backward()
        parameter.grad = torch.zeros_like(parameter)
        optimizer.step()

    with FlopCounterMode(display=False) as counter:
        step()
    known = [run.flops for run in runs if hasattr(run, "flops")]
    report.write_text(str(sum(known) if known else counter.get_total_flops()))
    for _ in range(3):
        step()


if __name__ == "__main__":
    main()
