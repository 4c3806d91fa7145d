#!/usr/bin/env python3
"""Measure how long kernels take on a real card: attention, products, single mechanisms, and the host's calls. One JSON line a measurement.

    python measure_kernels_time.py --warm                         # compiles everything into the disk caches; measures nothing
    python measure_kernels_time.py -o rows.jsonl --minutes 1.7    # measures
    gpucast run --warp --gpu h100-80 -- python measure_kernels_time.py -o predicted.jsonl --minutes 20   # the same rows, predicted
    TRITON_INTERPRET=1 python measure_kernels_time.py --check     # compares the Triton kernels with PyTorch, on the CPU

Needs PyTorch with Triton. Each part runs in its own process: a crash loses the rest of one part only.
Row: part, name, arguments, ms (median), and flops and bytes where they are known; or error. The first row names the machine.
"""

import argparse
import collections
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no worker pool next to the timings

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from measure_on_gpu import provenance  # noqa: E402
from triton.testing import do_bench  # noqa: E402

PARTS = {"mechanism": 0.25, "attention": 0.35, "products": 0.3, "host": 0.1}  # in this order; each part's share of the time
SPARE_S = 25  # a part may end this much later than its deadline: one case can compile for long
ONCE_S = 0.3  # a call longer than this is not repeated
MIB = 1 << 20

Case = collections.namedtuple("Case", "part name arguments build")
# build(**arguments) yields (more arguments, function to time, facts: flops, bytes).


# ---- attention: Triton kernels ---------------------------------------------------------------------------------------------------


@triton.jit
def attend(acc, top, total, q_tile, k, v, first, last, rows, scale_log2, HEAD: tl.constexpr, COLUMNS: tl.constexpr, MASK: tl.constexpr):
    """One row tile against the columns from first to last: online softmax in base 2."""
    depth = tl.arange(0, HEAD)
    for start in tl.range(first, last, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        k_tile = tl.load(k + columns[None, :] * HEAD + depth[:, None])
        scores = tl.dot(q_tile, k_tile) * scale_log2
        if MASK:
            scores = tl.where(rows[:, None] >= columns[None, :], scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(weights, 1)
        v_tile = tl.load(v + columns[:, None] * HEAD + depth[None, :])
        acc = tl.dot(weights.to(v_tile.dtype), v_tile, acc * shrink[:, None])
        top = new_top
    return acc, top, total


@triton.jit
def attention_forward(
    q, k, v, out, lse, length, scale_log2, CAUSAL: tl.constexpr, HEAD: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """length is a multiple of ROWS, and ROWS of COLUMNS."""
    begin = tl.program_id(0) * ROWS
    base = tl.program_id(1).to(tl.int64) * length * HEAD
    rows = begin + tl.arange(0, ROWS)
    tile = base + rows[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    q_tile = tl.load(q + tile)
    acc = tl.zeros([ROWS, HEAD], tl.float32)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    if CAUSAL:
        acc, top, total = attend(acc, top, total, q_tile, k + base, v + base, 0, begin, rows, scale_log2, HEAD, COLUMNS, False)
        acc, top, total = attend(acc, top, total, q_tile, k + base, v + base, begin, begin + ROWS, rows, scale_log2, HEAD, COLUMNS, True)
    else:
        acc, top, total = attend(acc, top, total, q_tile, k + base, v + base, 0, length, rows, scale_log2, HEAD, COLUMNS, False)
    tl.store(out + tile, (acc / total[:, None]).to(out.dtype.element_ty))
    tl.store(lse + tl.program_id(1) * length + rows, top + tl.log2(total))


@triton.jit
def attention_delta(out, grad, delta, HEAD: tl.constexpr, ROWS: tl.constexpr):
    """delta: each row's sum of out x grad."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    tile = rows[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    product = tl.load(out + tile).to(tl.float32) * tl.load(grad + tile).to(tl.float32)
    tl.store(delta + rows, tl.sum(product, 1))


@triton.jit
def columns_gradients(
    acc_k, acc_v, k_tile, v_tile, q, grad, lse, delta, first, last, columns, scale_log2,
    HEAD: tl.constexpr, STEP: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    depth = tl.arange(0, HEAD)
    for start in tl.range(first, last, STEP):
        rows = start + tl.arange(0, STEP)
        q_tile = tl.load(q + rows[:, None] * HEAD + depth[None, :])
        scores = tl.dot(k_tile, tl.trans(q_tile)) * scale_log2
        weights = tl.exp2(scores - tl.load(lse + rows)[None, :])
        if MASK:
            weights = tl.where(rows[None, :] >= columns[:, None], weights, 0.0)
        grad_tile = tl.load(grad + rows[:, None] * HEAD + depth[None, :])
        acc_v = tl.dot(weights.to(grad_tile.dtype), grad_tile, acc_v)
        grad_weights = tl.dot(v_tile, tl.trans(grad_tile))
        grad_scores = weights * (grad_weights - tl.load(delta + rows)[None, :])
        acc_k = tl.dot(grad_scores.to(q_tile.dtype), q_tile, acc_k)
    return acc_k, acc_v


@triton.jit
def attention_backward_columns(
    q, k, v, grad, lse, delta, grad_k, grad_v, length, scale, scale_log2,
    CAUSAL: tl.constexpr, HEAD: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """The gradients of k and v. length is a multiple of TILE, and TILE of STEP."""
    begin = tl.program_id(0) * TILE
    base = tl.program_id(1).to(tl.int64) * length * HEAD
    lse += tl.program_id(1) * length
    delta += tl.program_id(1) * length
    columns = begin + tl.arange(0, TILE)
    tile = base + columns[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    k_tile = tl.load(k + tile)
    v_tile = tl.load(v + tile)
    acc_k = tl.zeros([TILE, HEAD], tl.float32)
    acc_v = tl.zeros([TILE, HEAD], tl.float32)
    start = 0
    if CAUSAL:
        start = begin + TILE
        acc_k, acc_v = columns_gradients(
            acc_k, acc_v, k_tile, v_tile, q + base, grad + base, lse, delta, begin, start, columns, scale_log2, HEAD, STEP, True
        )
    acc_k, acc_v = columns_gradients(
        acc_k, acc_v, k_tile, v_tile, q + base, grad + base, lse, delta, start, length, columns, scale_log2, HEAD, STEP, False
    )
    tl.store(grad_k + tile, (acc_k * scale).to(grad_k.dtype.element_ty))
    tl.store(grad_v + tile, acc_v.to(grad_v.dtype.element_ty))


@triton.jit
def rows_gradients(
    acc, q_tile, grad_tile, top, delta_tile, k, v, first, last, rows, scale_log2,
    HEAD: tl.constexpr, STEP: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    depth = tl.arange(0, HEAD)
    for start in tl.range(first, last, STEP):
        columns = start + tl.arange(0, STEP)
        k_tile = tl.load(k + columns[:, None] * HEAD + depth[None, :])
        v_tile = tl.load(v + columns[:, None] * HEAD + depth[None, :])
        weights = tl.exp2(tl.dot(q_tile, tl.trans(k_tile)) * scale_log2 - top[:, None])
        if MASK:
            weights = tl.where(rows[:, None] >= columns[None, :], weights, 0.0)
        grad_scores = weights * (tl.dot(grad_tile, tl.trans(v_tile)) - delta_tile[:, None])
        acc = tl.dot(grad_scores.to(k_tile.dtype), k_tile, acc)
    return acc


@triton.jit
def attention_backward_rows(
    q, k, v, grad, lse, delta, grad_q, length, scale, scale_log2,
    CAUSAL: tl.constexpr, HEAD: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """The gradient of q. length is a multiple of TILE, and TILE of STEP."""
    begin = tl.program_id(0) * TILE
    base = tl.program_id(1).to(tl.int64) * length * HEAD
    rows = begin + tl.arange(0, TILE)
    tile = base + rows[:, None] * HEAD + tl.arange(0, HEAD)[None, :]
    q_tile = tl.load(q + tile)
    grad_tile = tl.load(grad + tile)
    top = tl.load(lse + tl.program_id(1) * length + rows)
    delta_tile = tl.load(delta + tl.program_id(1) * length + rows)
    acc = tl.zeros([TILE, HEAD], tl.float32)
    end = length
    if CAUSAL:
        end = begin
        acc = rows_gradients(
            acc, q_tile, grad_tile, top, delta_tile, k + base, v + base, begin, begin + TILE, rows, scale_log2, HEAD, STEP, True
        )
    acc = rows_gradients(acc, q_tile, grad_tile, top, delta_tile, k + base, v + base, 0, end, rows, scale_log2, HEAD, STEP, False)
    tl.store(grad_q + tile, (acc * scale).to(grad_q.dtype.element_ty))


ATTENTION_TILES = {  # forward: rows, columns, warps, stages; backward: tile, step, warps, stages
    "small": ((128, 64, 4, 3), (64, 64, 4, 2)),
    "large": ((128, 128, 8, 2), (128, 64, 8, 2)),
}


class TritonAttention:
    """Buffers and launches for q, k, v of batch x heads x length x head size."""

    def __init__(self, q, k, v, causal, forward_tile, backward_tile):
        self.q, self.k, self.v, self.causal = q, k, v, causal
        self.forward_tile, self.backward_tile = forward_tile, backward_tile
        batch, heads, self.length, self.head = q.shape
        self.count = batch * heads
        self.out, self.grad = torch.empty_like(q), torch.empty_like(q)
        self.grads = [torch.empty_like(q) for _ in range(3)]
        self.lse, self.delta = (torch.empty(self.count, self.length, device=q.device, dtype=torch.float32) for _ in range(2))
        self.scale = self.head**-0.5
        assert all(self.length % tile[0] == 0 and tile[0] % tile[1] == 0 for tile in (forward_tile, backward_tile))

    def forward(self):
        rows, columns, warps, stages = self.forward_tile
        attention_forward[(self.length // rows, self.count)](
            *(self.q, self.k, self.v, self.out, self.lse, self.length, self.scale * 1.4426950408889634),
            *(self.causal, self.head, rows, columns), num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def backward(self):
        tile, step, warps, stages = self.backward_tile
        grid, options = (self.length // tile, self.count), {"num_warps": warps, "num_stages": stages}
        attention_delta[(self.count * self.length // tile,)](self.out, self.grad, self.delta, self.head, tile)
        common = (self.q, self.k, self.v, self.grad, self.lse, self.delta)
        sizes = (self.length, self.scale, self.scale * 1.4426950408889634, self.causal, self.head, tile, step)
        attention_backward_columns[grid](*common, self.grads[1], self.grads[2], *sizes, **options)
        attention_backward_rows[grid](*common, self.grads[0], *sizes, **options)


# ---- attention: cases ------------------------------------------------------------------------------------------------------------


SHAPES = [(4, 16, 4096, 64), (4, 16, 4096, 128), (2, 32, 8192, 128), (16, 16, 1024, 64)]
WINDOW = 1024
DOCUMENT = 1024  # tokens a document


def normal(*shape, dtype=torch.bfloat16, grad=False):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=grad)


def attention_flops(shape, mask):
    """Of the forward pass, by the unmasked area."""
    batch, heads, length, head = shape
    causal = length * (length + 1) // 2
    outside = max(length - WINDOW - 1, 0)
    area = {"causal": causal, "window": causal - outside * (outside + 1) // 2, "document": length * DOCUMENT}.get(mask, length * length)
    return 4 * batch * heads * head * area


def both_directions(function, shape, mask):
    """The forward pass, then the backward pass alone."""
    q, k, v = (normal(*shape, grad=True) for _ in range(3))
    flops = attention_flops(shape, mask)
    yield {"direction": "forward"}, lambda: function(q, k, v), {"flops": flops}
    out = function(q, k, v)
    grad = torch.randn_like(out)
    yield {"direction": "backward"}, lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True), {"flops": flops * 5 // 2}


def build_sdpa(backend, mask, shape):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def function(q, k, v):
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal")

    return both_directions(function, shape, mask)


def build_triton_attention(mask, shape, tiles):
    attention = TritonAttention(*(normal(*shape) for _ in range(3)), mask == "causal", *ATTENTION_TILES[tiles])
    flops = attention_flops(shape, mask)
    attention.grad.normal_()
    yield {"direction": "forward"}, attention.forward, {"flops": flops}
    yield {"direction": "backward"}, attention.backward, {"flops": flops * 5 // 2}


def build_flex(mask, shape):
    import torch._functorch.config
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._functorch.config.donated_buffer = False  # the backward pass runs several times
    torch._dynamo.reset()
    heads, length = shape[1], shape[2]
    documents = (torch.arange(length) // DOCUMENT).cuda()
    masks = {
        "causal": lambda b, h, q, k: q >= k,
        "window": lambda b, h, q, k: (q >= k) & (q - k <= WINDOW),
        "document": lambda b, h, q, k: documents[q] == documents[k],
    }

    def alibi(score, b, h, q, k):
        return score + torch.exp2(-8.0 * (h + 1) / heads) * (k - q)

    options = {"score_mod": alibi} if mask == "alibi" else {}
    if mask in masks:
        options["block_mask"] = create_block_mask(masks[mask], None, None, length, length, device="cuda")
    compiled = torch.compile(flex_attention, dynamic=False)
    return both_directions(lambda q, k, v: compiled(q, k, v, **options), shape, mask)


def attention_cases(add):
    for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
        for shape in SHAPES:
            for mask in ("causal", "noop"):
                add("sdpa", build_sdpa, backend=backend, mask=mask, shape=shape)
    for shape in SHAPES:
        for mask in ("causal", "noop"):
            for tiles in ATTENTION_TILES:
                add("triton_attention", build_triton_attention, mask=mask, shape=shape, tiles=tiles)
    for count, mask in ((4, "causal"), (3, "window"), (2, "document"), (2, "noop"), (2, "alibi")):
        for shape in SHAPES[:count]:
            add("flex_attention", build_flex, mask=mask, shape=shape)


# ---- products: Triton kernels ----------------------------------------------------------------------------------------------------


@triton.jit
def tile_place(tile, rows_tiles, columns_tiles, GROUP: tl.constexpr):
    """Tiles in bands of GROUP rows: neighbours share their operands in L2."""
    band = tile // (GROUP * columns_tiles)
    height = tl.minimum(rows_tiles - band * GROUP, GROUP)
    inside = tile % (GROUP * columns_tiles)
    return band * GROUP + inside % height, inside // height


@triton.jit
def product_tile(a, b, out, m, n, k, row_tile, column_tile, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    """out = a x b for one tile of contiguous matrices of any size."""
    rows = row_tile * ROWS + tl.arange(0, ROWS)
    columns = column_tile * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    wide_rows = rows.to(tl.int64)[:, None]
    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in tl.range(0, k, DEPTH):
        left = tl.load(a + wide_rows * k + (start + depth)[None, :], mask=(rows[:, None] < m) & ((start + depth)[None, :] < k), other=0.0)
        offsets = (start + depth).to(tl.int64)[:, None] * n + columns[None, :]
        right = tl.load(b + offsets, mask=((start + depth)[:, None] < k) & (columns[None, :] < n), other=0.0)
        acc = tl.dot(left, right, acc)
    tl.store(out + wide_rows * n + columns[None, :], acc.to(out.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def plain_product(a, b, out, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr):
    row_tile, column_tile = tile_place(tl.program_id(0), tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS), GROUP)
    product_tile(a, b, out, m, n, k, row_tile, column_tile, ROWS, COLUMNS, DEPTH)


@triton.jit
def persistent_product(a, b, out, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr):
    rows_tiles, columns_tiles = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
    for tile in tl.range(tl.program_id(0), rows_tiles * columns_tiles, tl.num_programs(0)):
        row_tile, column_tile = tile_place(tile, rows_tiles, columns_tiles, GROUP)
        product_tile(a, b, out, m, n, k, row_tile, column_tile, ROWS, COLUMNS, DEPTH)


@triton.jit
def descriptor_product(a, b, out, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr):
    """out = a x b by TMA. With fewer programs than tiles it is persistent."""
    left = tl.make_tensor_descriptor(a, [m, k], [k, 1], [ROWS, DEPTH])
    right = tl.make_tensor_descriptor(b, [k, n], [n, 1], [DEPTH, COLUMNS])
    result = tl.make_tensor_descriptor(out, [m, n], [n, 1], [ROWS, COLUMNS])
    rows_tiles, columns_tiles = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
    for tile in tl.range(tl.program_id(0), rows_tiles * columns_tiles, tl.num_programs(0)):
        row_tile, column_tile = tile_place(tile, rows_tiles, columns_tiles, GROUP)
        acc = tl.zeros([ROWS, COLUMNS], tl.float32)
        for start in tl.range(0, k, DEPTH):
            acc = tl.dot(left.load([row_tile * ROWS, start]), right.load([start, column_tile * COLUMNS]), acc)
        result.store([row_tile * ROWS, column_tile * COLUMNS], acc.to(out.dtype.element_ty))


@triton.jit
def grouped_product(
    addresses, sizes, ends, groups, out, GROUPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr
):
    """A list of products in one launch. addresses: of a, b and out of each group; sizes: m, n, k; ends: the first tile after each group."""
    listed = tl.arange(0, GROUPS)
    all_ends = tl.load(ends + listed, mask=listed < groups, other=2147483647)
    tiles = tl.load(ends + groups - 1)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        group = tl.sum((all_ends <= tile).to(tl.int32), 0)
        begin = tl.max(tl.where(all_ends <= tile, all_ends, 0), 0)
        a = tl.load(addresses + group * 3).to(tl.pointer_type(out.dtype.element_ty))
        b = tl.load(addresses + group * 3 + 1).to(tl.pointer_type(out.dtype.element_ty))
        result = tl.load(addresses + group * 3 + 2).to(tl.pointer_type(out.dtype.element_ty))
        m = tl.load(sizes + group * 3)
        n = tl.load(sizes + group * 3 + 1)
        k = tl.load(sizes + group * 3 + 2)
        a, b, result = tl.multiple_of(a, 16), tl.multiple_of(b, 16), tl.multiple_of(result, 16)
        n, k = tl.multiple_of(n, 16), tl.multiple_of(k, 16)
        columns_tiles = tl.cdiv(n, COLUMNS)
        inside = tile - begin
        product_tile(a, b, result, m, n, k, inside // columns_tiles, inside % columns_tiles, ROWS, COLUMNS, DEPTH)


@triton.jit
def expert_product(
    x, weights, out, slots, experts, slot_count, padded_count, n, k, top,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Mixture of experts: rows of x gathered by slots (token x top + choice), each block of ROWS slots by its expert's n x k weights."""
    row_tile, column_tile = tile_place(tl.program_id(0), tl.num_programs(0) // tl.cdiv(n, COLUMNS), tl.cdiv(n, COLUMNS), GROUP)
    if row_tile * ROWS < tl.load(padded_count):
        slot = tl.load(slots + row_tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        expert = tl.load(experts + row_tile).to(tl.int64)
        columns = column_tile * COLUMNS + tl.arange(0, COLUMNS)
        depth = tl.arange(0, DEPTH)
        real = slot < slot_count
        acc = tl.zeros([ROWS, COLUMNS], tl.float32)
        for start in tl.range(0, k, DEPTH):
            inside = start + depth < k
            left = tl.load(x + (slot // top)[:, None] * k + (start + depth)[None, :], mask=real[:, None] & inside[None, :], other=0.0)
            offsets = columns[None, :] * k + (start + depth)[:, None]
            right = tl.load(weights + expert * n * k + offsets, mask=inside[:, None] & (columns < n)[None, :], other=0.0)
            acc = tl.dot(left, right, acc)
        tl.store(out + slot[:, None] * n + columns[None, :], acc.to(out.dtype.element_ty), mask=real[:, None] & (columns < n)[None, :])


def launch_product(kernel, a, b, out, tile, programs=None):
    """programs: of a persistent launch."""
    (m, k), n = a.shape, b.shape[1]
    rows, columns, depth, warps, stages = tile
    tiles = triton.cdiv(m, rows) * triton.cdiv(n, columns)
    kernel[(min(tiles, programs or tiles),)](a, b, out, m, n, k, rows, columns, depth, 8, num_warps=warps, num_stages=stages)


class GroupedProduct:
    def __init__(self, sizes, tile, dtype=torch.bfloat16, device="cuda"):
        self.a = [torch.randn(m, k, device=device).to(dtype) for m, n, k in sizes]
        self.b = [torch.randn(k, n, device=device).to(dtype) for m, n, k in sizes]
        self.out = [torch.empty(m, n, device=device, dtype=dtype) for m, n, k in sizes]
        addresses = [tensor.data_ptr() for group in zip(self.a, self.b, self.out) for tensor in group]
        ends, self.tiles = [], 0
        for m, n, _ in sizes:
            self.tiles += triton.cdiv(m, tile[0]) * triton.cdiv(n, tile[1])
            ends.append(self.tiles)
        self.addresses = torch.tensor(addresses, dtype=torch.int64).to(device)
        self.sizes = torch.tensor([size for group in sizes for size in group], dtype=torch.int32).to(device)
        self.ends = torch.tensor(ends, dtype=torch.int32).to(device)
        self.groups, self.tile = len(sizes), tile
        self.flops = sum(2 * m * n * k for m, n, k in sizes)

    def launch(self, programs):
        rows, columns, depth, warps, stages = self.tile
        listed = triton.next_power_of_2(self.groups)
        grouped_product[(min(programs, self.tiles),)](
            *(self.addresses, self.sizes, self.ends, self.groups, self.out[0], listed, rows, columns, depth),
            num_warps=warps, num_stages=stages,
        )  # fmt: skip


class ExpertProduct:
    def __init__(self, tokens, experts, top, n, k, tile, dtype=torch.bfloat16, device="cuda"):
        rows = tile[0]
        chosen = torch.rand(tokens, experts, generator=torch.Generator().manual_seed(1)).topk(top).indices.flatten()
        slots, block_experts = [], []
        for expert in range(experts):
            own = (chosen == expert).nonzero().flatten()
            blocks = triton.cdiv(len(own), rows)
            slots += [own, torch.full((blocks * rows - len(own),), tokens * top)]
            block_experts += [expert] * blocks
        self.chosen, self.tile, self.top, self.n, self.k = chosen, tile, top, n, k
        self.slots = torch.cat(slots).to(torch.int32).to(device)
        self.experts = torch.tensor(block_experts, dtype=torch.int32).to(device)
        self.padded_count = torch.tensor([len(self.slots)], dtype=torch.int32).to(device)
        self.x = torch.randn(tokens, k, device=device, dtype=dtype)
        self.weights = torch.randn(experts, n, k, device=device, dtype=dtype)
        self.out = torch.empty(tokens * top, n, device=device, dtype=dtype)
        self.flops = 2 * tokens * top * n * k

    def launch(self):
        rows, columns, depth, warps, stages = self.tile
        expert_product[(len(self.experts) * triton.cdiv(self.n, columns),)](
            *(self.x, self.weights, self.out, self.slots, self.experts, self.out.shape[0], self.padded_count, self.n, self.k, self.top),
            *(rows, columns, depth, 8), num_warps=warps, num_stages=stages,
        )  # fmt: skip


# ---- products: cases -------------------------------------------------------------------------------------------------------------


MM_SIZES = [
    *((size, size, size) for size in (512, 1024, 2048, 3072, 4096, 6144, 8192)),
    *((8192, 8192, 512), (512, 512, 32768), (16, 4096, 4096), (128, 4096, 14336), (4096, 32000, 1024), (16384, 768, 3072)),
    *((1000, 777, 1025), (4095, 4097, 4096)),
]
# rows, columns, depth, warps, stages
TILES = [
    *((128, 128, 64, 4, 3), (128, 128, 64, 8, 3), (128, 256, 64, 8, 3), (64, 128, 64, 4, 4), (64, 64, 32, 4, 3), (128, 128, 32, 4, 5)),
]
TRITON_SIZES = [(4096, 4096, 4096), (8192, 8192, 1024)]


def multiprocessors():
    return torch.cuda.get_device_properties(0).multi_processor_count


def allocate_scratch():
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))


def build_mm(size):
    m, n, k = size
    a, b = normal(m, k), normal(k, n)
    yield {}, lambda: torch.mm(a, b), {"flops": 2 * m * n * k}


def build_triton_product(kind, size, tile):
    m, n, k = size
    a, b, out = normal(m, k), normal(k, n), normal(m, n)
    allocate_scratch()
    kernel = {"plain": plain_product, "persistent": persistent_product}.get(kind, descriptor_product)
    programs = multiprocessors() if "persistent" in kind else None
    yield {}, lambda: launch_product(kernel, a, b, out, tile, programs), {"flops": 2 * m * n * k}


def build_grouped(groups, equal, tile):
    sizes = [(1024 if equal else 128 * (1 + index * 37 % 16), 4096 if index % 2 or equal else 2048, 2048) for index in range(groups)]
    product = GroupedProduct(sizes, tile)
    programs = multiprocessors()
    yield {}, lambda: product.launch(programs), {"flops": product.flops}


def build_experts(tokens, experts, top, n, k, tile):
    product = ExpertProduct(tokens, experts, top, n, k, tile)
    yield {}, product.launch, {"flops": product.flops}


def build_inductor_product(size, choice):
    """One Triton template with one configuration: the card and the virtual GPU then run the same kernel."""
    import torch._inductor.config as config

    torch._dynamo.reset()
    m, n, k = size
    a, b = normal(m, k), normal(k, n)
    config.max_autotune_gemm_backends = "TRITON"
    config.test_configs.autotune_choice_desc_regex = choice
    compiled = torch.compile(torch.mm, dynamic=False, mode="max-autotune-no-cudagraphs")
    try:
        compiled(a, b)
    finally:
        config.test_configs.autotune_choice_desc_regex = None
    yield {}, lambda: compiled(a, b), {"flops": 2 * m * n * k}


def build_embedding(tokens, words, width):
    torch._dynamo.reset()
    table = normal(words, width, dtype=torch.float32)
    index = torch.randint(words, tokens, generator=torch.Generator().manual_seed(1)).cuda()
    compiled = torch.compile(torch.nn.functional.embedding, dynamic=False)
    count = index.numel()
    yield {}, lambda: compiled(index, table), {"bytes": 4 * width * (count + min(count, words)) + 8 * count}


def build_compiled(function, rows, columns, dtype):
    torch._dynamo.reset()
    functional, dtype = torch.nn.functional, getattr(torch, dtype)
    x = normal(rows, columns, dtype=dtype, grad=function == "cross_entropy")
    size_bytes = x.numel() * x.element_size()
    if function == "cross_entropy":
        labels = torch.randint(columns, (rows,), generator=torch.Generator().manual_seed(1)).cuda()
        compiled = torch.compile(lambda x: functional.cross_entropy(x, labels), dynamic=False)
        yield {"direction": "both"}, lambda: torch.autograd.grad(compiled(x), x), {}
        return
    weight, bias = normal(columns, dtype=dtype), normal(columns, dtype=dtype)
    functions = {
        "layer_norm": lambda x: functional.layer_norm(x, (columns,), weight, bias),
        "rms_norm": lambda x: functional.rms_norm(x, (columns,), weight),
        "softmax": lambda x: functional.softmax(x, -1),
        "gelu": lambda x: functional.gelu(x + bias),
    }
    compiled = torch.compile(functions[function], dynamic=False)
    yield {"direction": "forward"}, lambda: compiled(x), {"bytes": 2 * size_bytes}


def products_cases(add):
    for size in MM_SIZES:
        add("mm", build_mm, size=size)
    for size in TRITON_SIZES:
        for tile in TILES:
            add("triton_product", build_triton_product, kind="plain", size=size, tile=tile)
    for kind in ("plain", "persistent"):
        for size in ((1000, 777, 1025), (2048, 2048, 2048), (512, 512, 32768)):
            add("triton_product", build_triton_product, kind=kind, size=size, tile=TILES[0])
    for kind in ("persistent", "descriptor", "descriptor persistent"):
        for size in TRITON_SIZES:
            for tile in TILES[:3]:
                add("triton_product", build_triton_product, kind=kind, size=size, tile=tile)
    for groups, equal in ((16, True), (16, False), (64, False)):
        for tile in (TILES[0], TILES[2]):
            add("grouped_product", build_grouped, groups=groups, equal=equal, tile=tile)
    for tokens in (4096, 64):
        for experts, top, n, k in ((8, 2, 14336, 4096), (64, 6, 2816, 2048)):
            tiles = (TILES[0], TILES[3]) if tokens > 64 else ((16, 128, 64, 4, 4), (64, 128, 64, 4, 4))
            for tile in tiles:
                add("expert_product", build_experts, tokens=tokens, experts=experts, top=top, n=n, k=k, tile=tile)
    for tokens, words, width in (
        *(((8, 2048), 4096, 768), ((8, 2048), 131072, 768), ((8, 2048), 4096, 4096), ((8, 2048), 131072, 4096)),
        *(((32, 2048), 32768, 768), ((32, 16384), 32768, 768)),
    ):
        add("embedding", build_embedding, tokens=tokens, words=words, width=width)
    for function, rows, columns, dtype in (
        *(("layer_norm", 16384, 1024, "bfloat16"), ("layer_norm", 16384, 4096, "bfloat16"), ("layer_norm", 4096, 16384, "float32")),
        *(("rms_norm", 16384, 4096, "bfloat16"), ("softmax", 16384, 1024, "float32"), ("softmax", 4096, 16384, "bfloat16")),
        *(("gelu", 16384, 4096, "bfloat16"), ("cross_entropy", 8192, 32000, "bfloat16"), ("cross_entropy", 4096, 128256, "float32")),
    ):
        add("compiled", build_compiled, function=function, rows=rows, columns=columns, dtype=dtype)
    choice = r"BLOCK_K=64, BLOCK_M=128, BLOCK_N=128,.*num_stages=3"
    for size in ((4096, 4096, 4096), (8192, 8192, 1024), (2048, 2048, 8192)):
        add("inductor_product", build_inductor_product, size=size, choice=choice)


# ---- mechanism: Triton kernels ---------------------------------------------------------------------------------------------------


@triton.jit
def empty_kernel(x):
    pass


@triton.jit
def copy_kernel(x, out, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets))


@triton.jit
def fill_kernel(out, value, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.full([BLOCK], 0.0, out.dtype.element_ty) + value)


@triton.jit
def sum_kernel(x, out, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + offsets), 0))


@triton.jit
def gather_rows(table, indices, out, WIDTH: tl.constexpr):
    """A row a block: the row's load waits for the index's."""
    block = tl.program_id(0).to(tl.int64)
    row = tl.load(indices + block)
    offsets = tl.arange(0, WIDTH)
    tl.store(out + block * WIDTH + offsets, tl.load(table + row * WIDTH + offsets))


@triton.jit
def gather_elements(table, indices, out, width, BLOCK: tl.constexpr):
    """Each element loads its own index, as Inductor's embedding does."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(indices + offsets // width)
    tl.store(out + offsets, tl.load(table + row * width + offsets % width))


@triton.jit
def chase_kernel(following, out, steps):
    """One chain of loads, each at the place that the last one gave."""
    place = tl.program_id(0).to(tl.int64)
    for _ in tl.range(0, steps, num_stages=1):
        place = tl.load(following + place)
    tl.store(out + tl.program_id(0), place)


@triton.jit
def sweep_kernel(x, out, blocks, laps, BLOCK: tl.constexpr):
    """Reads blocks x BLOCK elements laps times, spread over all programs."""
    acc = tl.zeros([BLOCK], tl.float32)
    for index in tl.range(tl.program_id(0), blocks * laps, tl.num_programs(0), num_stages=1):
        acc += tl.load(x + (index % blocks) * BLOCK + tl.arange(0, BLOCK))
    tl.store(out + tl.program_id(0), tl.sum(acc, 0))


@triton.jit
def atomic_kernel(out, ADDRESSES: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + offsets % ADDRESSES, tl.full([BLOCK], 1.0, tl.float32), sem="relaxed")


@triton.jit
def atomic_block_kernel(out, addresses):
    """One atomic a block."""
    tl.atomic_add(out + tl.program_id(0) % addresses, 1.0, sem="relaxed")


@triton.jit
def chain_kernel(x, out, steps, scale, shift, whole, OPERATION: tl.constexpr, BLOCK: tl.constexpr):
    """A dependent chain of one operation for each element."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    number = value.to(tl.int32)
    wide = value.to(tl.float64)
    for _ in tl.range(0, steps, num_stages=1):
        if OPERATION == "fma":
            value = value * scale + shift
        elif OPERATION == "exp":
            value = tl.exp(value)
        elif OPERATION == "rsqrt":
            value = tl.rsqrt(value)
        elif OPERATION == "log":
            value = tl.log(value)
        elif OPERATION == "div":
            value = scale / value
        elif OPERATION == "int_mul":
            number = number * whole + number
        elif OPERATION == "int_div":
            number = whole // (number | 1)
        elif OPERATION == "fma64":
            wide = wide * 0.9990234375 + wide
    tl.store(out + offsets, value + number.to(tl.float32) + wide.to(tl.float32))


@triton.jit
def reduce_chain_kernel(x, out, steps, BLOCK: tl.constexpr):
    """A reduction over the block in each step: shuffles, shared memory and barriers."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    for _ in tl.range(0, steps, num_stages=1):
        value = value - tl.sum(value, 0) * 0.001
    tl.store(out + offsets, value)


@triton.jit
def transpose_kernel(x, out, size, TILE: tl.constexpr):
    """A square matrix by tiles; the layouts meet in shared memory."""
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tile = tl.load(x + rows[:, None] * size + columns[None, :])
    tl.store(out + columns[:, None] * size + rows[None, :], tl.trans(tile))


@triton.jit
def stream_kernel(x, out, steps, BLOCK: tl.constexpr):
    """Each block reads its own steps x BLOCK elements."""
    base = tl.program_id(0).to(tl.int64) * steps * BLOCK
    acc = tl.zeros([BLOCK], tl.float32)
    for step in tl.range(0, steps, num_stages=1):
        acc += tl.load(x + base + step * BLOCK + tl.arange(0, BLOCK))
    tl.store(out + tl.program_id(0), tl.sum(acc, 0))


# ---- mechanism: cases ------------------------------------------------------------------------------------------------------------


def uniform(count, dtype=torch.float32):
    return torch.empty(count, device="cuda", dtype=dtype).uniform_(0.5, 1.0)


def build_copy(size_mib, block, warps, dtype):
    dtype = getattr(torch, dtype)
    x = torch.zeros(size_mib * MIB // dtype.itemsize, device="cuda", dtype=dtype)
    out = torch.empty_like(x)
    yield {}, lambda: copy_kernel[(x.numel() // block,)](x, out, block, num_warps=warps), {"bytes": 2 * size_mib * MIB}


def build_one_way(kind, block, warps):
    x = torch.zeros(128 * MIB, device="cuda")
    out = torch.empty(x.numel() // block, device="cuda")
    functions = {
        "write": lambda: fill_kernel[(len(out),)](x, 2.0, block, num_warps=warps),
        "read": lambda: sum_kernel[(len(out),)](x, out, block, num_warps=warps),
    }
    yield {}, functions[kind], {"bytes": 4 * x.numel()}


def build_gather(kind, width, block, order):
    elements, warps = 64 * MIB, max(1, min(8, block // 128))
    rows = elements // width
    table, out = torch.zeros(elements, device="cuda"), torch.empty(elements, device="cuda")
    orders = {
        "sorted": lambda: torch.arange(rows),
        "random": lambda: torch.randperm(rows, generator=torch.Generator().manual_seed(1)),
        "equal": lambda: torch.full((rows,), rows // 2),
    }
    indices = orders[order]().cuda()
    functions = {
        "rows": lambda: gather_rows[(rows,)](table, indices, out, width, num_warps=warps),
        "elements": lambda: gather_elements[(rows * width // block,)](table, indices, out, width, block, num_warps=warps),
    }
    yield {"warps": warps}, functions[kind], {"bytes": (4 if order == "equal" else 8) * elements + 8 * rows}


def build_chase(size_bytes, stride_bytes, steps, programs):
    count, stride = size_bytes // 8, stride_bytes // 8
    following = (torch.arange(count, device="cuda") + stride) % count
    out = torch.empty(programs, device="cuda", dtype=torch.int64)
    yield {}, lambda: chase_kernel[(programs,)](following, out, steps, num_warps=1), {}


def build_sweep(size_mib, total_mib, programs, warps):
    block = 256 * warps
    x, out = torch.zeros(size_mib * MIB // 4, device="cuda"), torch.empty(programs, device="cuda")
    laps = total_mib // size_mib
    yield {}, lambda: sweep_kernel[(programs,)](x, out, x.numel() // block, laps, block, num_warps=warps), {"bytes": total_mib * MIB}


def build_after_write(size_mib):
    """The reading's own time: write_read less write."""
    block = 1024
    x = torch.zeros(size_mib * MIB // 4, device="cuda")
    out = torch.empty(x.numel() // block, device="cuda")

    def write():
        fill_kernel[(len(out),)](x, 2.0, block, num_warps=4)

    def read():
        sum_kernel[(len(out),)](x, out, block, num_warps=4)

    yield {"kind": "write"}, write, {"bytes": 4 * x.numel()}
    yield {"kind": "read"}, read, {"bytes": 4 * x.numel()}
    yield {"kind": "write_read"}, lambda: (write(), read()), {"bytes": 8 * x.numel()}
    yield {"kind": "read_read"}, lambda: (read(), read()), {"bytes": 8 * x.numel()}


def build_atomic(additions, addresses):
    out = torch.zeros(addresses, device="cuda")
    yield {}, lambda: atomic_kernel[(additions // 1024,)](out, addresses, 1024, num_warps=4), {}


def build_atomic_block(blocks, addresses):
    out = torch.zeros(addresses, device="cuda")
    yield {}, lambda: atomic_block_kernel[(blocks,)](out, addresses, num_warps=1), {}


def build_chain(operation, steps, blocks, block, warps):
    x = uniform(blocks * block)
    out = torch.empty_like(x)
    yield {}, lambda: chain_kernel[(blocks,)](x, out, steps, 0.75, 0.25, 3, operation, block, num_warps=warps), {}


def build_reduce_chain(steps, blocks, block, warps):
    x = uniform(blocks * block)
    out = torch.empty_like(x)
    yield {}, lambda: reduce_chain_kernel[(blocks,)](x, out, steps, block, num_warps=warps), {}


def build_transpose(size, tile, warps, dtype):
    dtype = getattr(torch, dtype)
    x = torch.zeros(size, size, device="cuda", dtype=dtype)
    out = torch.empty_like(x)
    grid = (size // tile, size // tile)
    yield {}, lambda: transpose_kernel[grid](x, out, size, tile, num_warps=warps), {"bytes": 2 * x.numel() * dtype.itemsize}


def build_stream(blocks, steps, block, warps):
    x, out = torch.zeros(blocks * steps * block, device="cuda"), torch.empty(blocks, device="cuda")
    yield {}, lambda: stream_kernel[(blocks,)](x, out, steps, block, num_warps=warps), {"bytes": 4 * x.numel()}


def build_empty(blocks, warps):
    x = torch.zeros(1, device="cuda")
    yield {}, lambda: empty_kernel[(blocks,)](x, num_warps=warps), {}


def build_nothing():
    yield {}, lambda: None, {}


def mechanism_cases(add):
    add("event_pair", build_nothing)
    for blocks, warps in ((1, 4), (132, 4), (8192, 4), (131072, 1), (131072, 4), (131072, 8), (1048576, 1), (1048576, 4)):
        add("empty", build_empty, blocks=blocks, warps=warps)
    copies = [(128, (1, 4)), (256, (1, 4)), (512, (1, 2, 4, 8)), (1024, (1, 2, 4, 8)), (2048, (2, 4, 8)), (4096, (4, 8)), (16384, (4, 8))]
    for block, all_warps in copies:
        for warps in all_warps:
            add("copy", build_copy, size_mib=512, block=block, warps=warps, dtype="float32")
    for block, all_warps in ((128, (1, 4)), (512, (1, 4)), (1024, (1, 4)), (4096, (4, 8)), (16384, (8,))):
        for warps in all_warps:
            add("copy", build_copy, size_mib=512, block=block, warps=warps, dtype="bfloat16")
    for size_mib in (1, 8, 64):
        add("copy", build_copy, size_mib=size_mib, block=1024, warps=4, dtype="float32")
    for kind in ("write", "read"):
        for block, warps in ((512, 4), (1024, 4), (4096, 4), (4096, 8), (16384, 8)):
            add("one_way", build_one_way, kind=kind, block=block, warps=warps)
    for width in (512, 1024, 2048, 4096):
        for order in ("sorted", "random", "equal"):
            add("gather", build_gather, kind="rows", width=width, block=width, order=order)
            if width in (512, 4096):
                add("gather", build_gather, kind="elements", width=width, block=512, order=order)
    add("gather", build_gather, kind="elements", width=768, block=512, order="random")
    add("gather", build_gather, kind="elements", width=768, block=1024, order="random")
    for size_bytes, stride_bytes, steps in ((64 << 10, 128, 16384), (MIB, 256, 16384), (1 << 30, (512 << 10) + 128, 1024)):
        for programs in (1, 132):
            add("chase", build_chase, size_bytes=size_bytes, stride_bytes=stride_bytes, steps=steps, programs=programs)
    for size_mib in (4, 8, 16, 32, 48, 64):
        add("sweep", build_sweep, size_mib=size_mib, total_mib=1536, programs=132 * 8, warps=8)
    add("sweep", build_sweep, size_mib=16, total_mib=1536, programs=132 * 16, warps=4)
    add("sweep", build_sweep, size_mib=16, total_mib=1536, programs=132 * 2, warps=4)
    for size_mib in (4, 16, 32, 64, 128):
        add("after_write", build_after_write, size_mib=size_mib)
    for addresses in (1, 32, 1024, 32768, MIB):
        add("atomic", build_atomic, additions=MIB, addresses=addresses)
    add("atomic", build_atomic, additions=16 * MIB, addresses=16 * MIB)
    for blocks, addresses in ((8192, 1), (65536, 1), (65536, 1024)):
        add("atomic_block", build_atomic_block, blocks=blocks, addresses=addresses)
    for operation in ("fma", "exp", "rsqrt", "log", "div", "int_mul", "int_div", "fma64"):
        add("chain", build_chain, operation=operation, steps=256, blocks=132 * 16, block=1024, warps=4)
    for operation in ("fma", "exp"):
        for warps in (1, 4):  # one element a thread: latency
            add("chain", build_chain, operation=operation, steps=4096, blocks=132, block=32 * warps, warps=warps)
    for block, warps in ((32, 1), (128, 4), (1024, 4), (1024, 8)):
        add("reduce_chain", build_reduce_chain, steps=1024, blocks=132, block=block, warps=warps)
    for tile, warps, dtype in (
        *((32, 4, "float32"), (64, 4, "float32"), (64, 8, "float32"), (128, 8, "float32")),
        *((32, 4, "bfloat16"), (64, 4, "bfloat16"), (128, 8, "bfloat16")),
    ):
        add("transpose", build_transpose, size=8192, tile=tile, warps=warps, dtype=dtype)
    for blocks in (1, 16, 66, 132, 133, 264, 265, 1056, 2112, 2113):
        add("chain_blocks", build_chain, operation="fma", steps=4096, blocks=blocks, block=2048, warps=4)
        add("stream_blocks", build_stream, blocks=blocks, steps=64, block=2048, warps=4)


# ---- the host's calls ------------------------------------------------------------------------------------------------------------


@triton.jit
def ten_arguments_kernel(a, b, c, d, e, f, g, h, i, j):
    pass


def host_calls():
    """(name, a function that makes the call) in the order of measurement"""
    functional, nn = torch.nn.functional, torch.nn

    def call(function, *arguments, **options):
        return lambda: function(*arguments, **options)

    def add():
        return call(torch.add, torch.ones(16, device="cuda"), torch.ones(16, device="cuda"))

    def add_in_place():
        x = torch.ones(16, device="cuda")
        return lambda: x.add_(1.0)

    def linear():
        return call(functional.linear, torch.ones(16, 16, device="cuda"), torch.ones(16, 16, device="cuda"), torch.ones(16, device="cuda"))

    def layer_norm():
        x, weight = torch.ones(16, 16, device="cuda"), torch.ones(16, device="cuda")
        return call(functional.layer_norm, x, (16,), weight, weight)

    def cross_entropy():
        return call(functional.cross_entropy, torch.ones(16, 16, device="cuda"), torch.zeros(16, dtype=torch.int64, device="cuda"))

    def forward_backward():
        layer, x = nn.Linear(16, 16).cuda(), torch.ones(16, 16, device="cuda")

        def function():
            layer(x).sum().backward()
            layer.weight.grad = layer.bias.grad = None

        return function

    def linear_module_with_graph():
        return call(nn.Linear(16, 16).cuda(), torch.ones(16, 16, device="cuda"))

    def optimizer(kind, **options):
        def make():
            parameters = [nn.Parameter(torch.ones(64, device="cuda")) for _ in range(50)]
            for parameter in parameters:
                parameter.grad = torch.ones_like(parameter)
            return getattr(torch.optim, kind)(parameters, lr=1e-3, **options).step

        return make

    def triton_empty():
        return call(empty_kernel[(1,)], torch.ones(16, device="cuda"))

    def triton_ten():
        x = torch.ones(16, device="cuda")
        return lambda: ten_arguments_kernel[(1,)](x, x, x, x, x, 2, 3, 4, 5, 6.0)

    def compiled():
        torch._dynamo.reset()
        return call(torch.compile(lambda x: torch.sin(x) + 1, dynamic=False), torch.ones(16, device="cuda"))

    def event_pair():
        def function():
            first, second = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            second.record()

        return function

    def event_record():
        return torch.cuda.Event(enable_timing=True).record

    def synchronize():
        return torch.cuda.synchronize

    def item():
        return torch.ones(1, device="cuda").item

    square = lambda: torch.ones(16, 16, device="cuda")  # noqa: E731
    return {
        "add": add,
        "add_in_place": add_in_place,
        "mul_scalar": lambda: call(torch.mul, square(), 2.0),
        "linear": linear,
        "layer_norm": layer_norm,
        "softmax": lambda: call(functional.softmax, square(), -1),
        "gelu": lambda: call(functional.gelu, square()),
        "dropout": lambda: call(functional.dropout, square()),
        "mm": lambda: call(torch.mm, square(), square()),
        "sum": lambda: call(torch.sum, square()),
        "cat": lambda: call(torch.cat, [square(), square()]),
        "cross_entropy": cross_entropy,
        "linear_module_with_graph": linear_module_with_graph,
        "linear_forward_backward": forward_backward,
        "adamw_foreach_50": optimizer("AdamW", foreach=True),
        "adamw_fused_50": optimizer("AdamW", fused=True),
        "sgd_foreach_50": optimizer("SGD", foreach=True),
        "sgd_loop_50": optimizer("SGD", foreach=False),
        "triton_empty": triton_empty,
        "triton_ten_arguments": triton_ten,
        "compiled_sin_add": compiled,
        "event_pair": event_pair,
        "event_record": event_record,
        "empty_tensor": lambda: call(torch.empty, 16, device="cuda"),
        "zeros_tensor": lambda: call(torch.zeros, 16, device="cuda"),
        "view": lambda: call(square().view, 256),
        "copy_to_device": lambda: call(torch.ones(16).to, "cuda"),
        "synchronize": synchronize,
        "item": item,
        "python_call": lambda: lambda: None,
    }


def build_host(call):
    yield {}, host_calls()[call](), {}


def host_cases(add):
    for call in host_calls():
        add("call", build_host, call=call)


# ---- measuring -------------------------------------------------------------------------------------------------------------------


def all_cases(parts):
    cases = []
    for part in parts:
        makers = {"attention": attention_cases, "products": products_cases, "mechanism": mechanism_cases, "host": host_cases}
        makers[part](lambda name, build, part=part, **arguments: cases.append(Case(part, name, arguments, build)))
    return cases


def device_ms(function):
    """Median time on the card, with an empty L2 before each call."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    function()
    torch.cuda.synchronize()
    once_s = time.perf_counter() - begin
    if once_s > ONCE_S:
        return {"ms": once_s * 1e3, "once": True}
    return {"ms": do_bench(function, warmup=10, rep=40, return_mode="median")}


def host_ms(function, calls=200, rounds=5):
    """Median of the rounds: the host's time a call, while the card works on its own."""
    for _ in range(20):
        function()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        end = time.perf_counter()
        torch.cuda.synchronize()
        times.append((end - begin, time.perf_counter() - begin))
    return {name: statistics.median(column) / calls * 1e3 for name, column in zip(("ms", "with_wait_ms"), zip(*times))}


def short(error):
    return f"{type(error).__name__}: {error}"[:300]


def run_cases(cases, deadline, write, warm=False):
    for case in cases:
        if time.monotonic() > deadline:
            write({"part": case.part, "name": "end", "arguments": {}, "error": "no time left"})
            return
        row = {"part": case.part, "name": case.name, "arguments": case.arguments}
        try:
            for more, function, facts in case.build(**case.arguments):
                row = {"part": case.part, "name": case.name, "arguments": {**case.arguments, **more}}
                function()
                torch.cuda.synchronize()
                if not warm:
                    times = host_ms(function) if case.part == "host" else device_ms(function)
                    write({**row, **times, **facts})
        except Exception as error:  # one case's failure is a row
            write({**row, "error": short(error)})
        function = None
        gc.collect()
        if warm:
            torch.cuda.empty_cache()  # many processes share the card


def cpu():
    found = {}
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            name = {"model name": "cpu_model", "cpu MHz": "cpu_mhz"}.get(name.strip())
            if name:
                found.setdefault(name, []).append(value.strip())
    return {
        "cpu_model": found.get("cpu_model", [""])[0],
        "cpu_mhz": max(map(float, found.get("cpu_mhz", ["0"]))),
        "cpu_count": os.cpu_count(),
    }


def provenance_row():
    try:
        facts = provenance()
    except Exception as error:  # rows without it are still worth having
        facts = {"error": short(error), "torch": torch.__version__}
    return {"part": "provenance", "name": "machine", "arguments": {}, "triton": triton.__version__, **cpu(), **facts}


def child(args):
    """Waits for a line with its number of seconds, so that the imports run during the part before."""
    line = sys.stdin.readline()
    if not line.strip():
        return
    deadline = time.monotonic() + float(line)
    shard, shards = map(int, args.shard.split("/"))
    cases = all_cases(args.child.split(","))[shard::shards]
    if args.names:
        cases = [case for case in cases if case.name in args.names.split(",")]
    if args.warm:
        run_cases(cases, deadline, lambda row: print(json.dumps(row), file=sys.stderr), warm=True)
        return
    with open(args.output, "a", encoding="utf-8") as out:

        def write(row):
            out.write(json.dumps(row) + "\n")
            out.flush()

        if args.first:
            write(provenance_row())
        run_cases(cases, deadline, write)


# ---- the parent ------------------------------------------------------------------------------------------------------------------


def start(*arguments):
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), *arguments], stdin=subprocess.PIPE, text=True)


def let_run(process, seconds):
    with contextlib.suppress(OSError):  # it has ended already
        process.stdin.write(f"{seconds}\n")
        process.stdin.close()


def finish(process, seconds):
    try:
        return process.wait(max(seconds, 1))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return "timeout"


def measure(parts, output, minutes, names):
    deadline = time.monotonic() + 60 * minutes
    options = ["--names", names] if names else []
    make = lambda part: start("--child", part, "-o", output, *options, *(["--first"] if part == parts[0] else []))  # noqa: E731
    following = make(parts[0])
    for index, part in enumerate(parts):
        process = following
        following = make(parts[index + 1]) if index + 1 < len(parts) else None
        begin = time.monotonic()
        seconds = max(deadline - begin, 0) * PARTS[part] / sum(PARTS[later] for later in parts[index:])
        let_run(process, seconds)
        status = finish(process, seconds + SPARE_S)
        print(f"{part}: status {status}, {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
        if status != 0:
            with open(output, "a", encoding="utf-8") as out:
                out.write(json.dumps({"part": part, "name": "end", "arguments": {}, "error": f"status {status}"}) + "\n")


def warm_up(parts, minutes):
    """Runs each function once, in one process a core: the card is not measured, so they may share it."""
    shards = os.cpu_count() or 1
    processes = [start("--child", ",".join(parts), "--warm", "--shard", f"{index}/{shards}") for index in range(shards)]
    deadline = time.monotonic() + 60 * minutes
    for process in processes:
        let_run(process, 60 * minutes)
    for process in processes:
        finish(process, deadline + SPARE_S - time.monotonic())


# ---- the check on the CPU --------------------------------------------------------------------------------------------------------


def check():
    """Compares the kernels with PyTorch at small sizes. Triton's interpreter runs them: TRITON_INTERPRET=1."""
    torch.manual_seed(1)
    functional = torch.nn.functional

    def same(name, got, expected):
        error = (got.float() - expected.float()).abs().max().item() / expected.float().abs().max().item()
        print(f"{'ok ' if error < 1e-4 else 'BAD'} {name}: {error:.1e}")
        return error < 1e-4

    good = []
    for causal in (False, True):
        for forward_tile, backward_tile in (((32, 16, 4, 1), (32, 16, 4, 1)), ((32, 32, 4, 1), (16, 16, 4, 1))):
            q, k, v = (torch.randn(1, 2, 64, 16, requires_grad=True) for _ in range(3))
            attention = TritonAttention(q.detach(), k.detach(), v.detach(), causal, forward_tile, backward_tile)
            attention.grad.normal_()
            attention.forward()
            attention.backward()
            expected = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            gradients = torch.autograd.grad(expected, (q, k, v), attention.grad)
            good.append(same(f"attention causal={causal} {forward_tile}", attention.out, expected.detach()))
            good += [same(f"  gradient of {name}", *pair) for name, *pair in zip("qkv", attention.grads, gradients)]
    tile = (16, 16, 16, 4, 1)
    for kernel, programs in ((plain_product, None), (persistent_product, 3), (descriptor_product, None), (descriptor_product, 3)):
        for m, n, k in ((64, 48, 32), (37, 53, 41)):
            if kernel is descriptor_product and n % 4:
                continue  # a descriptor needs strides of 16 bytes
            a, b, out = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
            launch_product(kernel, a, b, out, tile, programs)
            good.append(same(f"product {kernel.__name__} {programs} {m}x{n}x{k}", out, a @ b))
    grouped = GroupedProduct([(16, 32, 48), (40, 16, 16), (48, 48, 32), (16, 16, 64), (80, 32, 16)], tile, torch.float32, "cpu")
    grouped.launch(3)
    good += [same("grouped product", out, a @ b) for a, b, out in zip(grouped.a, grouped.b, grouped.out)]
    product = ExpertProduct(40, 5, 2, 48, 40, tile, torch.float32, "cpu")
    product.launch()
    expected = torch.einsum("sk,snk->sn", product.x.repeat_interleave(2, 0), product.weights[product.chosen])
    good.append(same("expert product", product.out, expected))
    table, indices = torch.randn(8, 64), torch.randint(8, (6,))
    out = torch.empty(6, 64)
    gather_rows[(6,)](table, indices, out, 64)
    good.append(same("gather rows", out, table[indices]))
    gather_elements[(12,)](table, indices, out.zero_(), 64, 32)
    good.append(same("gather elements", out, table[indices]))
    x, out = torch.randn(64, 64), torch.empty(64, 64)
    transpose_kernel[(2, 2)](x, out, 64, 32)
    good.append(same("transpose", out, x.T))
    sums = torch.empty(3)
    sweep_kernel[(3,)](x, sums, 8, 5, 512)
    good.append(same("sweep", sums.sum(), x.sum() * 5))
    sums = torch.empty(4)
    stream_kernel[(4,)](x, sums, 2, 512)
    good.append(same("stream", sums, x.view(4, -1).sum(1)))
    return 0 if all(good) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", help="a file for the rows; existing rows are kept")
    parser.add_argument("--only", default=",".join(PARTS), help="parts (default: %(default)s)")
    parser.add_argument("--names", metavar="NAME,...", help="cases of these names alone: flex_attention, mm ... (not with --warm)")
    parser.add_argument("--minutes", type=float, help="cases not begun by then are left out (default 1.7, with --warm 8)")
    parser.add_argument("--warm", action="store_true", help="compile: run each function once, measure nothing")
    parser.add_argument("--check", action="store_true", help="compare the kernels with PyTorch; with TRITON_INTERPRET=1, on the CPU")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--first", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--shard", default="0/1", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.check:
        return check()
    if args.child:
        child(args)
        return 0
    parts = [part for part in PARTS if part in args.only.split(",")]
    if not parts:
        parser.error(f"--only: {', '.join(PARTS)}")
    if args.warm:
        warm_up(parts, args.minutes or 8)
        return 0
    if not args.output:
        parser.error("name a file for the rows: -o rows.jsonl")
    measure(parts, args.output, args.minutes or 1.7, args.names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
