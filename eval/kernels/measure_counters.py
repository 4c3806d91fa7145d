#!/usr/bin/env python3
"""Hardware counters of Triton, Liger and inductor kernels on a real H100, under Nsight Compute.

    python measure_counters.py -o counters.csv.gz [--seconds 75,45] [--ncu PATH] [--only triton]
    python measure_counters.py --run [--only triton,liger] [--labels labels.json] [--until UNIX_TIME]

The first fills the compilers' caches with some children for each group, all at once, and then starts ncu on `--run`: with the counters that
surely exist (two groups at a time), then with the others. ncu writes its CSV at the end, so a child ends by itself when its time is over
(`--until`), and ncu is killed 20 s later. The clocks stay as they are. The output has a line a launch with `pass`, `groups` and ncu's columns,
in base units. OUTPUT.labels.json has the cases of each run in order, what failed, and ncu's own messages.

`--run` launches each case once to compile it and once between profiler.start() and profiler.stop(). Before each it launches
`case_mark_kernel` with a grid of the case's number + 1, outside of what is profiled: so a capture of the same program shows the cases.
"""

import argparse
import csv
import glob
import gzip
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import torch
import triton
import triton.language as tl

GROUPS = ("triton", "matrix", "liger", "inductor")
CERTAIN = (
    "gpu__time_duration.sum",
    "launch__grid_size",
    "launch__block_size",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_dynamic",
    "launch__shared_mem_per_block_static",
    "launch__waves_per_multiprocessor",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__cycles_elapsed.max",
    "smsp__cycles_active.sum",
    "smsp__inst_executed.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "lts__t_sectors_op_atom.sum",
    "lts__t_sectors_op_red.sum",
    "lts__t_sector_hit_rate.pct",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
)
OTHERS = (
    "gpu__time_duration.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    "l1tex__m_xbar2l1tex_read_sectors.sum",
    "l1tex__m_xbar2l1tex_read_sectors_mem_lg_op_ld.sum",
    "l1tex__m_l1tex2xbar_write_sectors_mem_lg_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum",
    "lts__t_sectors_srcunit_tex_lookup_miss.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "smsp__thread_inst_executed.sum",
    "smsp__inst_executed_op_shared_ld.sum",
    "smsp__inst_executed_op_shared_st.sum",
    "smsp__inst_executed_op_ldsm.sum",
    "smsp__inst_executed_op_ldgsts.sum",
    "smsp__inst_executed_op_global_ld.sum",
    "smsp__inst_executed_op_global_st.sum",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio",
)

# --- Triton kernels ------------------------------------------------------------------------------------------------------------------


@triton.jit
def case_mark_kernel(out):
    tl.store(out, 1)


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def strided_copy_kernel(x, out, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at * stride, mask=at < n), mask=at < n)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    values = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, (values / tl.sum(values, 0)).to(out.dtype.element_ty), mask=at < columns)


@triton.jit
def layer_norm_kernel(x, out, weight, bias, mean, inverse, columns, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    middle = tl.sum(values, 0) / columns
    centred = tl.where(inside, values - middle, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / columns + eps)
    tl.store(mean + row, middle)
    tl.store(inverse + row, scale)
    w, b = tl.load(weight + at, mask=inside), tl.load(bias + at, mask=inside)
    tl.store(out + row * columns + at, (centred * scale * w + b).to(out.dtype.element_ty), mask=inside)


@triton.jit
def layer_norm_backward_kernel(dx, dy, dw, db, x, weight, mean, inverse, locks, columns, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    gradient = tl.load(dy + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(inverse + row)
    normal = tl.where(inside, (values - tl.load(mean + row)) * scale, 0.0)
    weighted = tl.where(inside, w * gradient, 0.0)
    c1, c2 = tl.sum(normal * weighted, 0) / columns, tl.sum(weighted, 0) / columns
    tl.store(dx + row * columns + at, ((weighted - (normal * c1 + c2)) * scale).to(dx.dtype.element_ty), mask=inside)
    part = row % GROUP
    tl.atomic_add(dw + part * columns + at, gradient * normal, mask=inside)
    tl.atomic_add(db + part * columns + at, gradient, mask=inside)


@triton.jit
def column_sum_kernel(parts, out, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    at = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, rows, BLOCK_M):
        row = start + tl.arange(0, BLOCK_M)
        total += tl.load(parts + row[:, None] * columns + at[None, :], mask=(row < rows)[:, None] & (at < columns)[None, :], other=0.0)
    tl.store(out + at, tl.sum(total, 0), mask=at < columns)


@triton.jit
def transpose_kernel(x, out, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    tile = tl.load(x + m[:, None] * columns + n[None, :], mask=(m < rows)[:, None] & (n < columns)[None, :])
    tl.store(out + n[:, None] * rows + m[None, :], tl.trans(tile), mask=(n < columns)[:, None] & (m < rows)[None, :])


@triton.jit
def uncoalesced_transpose_kernel(x, out, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(out + at * rows + row, tl.load(x + row * columns + at, mask=at < columns), mask=at < columns)


@triton.jit
def gather_kernel(x, index, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    source = tl.load(index + row)
    for start in range(0, columns, BLOCK):
        inside = start + at < columns
        tl.store(out + row * columns + start + at, tl.load(x + source * columns + start + at, mask=inside), mask=inside)


@triton.jit
def element_gather_kernel(x, index, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    source = tl.load(index + at, mask=at < n, other=0)
    tl.store(out + at, tl.load(x + source, mask=at < n), mask=at < n)


@triton.jit
def scatter_add_kernel(x, index, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(index + at, mask=at < n, other=0), tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def cumsum_kernel(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    tl.store(out + row * columns + at, tl.cumsum(values, 0), mask=at < columns)


@triton.jit
def combine_recurrence(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def recurrence_kernel(a, b, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at, row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, ROWS)
    places = row[:, None] * columns + at[None, :]
    inside = (row < rows)[:, None] & (at < columns)[None, :]
    x, y = tl.load(a + places, mask=inside, other=1.0), tl.load(b + places, mask=inside, other=0.0)
    _, state = tl.associative_scan((x, y), 0, combine_recurrence)
    tl.store(out + places, state, mask=inside)


@triton.jit
def argmax_kernel(x, values, indices, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row, at = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    inside = (row < rows)[:, None] & (at < columns)[None, :]
    tile = tl.load(x + row[:, None] * columns + at[None, :], mask=inside, other=-float("inf"))
    tl.store(indices + row, tl.argmax(tile, 1), mask=row < rows)
    tl.store(values + row, tl.max(tile, 1), mask=row < rows)


@triton.jit
def rope_kernel(q, cos, sin, heads, length, HALF: tl.constexpr, HEADS: tl.constexpr):
    token = tl.program_id(0)
    head, at = tl.arange(0, HEADS), tl.arange(0, HALF)
    c, s = tl.load(cos + (token % length) * HALF + at)[None, :], tl.load(sin + (token % length) * HALF + at)[None, :]
    first = q + token * heads * 2 * HALF + head[:, None] * 2 * HALF + at[None, :]
    inside = (head < heads)[:, None]
    a, b = tl.load(first, mask=inside).to(tl.float32), tl.load(first + HALF, mask=inside).to(tl.float32)
    tl.store(first, (a * c - b * s).to(q.dtype.element_ty), mask=inside)
    tl.store(first + HALF, (b * c + a * s).to(q.dtype.element_ty), mask=inside)


@triton.jit
def online_cross_entropy_kernel(logits, labels, losses, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    most, total = -float("inf"), 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(logits + row * columns + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        new = tl.maximum(most, tl.max(values, 0))
        total = total * tl.exp(most - new) + tl.sum(tl.exp(values - new), 0)
        most = new
    logarithm = most + tl.log(total)
    tl.store(losses + row, logarithm - tl.load(logits + row * columns + label).to(tl.float32))
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(logits + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        gradient = tl.exp(values - logarithm) - tl.where(at == label, 1.0, 0.0)
        tl.store(logits + row * columns + at, gradient.to(logits.dtype.element_ty), mask=at < columns)


@triton.jit
def fp8_cast_kernel(x, scale, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n).to(tl.float32) * tl.load(scale)
    tl.store(out + at, values.to(tl.float8e4nv), mask=at < n)


@triton.jit
def group_quantize_kernel(x, out, scales, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at).to(tl.float32)
    scale = tl.max(tl.abs(values), 0) / 448.0 + 1e-12
    tl.store(out + at, (values / scale).to(tl.float8e4nv))
    tl.store(scales + tl.program_id(0), scale)


@triton.jit
def dropout_kernel(x, out, n, share, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.where(tl.rand(seed, at) > share, values / (1 - share), 0.0), mask=at < n)


@triton.jit
def histogram_kernel(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x + at, mask=at < n, other=0), BINS)
    tl.atomic_add(out + tl.arange(0, BINS), counts)


@triton.jit
def sort_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def tile_order(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    across, down = tl.cdiv(N, BLOCK_N), tl.cdiv(M, BLOCK_M)
    first = tile // (GROUP * across) * GROUP
    size = min(down - first, GROUP)
    return first + tile % (GROUP * across) % size, tile % (GROUP * across) // size


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, am, ak, bk, bn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr
):
    tile_m, tile_n = tile_order(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    m = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    n = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    k = tl.arange(0, BLOCK_K)
    left, right = a + m[:, None] * am + k[None, :] * ak, b + k[:, None] * bk + n[None, :] * bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, tl.cdiv(K, BLOCK_K)):
        x = tl.load(left, mask=k[None, :] < K - start * BLOCK_K, other=0.0)
        y = tl.load(right, mask=k[:, None] < K - start * BLOCK_K, other=0.0)
        total = tl.dot(x, y, total)
        left += BLOCK_K * ak
        right += BLOCK_K * bk
    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def persistent_matmul_kernel(
    a, b, c, M, N, K, BLOCKS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr
):
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, BLOCKS):
        tile_m, tile_n = tile_order(tile, M, N, BLOCK_M, BLOCK_N, GROUP)
        m, n = tile_m * BLOCK_M + tl.arange(0, BLOCK_M), tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, tl.cdiv(K, BLOCK_K)):
            k = start * BLOCK_K + tl.arange(0, BLOCK_K)
            x = tl.load(a + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
            y = tl.load(b + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
            total = tl.dot(x, y, total)
        tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def tma_matmul_kernel(
    a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, STORE: tl.constexpr
):
    left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BLOCK_M, BLOCK_K])
    right = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BLOCK_N, BLOCK_K])
    tile_m, tile_n = tile_order(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, tl.cdiv(K, BLOCK_K)):
        x, y = left.load([tile_m * BLOCK_M, start * BLOCK_K]), right.load([tile_n * BLOCK_N, start * BLOCK_K])
        total = tl.dot(x, y.T, total)
    if STORE:
        out = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
        out.store([tile_m * BLOCK_M, tile_n * BLOCK_N], total.to(c.dtype.element_ty))
    else:
        m, n = tile_m * BLOCK_M + tl.arange(0, BLOCK_M), tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def tma_copy_kernel(x, out, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[rows, columns], strides=[columns, 1], block_shape=[BLOCK_M, BLOCK_N])
    target = tl.make_tensor_descriptor(out, shape=[rows, columns], strides=[columns, 1], block_shape=[BLOCK_M, BLOCK_N])
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    target.store([m, n], source.load([m, n]))


@triton.jit
def grouped_matmul_kernel(
    x, weights, out, offsets, N, K, EXPERTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    expert = tl.program_id(0)
    first, last = tl.load(offsets + expert), tl.load(offsets + expert + 1)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    for row in range(first, last, BLOCK_M):
        m = row + tl.arange(0, BLOCK_M)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, K, BLOCK_K):
            k = start + tl.arange(0, BLOCK_K)
            left = tl.load(x + m[:, None] * K + k[None, :], mask=(m < last)[:, None], other=0.0)
            right = tl.load(weights + expert * K * N + k[:, None] * N + n[None, :])
            total = tl.dot(left, right, total)
        tl.store(out + m[:, None] * N + n[None, :], total.to(out.dtype.element_ty), mask=(m < last)[:, None])


@triton.jit
def split_k_kernel(a, b, c, M, N, K, SPLIT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(tl.program_id(2) * BLOCK_K, K, SPLIT * BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        total = tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]), total)
    tl.atomic_add(c + m[:, None] * N + n[None, :], total)


@triton.jit
def flash_kernel(q, k, v, out, length, scale, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr):
    start = tl.program_id(0) * BLOCK_M
    base = tl.program_id(1) * length * WIDTH
    m, at = start + tl.arange(0, BLOCK_M), tl.arange(0, WIDTH)
    query = tl.load(q + base + m[:, None] * WIDTH + at[None, :])
    most, total = tl.full((BLOCK_M,), -float("inf"), tl.float32), tl.zeros((BLOCK_M,), tl.float32)
    result = tl.zeros((BLOCK_M, WIDTH), tl.float32)
    last = length
    if CAUSAL:
        last = start + BLOCK_M
    for position in range(0, last, BLOCK_N):
        n = position + tl.arange(0, BLOCK_N)
        key = tl.load(k + base + n[None, :] * WIDTH + at[:, None])
        scores = tl.dot(query, key) * (scale * 1.44269504)
        if CAUSAL:
            scores = tl.where(m[:, None] >= n[None, :], scores, -1.0e6)
        new = tl.maximum(most, tl.max(scores, 1))
        share = tl.exp2(scores - new[:, None])
        factor = tl.exp2(most - new)
        total = total * factor + tl.sum(share, 1)
        value = tl.load(v + base + n[:, None] * WIDTH + at[None, :])
        result = tl.dot(share.to(value.dtype), value, result * factor[:, None])
        most = new
    tl.store(out + base + m[:, None] * WIDTH + at[None, :], (result / total[:, None]).to(out.dtype.element_ty))


# --- Inputs: floats from the card; integers from the host, at most 256 KiB of them, so that a virtual card knows them -----------------


def floats(*shape, dtype=torch.bfloat16, grad=False):
    return torch.randn(*shape, dtype=dtype, device="cuda").requires_grad_(grad)


def integers(*shape, most, dtype=torch.int64):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, most, shape, generator=generator, dtype=dtype).cuda()


def empty(*shape, dtype=torch.bfloat16):
    return torch.empty(*shape, dtype=dtype, device="cuda")


def forward_backward(function, *inputs):
    """A launch of `function` and of its backward."""
    out = function(*inputs)
    outs = [out] if torch.is_tensor(out) else [one for one in out if torch.is_tensor(one) and one.requires_grad]
    gradients = [torch.randn_like(one) if one.dim() else torch.ones_like(one) for one in outs]

    def launch():
        for one in inputs:
            if torch.is_tensor(one):
                one.grad = None
        made = function(*inputs)
        made = [made] if torch.is_tensor(made) else [one for one in made if torch.is_tensor(one) and one.requires_grad]
        torch.autograd.backward(made, gradients)

    return launch


# --- Cases: a label, the number of kernels if it is known, and what prepares the launch -----------------------------------------------

CASES = {group: [] for group in GROUPS}


def case(group, label, kernels=1, *arguments, **options):
    def add(prepare):
        CASES[group].append((label, kernels, lambda: prepare(*arguments, **options)))
        return prepare

    return add


def cases_of(group, prepare, **table):
    """A case for each entry of `table`: {label: options of `prepare`}."""
    for label, options in table.items():
        case(group, label, 1, **options)(prepare)


def next_power(n):
    return triton.next_power_of_2(n)


def add(n, dtype=torch.float32, block=1024, warps=4):
    x, y, out = floats(n, dtype=dtype), floats(n, dtype=dtype), empty(n, dtype=dtype)
    return lambda: add_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block, num_warps=warps)


cases_of(
    "triton",
    add,
    add_float32_16m={"n": 1 << 24},
    add_bfloat16_4m={"n": 1 << 22, "dtype": torch.bfloat16, "block": 2048, "warps": 8},
    add_float32_odd={"n": 1_000_003, "block": 512, "warps": 2},
)


def strided_copy(n, stride, dtype=torch.float32):
    x, out = floats(n * stride, dtype=dtype), empty(n, dtype=dtype)
    return lambda: strided_copy_kernel[(triton.cdiv(n, 1024),)](x, out, n, stride, BLOCK=1024)


cases_of(
    "triton",
    strided_copy,
    copy_stride_2={"n": 1 << 21, "stride": 2},
    copy_stride_7={"n": 1 << 20, "stride": 7},
    copy_stride_32={"n": 1 << 19, "stride": 32},
)


def softmax(rows, columns, dtype=torch.float32, warps=4):
    x, out = floats(rows, columns, dtype=dtype), empty(rows, columns, dtype=dtype)
    return lambda: softmax_kernel[(rows,)](x, out, columns, BLOCK=next_power(columns), num_warps=warps)


cases_of(
    "triton",
    softmax,
    softmax_256={"rows": 16384, "columns": 256},
    softmax_781={"rows": 4096, "columns": 781},
    softmax_1000_bfloat16={"rows": 8192, "columns": 1000, "dtype": torch.bfloat16},
    softmax_4096={"rows": 2048, "columns": 4096, "warps": 8},
    softmax_12345_bfloat16={"rows": 1024, "columns": 12345, "dtype": torch.bfloat16, "warps": 16},
)


def layer_norm(rows, columns, dtype=torch.bfloat16, warps=8):
    x, out = floats(rows, columns, dtype=dtype), empty(rows, columns, dtype=dtype)
    weight, bias = floats(columns, dtype=dtype), floats(columns, dtype=dtype)
    mean, inverse = empty(rows, dtype=torch.float32), empty(rows, dtype=torch.float32)
    block = next_power(columns)
    return lambda: layer_norm_kernel[(rows,)](x, out, weight, bias, mean, inverse, columns, 1e-5, BLOCK=block, num_warps=warps)


def layer_norm_backward(rows, columns, group=64, dtype=torch.bfloat16, warps=8):
    x, dy, dx = floats(rows, columns, dtype=dtype), floats(rows, columns, dtype=dtype), empty(rows, columns, dtype=dtype)
    weight, mean, inverse = floats(columns, dtype=dtype), floats(rows, dtype=torch.float32), floats(rows, dtype=torch.float32)
    dw, db = (torch.zeros(group, columns, device="cuda") for _ in range(2))
    out, locks, block = empty(columns, dtype=torch.float32), integers(group, most=1, dtype=torch.int32), next_power(columns)

    def launch():
        layer_norm_backward_kernel[(rows,)](
            dx, dy, dw, db, x, weight, mean, inverse, locks, columns, GROUP=group, BLOCK=block, num_warps=warps
        )
        column_sum_kernel[(triton.cdiv(columns, 128),)](dw, out, group, columns, BLOCK_M=32, BLOCK_N=128)

    return launch


cases_of("triton", layer_norm, layer_norm_4096={"rows": 4096, "columns": 4096}, layer_norm_1023={"rows": 4096, "columns": 1023, "warps": 4})
case("triton", "layer_norm_backward_2048", 2, rows=4096, columns=2048)(layer_norm_backward)


def transpose(rows, columns, block_m, block_n, dtype=torch.float32, warps=4):
    x, out = floats(rows, columns, dtype=dtype), empty(columns, rows, dtype=dtype)
    grid = triton.cdiv(rows, block_m), triton.cdiv(columns, block_n)
    return lambda: transpose_kernel[grid](x, out, rows, columns, BLOCK_M=block_m, BLOCK_N=block_n, num_warps=warps)


cases_of(
    "triton",
    transpose,
    transpose_64x64_float32={"rows": 2048, "columns": 2048, "block_m": 64, "block_n": 64},
    transpose_32x128_float32={"rows": 2048, "columns": 2048, "block_m": 32, "block_n": 128},
    transpose_64x64_bfloat16={"rows": 4096, "columns": 2048, "block_m": 64, "block_n": 64, "dtype": torch.bfloat16},
    transpose_128x32_float16_odd={"rows": 1111, "columns": 2047, "block_m": 128, "block_n": 32, "dtype": torch.float16, "warps": 8},
)


@case("triton", "transpose_uncoalesced")
def uncoalesced_transpose():
    x, out = floats(2048, 1024, dtype=torch.float32), empty(1024, 2048, dtype=torch.float32)
    return lambda: uncoalesced_transpose_kernel[(2048,)](x, out, 2048, 1024, BLOCK=256)


@case("triton", "gather_rows")
def gather():
    x, index, out = floats(16384, 768), integers(8192, most=16384), empty(8192, 768)
    return lambda: gather_kernel[(8192,)](x, index, out, 768, BLOCK=1024)


@case("triton", "embedding_4096_columns")
def embedding():
    x, index, out = floats(32768, 4096), integers(2048, most=32768, dtype=torch.int32), empty(2048, 4096)
    return lambda: gather_kernel[(2048,)](x, index, out, 4096, BLOCK=1024, num_warps=8)


@case("triton", "gather_elements_1m", 1, 1 << 20)  # more indices than a virtual card keeps
@case("triton", "gather_elements_60k", 1, 60_000)
def gather_elements(n):
    x, index, out = floats(1 << 22, dtype=torch.float32), integers(n, most=1 << 22, dtype=torch.int32), empty(n, dtype=torch.float32)
    return lambda: element_gather_kernel[(triton.cdiv(n, 1024),)](x, index, out, n, BLOCK=1024)


def scatter_add(n, most):
    x, index, out = floats(n, dtype=torch.float32), integers(n, most=most, dtype=torch.int32), torch.zeros(most, device="cuda")
    return lambda: scatter_add_kernel[(triton.cdiv(n, 512),)](x, index, out, n, BLOCK=512)


cases_of("triton", scatter_add, scatter_add_1m={"n": 60_000, "most": 1 << 20}, scatter_add_256={"n": 60_000, "most": 256})


def cumsum(rows, columns, warps=4):
    x, out = floats(rows, columns, dtype=torch.float32), empty(rows, columns, dtype=torch.float32)
    return lambda: cumsum_kernel[(rows,)](x, out, columns, BLOCK=next_power(columns), num_warps=warps)


cases_of("triton", cumsum, cumsum_1024={"rows": 4096, "columns": 1024}, cumsum_3000={"rows": 1024, "columns": 3000, "warps": 8})


@case("triton", "associative_scan")
def recurrence():
    a, b, out = (floats(256, 16384, dtype=torch.float32) for _ in range(3))
    return lambda: recurrence_kernel[(16384 // 32,)](a, b, out, 256, 16384, ROWS=256, BLOCK=32, num_warps=8)


def argmax(rows, columns, block_m):
    x, values = floats(rows, columns, dtype=torch.float32), empty(rows, dtype=torch.float32)
    indices = empty(rows, dtype=torch.int32)
    grid, block = (triton.cdiv(rows, block_m),), next_power(columns)
    return lambda: argmax_kernel[grid](x, values, indices, rows, columns, BLOCK_M=block_m, BLOCK_N=block)


cases_of(
    "triton", argmax, argmax_1000={"rows": 8192, "columns": 1000, "block_m": 4}, argmax_64={"rows": 65536, "columns": 64, "block_m": 64}
)


@case("triton", "rope")
def rope():
    q, cos, sin = floats(4096, 32, 128), floats(2048, 64, dtype=torch.float32), floats(2048, 64, dtype=torch.float32)
    return lambda: rope_kernel[(4096,)](q, cos, sin, 32, 2048, HALF=64, HEADS=32)


@case("triton", "cross_entropy_online")
def online_cross_entropy():
    logits, labels, losses = floats(1024, 32000), integers(1024, most=32000), empty(1024, dtype=torch.float32)
    return lambda: online_cross_entropy_kernel[(1024,)](logits, labels, losses, 32000, BLOCK=4096, num_warps=8)


@case("triton", "fp8_cast")
def fp8_cast():
    x, scale, out = floats(1 << 22), torch.ones(1, device="cuda"), empty(1 << 22, dtype=torch.float8_e4m3fn)
    return lambda: fp8_cast_kernel[((1 << 22) // 2048,)](x, scale, out, 1 << 22, BLOCK=2048)


@case("triton", "fp8_group_quantize")
def group_quantize():
    x, out, scales = floats(1 << 21), empty(1 << 21, dtype=torch.float8_e4m3fn), empty((1 << 21) // 128, dtype=torch.float32)
    return lambda: group_quantize_kernel[((1 << 21) // 128,)](x, out, scales, BLOCK=128, num_warps=1)


@case("triton", "dropout")
def dropout():
    x, out = floats(1 << 22, dtype=torch.float32), empty(1 << 22, dtype=torch.float32)
    return lambda: dropout_kernel[((1 << 22) // 1024,)](x, out, 1 << 22, 0.1, 123, BLOCK=1024)


@case("triton", "histogram")
def histogram():
    x, out = integers(60_000, most=256, dtype=torch.int32), torch.zeros(256, dtype=torch.int32, device="cuda")
    return lambda: histogram_kernel[(30,)](x, out, 60_000, BINS=256, BLOCK=2048)


@case("triton", "sort_512")
def sort():
    x, out = floats(1 << 18, dtype=torch.float32), empty(1 << 18, dtype=torch.float32)
    return lambda: sort_kernel[((1 << 18) // 512,)](x, out, BLOCK=512)


def matmul(M, N, K, tile, warps, stages, dtype=torch.bfloat16, b_transposed=False):
    a, c = floats(M, K, dtype=dtype), empty(M, N, dtype=dtype)
    b = floats(N, K, dtype=dtype) if b_transposed else floats(K, N, dtype=dtype)
    bk, bn = (1, K) if b_transposed else (N, 1)
    sizes = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile))
    grid = (triton.cdiv(M, tile[0]) * triton.cdiv(N, tile[1]),)
    return lambda: matmul_kernel[grid](a, b, c, M, N, K, K, 1, bk, bn, **sizes, GROUP=8, num_warps=warps, num_stages=stages)


square = {"M": 2048, "N": 2048, "K": 2048}
cases_of(
    "matrix",
    matmul,
    matmul_bfloat16_128x128x64={**square, "tile": (128, 128, 64), "warps": 4, "stages": 3},
    matmul_bfloat16_128x256x64={**square, "tile": (128, 256, 64), "warps": 8, "stages": 3},
    matmul_float16_64x64x32={**square, "tile": (64, 64, 32), "warps": 4, "stages": 2, "dtype": torch.float16},
    matmul_float16_32x64x32={"M": 1024, "N": 1024, "K": 1024, "tile": (32, 64, 32), "warps": 2, "stages": 4, "dtype": torch.float16},
    matmul_bfloat16_transposed={**square, "tile": (128, 128, 64), "warps": 8, "stages": 4, "b_transposed": True},
    matmul_tf32_128x64x32={"M": 1024, "N": 1024, "K": 1024, "tile": (128, 64, 32), "warps": 4, "stages": 3, "dtype": torch.float32},
    matmul_odd={"M": 1000, "N": 777, "K": 520, "tile": (64, 128, 64), "warps": 4, "stages": 3},
    matmul_16_rows={"M": 16, "N": 4096, "K": 4096, "tile": (16, 64, 128), "warps": 4, "stages": 3},
)


@case("matrix", "matmul_persistent")
def persistent_matmul():
    a, b, c = floats(4096, 1024), floats(1024, 2048), empty(4096, 2048)
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    sizes = {"BLOCKS": blocks, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8}
    return lambda: persistent_matmul_kernel[(blocks,)](a, b, c, 4096, 2048, 1024, **sizes, num_warps=8, num_stages=3)


def tma_matmul(store, warps):
    a, b, c = floats(2048, 1024), floats(2048, 1024), empty(2048, 2048)
    sizes = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP": 8, "STORE": store}
    return lambda: tma_matmul_kernel[(256,)](a, b, c, 2048, 2048, 1024, **sizes, num_warps=warps, num_stages=3)


cases_of("matrix", tma_matmul, matmul_tma_load={"store": False, "warps": 4}, matmul_tma_load_store={"store": True, "warps": 8})


@case("matrix", "copy_tma")
def tma_copy():
    x, out = floats(4096, 2048), empty(4096, 2048)
    return lambda: tma_copy_kernel[(32, 32)](x, out, 4096, 2048, BLOCK_M=128, BLOCK_N=64)


@case("matrix", "matmul_grouped")
def grouped_matmul():
    experts, rows = 8, (100, 300, 17, 512, 256, 64, 411, 388)
    x, weights, out = floats(2048, 512), floats(experts, 512, 1024), empty(2048, 1024)
    offsets = torch.tensor([0, *rows], dtype=torch.int32).cumsum(0).to(torch.int32).cuda()
    sizes = {"EXPERTS": experts, "BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64}
    return lambda: grouped_matmul_kernel[(experts, 8)](x, weights, out, offsets, 1024, 512, **sizes, num_warps=4, num_stages=3)


@case("matrix", "matmul_split_k_atomic")
def split_k():
    a, b, c = floats(256, 4096), floats(4096, 256), torch.zeros(256, 256, device="cuda")
    sizes = {"SPLIT": 8, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
    return lambda: split_k_kernel[(4, 4, 8)](a, b, c, 256, 256, 4096, **sizes, num_warps=4, num_stages=3)


def flash(length, heads, width, block_m, block_n, warps, stages, causal=True, dtype=torch.bfloat16):
    q, k, v, out = (floats(heads, length, width, dtype=dtype) for _ in range(4))
    sizes = {"WIDTH": width, "BLOCK_M": block_m, "BLOCK_N": block_n, "CAUSAL": causal}
    grid = length // block_m, heads
    return lambda: flash_kernel[grid](q, k, v, out, length, width**-0.5, **sizes, num_warps=warps, num_stages=stages)


cases_of(
    "matrix",
    flash,
    flash_causal_64={"length": 2048, "heads": 16, "width": 64, "block_m": 128, "block_n": 64, "warps": 4, "stages": 3},
    flash_causal_128={"length": 1024, "heads": 16, "width": 128, "block_m": 128, "block_n": 64, "warps": 8, "stages": 2},
    flash_full_float16={
        **{"length": 1024, "heads": 8, "width": 64, "block_m": 64, "block_n": 32, "warps": 4, "stages": 2},
        **{"causal": False, "dtype": torch.float16},
    },
)

# --- Liger ---------------------------------------------------------------------------------------------------------------------------


@case("liger", "liger_rms_norm", None)
def liger_rms_norm():
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction as F

    return forward_backward(lambda x, w: F.apply(x, w, 1e-6, 0.0, "llama", False), floats(4096, 4096, grad=True), floats(4096, grad=True))


@case("liger", "liger_rms_norm_short_rows", None)
def liger_rms_norm_short():
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction as F

    return forward_backward(lambda x, w: F.apply(x, w, 1e-6, 0.0, "llama", False), floats(40000, 128, grad=True), floats(128, grad=True))


@case("liger", "liger_fused_add_rms_norm", None)
def liger_fused_add_rms_norm():
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction as F

    inputs = floats(2048, 2048, grad=True), floats(2048, 2048, grad=True), floats(2048, grad=True)
    return forward_backward(lambda x, r, w: F.apply(x, r, w, 1e-6, 0.0, "llama", False), *inputs)


@case("liger", "liger_layer_norm", None)
def liger_layer_norm():
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction as F

    inputs = floats(4096, 2048, grad=True), floats(2048, grad=True), floats(2048, grad=True)
    return forward_backward(lambda x, w, b: F.apply(x, w, b, 1e-6), *inputs)


@case("liger", "liger_group_norm", None)
def liger_group_norm():
    from liger_kernel.ops.group_norm import LigerGroupNormFunction as F

    shape = {"dtype": torch.float32, "grad": True}
    inputs = floats(16, 64, 1024, **shape), floats(64, **shape), floats(64, **shape)
    return forward_backward(lambda x, w, b: F.apply(x, w, b, 64, 8, 1e-6), *inputs)


@case("liger", "liger_swiglu", None)
def liger_swiglu():
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction as F

    return forward_backward(F.apply, floats(2048, 5504, grad=True), floats(2048, 5504, grad=True))


@case("liger", "liger_geglu", None)
def liger_geglu():
    from liger_kernel.ops.geglu import LigerGELUMulFunction as F

    return forward_backward(F.apply, floats(2048, 4096, grad=True), floats(2048, 4096, grad=True))


@case("liger", "liger_cross_entropy", None)
def liger_cross_entropy():
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction as F

    labels = integers(1024, most=32000)
    leaf = floats(1024, 32000, grad=True)  # Liger writes the gradient into its input: a copy of the leaf
    return forward_backward(lambda x: F.apply(x * 1, labels, None, -100, 0.0, 0.0, "mean", None, False)[0] * 2, leaf)


@case("liger", "liger_cross_entropy_smoothing", None)
def liger_cross_entropy_smoothing():
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction as F

    labels, weight = integers(1024, most=8192), torch.ones(8192, device="cuda")
    leaf = floats(1024, 8192, dtype=torch.float32, grad=True)
    return forward_backward(lambda x: F.apply(x * 1, labels, weight, -100, 1e-4, 0.1, "mean", 30.0, True)[0], leaf)


@case("liger", "liger_rope", None)
def liger_rope():
    from liger_kernel.ops.rope import LigerRopeFunction as F

    cos, sin = floats(1, 1024, 128), floats(1, 1024, 128)
    inputs = floats(2, 32, 1024, 128, grad=True), floats(2, 8, 1024, 128, grad=True)
    return forward_backward(lambda q, k: F.apply(q * 1, k * 1, cos, sin), *inputs)


@case("liger", "liger_embedding", None)
def liger_embedding():
    from liger_kernel.ops.experimental.embedding import LigerEmbeddingFunction as F

    index = integers(2048, most=8192)
    return forward_backward(lambda x: F.apply(x, index), floats(8192, 1024, dtype=torch.float32, grad=True))


@case("liger", "liger_fused_linear_cross_entropy", None)
def liger_fused_linear_cross_entropy():
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction as F

    labels = integers(1024, most=8192)
    inputs = floats(1024, 2048, grad=True), floats(8192, 2048, grad=True)  # four chunks
    return forward_backward(lambda x, w: F.apply(x, w, labels)[0] * 2, *inputs)


@case("liger", "liger_softmax", None)
def liger_softmax():
    from liger_kernel.ops.softmax import LigerSoftmaxFunction as F

    return forward_backward(F.apply, floats(4096, 2048, grad=True))


@case("liger", "liger_dyt", None)
def liger_dyt():
    from liger_kernel.ops.dyt import LigerDyTFunction as F

    inputs = floats(4096, 2048, grad=True), floats(1, grad=True), floats(2048, grad=True), floats(2048, grad=True)
    return forward_backward(F.apply, *inputs)


@case("liger", "liger_kl_div", None)
def liger_kl_div():
    from liger_kernel.ops.kl_div import LigerKLDivLossFunction as F

    right = floats(1024, 8192, dtype=torch.float32).softmax(-1)
    leaf = floats(1024, 8192, dtype=torch.float32).log_softmax(-1).requires_grad_()
    return forward_backward(lambda x: F.apply(x, right), leaf)


# --- Inductor ------------------------------------------------------------------------------------------------------------------------


def compiled(function, *inputs, backward=False):
    made = torch.compile(function, dynamic=False)
    if backward:
        return forward_backward(made, *inputs)
    return lambda: made(*inputs)


@case("inductor", "inductor_pointwise")
def inductor_pointwise():
    return compiled(lambda x, y: torch.relu(x * 2 + y).sin() * y, floats(4096, 2048), floats(4096, 2048))


@case("inductor", "inductor_broadcast_gelu_bias")
def inductor_gelu_bias():
    return compiled(lambda x, b: torch.nn.functional.gelu(x + b, approximate="tanh"), floats(4096, 3072), floats(3072))


@case("inductor", "inductor_gelu_bias_float32_odd")
def inductor_gelu_bias_odd():
    return compiled(
        lambda x, b: torch.nn.functional.gelu(x + b), floats(1023, 1537, dtype=torch.float32), floats(1537, dtype=torch.float32)
    )


@case("inductor", "inductor_transposed_add")
def inductor_transposed_add():
    return compiled(lambda x, y: x.t().contiguous() + y, floats(2048, 3072, dtype=torch.float32), floats(3072, 2048, dtype=torch.float32))


@case("inductor", "inductor_row_sum", None)
def inductor_row_sum():
    return compiled(lambda x: (x * x).sum(-1), floats(4096, 8192))


@case("inductor", "inductor_column_sum", None)
def inductor_column_sum():
    return compiled(lambda x: x.float().sum(0), floats(8192, 1024))


@case("inductor", "inductor_full_sum", None)
def inductor_full_sum():
    return compiled(lambda x: x.abs().mean(), floats(4096, 2048, dtype=torch.float32))


@case("inductor", "inductor_amax_argmax", None)
def inductor_argmax():
    return compiled(lambda x: (x.amax(-1), x.argmax(-1)), floats(4096, 1000, dtype=torch.float32))


@case("inductor", "inductor_softmax_1024")
def inductor_softmax():
    return compiled(lambda x: x.float().softmax(-1).to(x.dtype), floats(8192, 1024))


@case("inductor", "inductor_softmax_32000")
def inductor_softmax_wide():
    return compiled(lambda x: x.float().softmax(-1).to(x.dtype), floats(512, 32000))


@case("inductor", "inductor_layer_norm")
def inductor_layer_norm():
    return compiled(lambda x, w, b: torch.nn.functional.layer_norm(x, (2048,), w, b), floats(4096, 2048), floats(2048), floats(2048))


@case("inductor", "inductor_layer_norm_backward", None)
def inductor_layer_norm_backward():
    inputs = floats(4096, 1024, grad=True), floats(1024, grad=True), floats(1024, grad=True)
    return compiled(lambda x, w, b: torch.nn.functional.layer_norm(x, (1024,), w, b), *inputs, backward=True)


@case("inductor", "inductor_rms_norm_backward", None)
def inductor_rms_norm_backward():
    inputs = floats(2048, 4096, grad=True), floats(4096, grad=True)
    return compiled(lambda x, w: torch.nn.functional.rms_norm(x, (4096,), w, 1e-6), *inputs, backward=True)


def inductor_embedding(dtype, tokens):
    index = integers(tokens, most=32768)
    return compiled(lambda w, index: torch.nn.functional.embedding(index, w) * 2, floats(32768, 4096, dtype=dtype), index)


for name, dtype, tokens in (
    ("bfloat16_1024", torch.bfloat16, 1024),
    ("bfloat16_4096", torch.bfloat16, 4096),
    ("float32_2048", torch.float32, 2048),
):
    case("inductor", f"inductor_embedding_{name}", 1, dtype, tokens)(inductor_embedding)


@case("inductor", "inductor_embedding_backward", None)
def inductor_embedding_backward():
    index = integers(2048, most=4096)
    return compiled(
        lambda w: torch.nn.functional.embedding(index, w) * 2, floats(4096, 1024, dtype=torch.float32, grad=True), backward=True
    )


@case("inductor", "inductor_cross_entropy_backward", None)
def inductor_cross_entropy():
    labels = integers(1024, most=32000)
    return compiled(lambda x: torch.nn.functional.cross_entropy(x.float(), labels), floats(1024, 32000, grad=True), backward=True)


@case("inductor", "inductor_cat_rope")
def inductor_rope():
    def rotate(q, cos, sin):
        a, b = q.chunk(2, -1)
        return q * cos + torch.cat((-b, a), -1) * sin

    return compiled(rotate, floats(2, 32, 1024, 128), floats(1024, 128), floats(1024, 128))


@case("inductor", "inductor_dropout", None)
def inductor_dropout():
    return compiled(lambda x: torch.nn.functional.dropout(x, 0.1), floats(4096, 2048))


@case("inductor", "inductor_cumsum", None)
def inductor_cumsum():
    return compiled(lambda x: x.cumsum(-1), floats(2048, 2048, dtype=torch.float32))


@case("inductor", "inductor_scatter_add", None)
def inductor_scatter_add():
    index = integers(32_000, most=1 << 16)
    x, out = floats(32_000, dtype=torch.float32), torch.zeros(1 << 16, device="cuda")
    return compiled(lambda out, x: out.index_add(0, index, x), out, x)


@case("inductor", "inductor_max_pool")
def inductor_max_pool():
    return compiled(lambda x: torch.nn.functional.max_pool2d(x, 3, 2, 1), floats(16, 64, 112, 112))


RESTORE = []  # what undoes a case's settings


def one_template(tile):
    """Makes inductor's choice among the templates of a product the same on every card."""
    from torch._inductor import config, select_algorithm

    def matches(choice):
        description = getattr(choice, "description", "")
        return sum(f"{name}={size}," in description + "," for name, size in tile.items())

    def filtered(choices):
        made = [choice for choice in choices if "triton" in choice.name]
        return [max(made, key=matches)] if made else choices  # the first of equals

    usual = select_algorithm.filter_choices_by_desc_regex
    select_algorithm.filter_choices_by_desc_regex = filtered
    config.max_autotune_gemm, config.max_autotune_gemm_backends = True, "TRITON"

    def restore():
        select_algorithm.filter_choices_by_desc_regex = usual
        config.max_autotune_gemm = False

    RESTORE.append(restore)


def inductor_matmul(tile, dtype, M, N, K, epilogue):
    one_template(tile)
    a, b = floats(M, K, dtype=dtype), floats(K, N, dtype=dtype)
    if epilogue:
        return compiled(lambda a, b: torch.nn.functional.gelu(a @ b) * 2, a, b)
    return compiled(lambda a, b: a @ b, a, b)


for name, tile, dtype, sizes, epilogue in (
    ("bfloat16", {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 4}, torch.bfloat16, (2048, 2048, 2048), False),
    ("bfloat16_gelu", {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "num_warps": 4}, torch.bfloat16, (2048, 1024, 1024), True),
    ("float16_odd", {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, torch.float16, (1000, 520, 776), False),
):
    case("inductor", f"inductor_matmul_{name}", 1, tile, dtype, *sizes, epilogue)(inductor_matmul)


def flex(score, mask, length, backward):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    made = create_block_mask(mask, None, None, length, length, device="cuda") if mask else None
    inputs = tuple(floats(2, 8, length, 64, grad=backward) for _ in range(3))
    function = torch.compile(flex_attention, dynamic=False)
    call = lambda q, k, v: function(q, k, v, score_mod=score, block_mask=made)  # noqa: E731
    return forward_backward(call, *inputs) if backward else lambda: call(*inputs)


def causal(b, h, q, k):
    return q >= k


def window(b, h, q, k):
    return (q >= k) & (q - k <= 256)


for name, mask, backward in (("causal", causal, False), ("window", window, False), ("causal_backward", causal, True)):
    case("inductor", f"flex_attention_{name}", None, None, mask, 1024, backward)(flex)

# --- The program under the profiler --------------------------------------------------------------------------------------------------


def run(args):
    torch.manual_seed(0)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    os.environ.setdefault("TORCHINDUCTOR_DETERMINISTIC", "1")  # a kernel's sizes do not depend on what is faster on this card
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))  # for tensor descriptors
    mark = torch.zeros(1, dtype=torch.int32, device="cuda")
    parameter = torch.nn.Parameter(torch.zeros(1, device="cuda"))
    parameter.grad = torch.zeros(1, device="cuda")
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    optimizer.step()  # gpucast observes the step between the two
    number, lines = 0, []
    for group in GROUPS:
        for label, kernels, prepare in CASES[group]:
            number += 1  # the same for a label whichever groups run
            if group in args.only and number % args.parts == args.part:
                line = {"group": group, "label": label, "case": number, "kernels": kernels} | run_case(prepare, mark, number, args.until)
                lines.append(line)
                print(json.dumps(line), flush=True)
                if args.labels:
                    args.labels.write_text(json.dumps(lines, indent=1))
    optimizer.step()  # gpucast run --steps 2 ends the process here


def run_case(prepare, mark, number, until):
    started = time.time()
    if started > until:
        return {"failed": "the time was over"}
    failed = None
    try:
        launch = prepare()
        launch()
        torch.cuda.synchronize()
        case_mark_kernel[(number + 1,)](mark)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        try:
            launch()
            torch.cuda.synchronize()
        finally:
            torch.cuda.profiler.stop()
            case_mark_kernel[(1,)](mark)  # ends the case
    except Exception as error:
        failed = f"{type(error).__name__}: {error}".strip()[:400]
    finally:
        while RESTORE:
            RESTORE.pop()()
        if "torch._dynamo" in sys.modules:
            torch.compiler.reset()
    return {"seconds": round(time.time() - started, 2), "failed": failed}


# --- Nsight Compute ------------------------------------------------------------------------------------------------------------------


def find_ncu(named):
    places = [named, shutil.which("ncu"), *sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu"), reverse=True)]
    places += sorted(glob.glob("/usr/local/cuda*/bin/ncu"), reverse=True)
    found = next((place for place in places if place and shutil.which(place)), None)
    if not found:
        raise SystemExit("no ncu; name it with --ncu")
    return found


def known_metrics(ncu):
    """The names of an H100's metrics without their suffixes; empty if ncu does not list them."""
    try:
        done = subprocess.run([ncu, "--query-metrics", "--chips", "gh100"], capture_output=True, text=True, timeout=30)
    except subprocess.SubprocessError:
        return set()
    return {line.split()[0].split(".")[0] for line in done.stdout.splitlines() if "__" in line.split(" ")[0]}


def chosen(metrics, known):
    """`metrics` without names that ncu does not know; launch__ names are in no list."""
    if len(known) < 200:  # not the list
        return list(metrics)
    return [name for name in metrics if name.startswith("launch__") or name.split(".")[0] in known]


def wait(process, seconds):
    """Whether the process, which leads its own group, ended within the time. It is interrupted and then killed otherwise."""
    for what, limit in ((None, max(1, seconds)), (signal.SIGINT, 8), (signal.SIGKILL, 5)):
        if what is not None:
            os.killpg(process.pid, what)
        try:
            process.wait(limit)
            return what is None
        except subprocess.TimeoutExpired:
            pass
    return False


def start(command, log, env):
    with open(log, "w") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=env, start_new_session=True)


def child(group, labels, until, part="0/1"):
    command = [sys.executable, os.path.abspath(__file__), "--run", "--only", group, "--part", part]
    return [*command, "--labels", str(labels), "--until", str(until)]


def rows_of(text):
    """(A row a launch, {column: unit}) of ncu's raw page: a header, a line of units, a line a launch. Lines before the header are messages."""
    lines = text.splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        return [], {}
    kept = [line for line in lines[first:] if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(kept))))
    units = next((row for row in rows if not row.get("ID")), {})
    return [row for row in rows if row.get("ID")], {name: unit for name, unit in units.items() if unit}


def tail(path, count):
    return path.read_text(errors="replace")[-count:] if path.exists() else ""


def fill_caches(args, folder, env, until):
    """Compiles everything: some children for each group, all at once, without ncu."""
    began, children, parts = time.time(), {}, args.warm_parts
    for name, group, part in [(f"{group}-warm-{part}", group, part) for group in args.only for part in range(parts)]:
        command = child(group, folder / f"{name}.json", until, f"{part}/{parts}")
        children[name] = start(command, folder / f"{name}.log", env)
    ended = {name: wait(process, until + 5 - time.time()) for name, process in children.items()}
    print(f"caches filled in {time.time() - began:.0f} s: {ended}", file=sys.stderr, flush=True)
    return {
        "seconds": round(time.time() - began, 1),
        "ended": ended,
        "log": {name: tail(folder / f"{name}.log", 6000) for name in children},
    }


def compiled_kernels():
    """What ncu profiles: kernels of Triton, and none of PyTorch's own."""
    mine = [name for name, value in globals().items() if isinstance(value, triton.runtime.JITFunction) and name != "case_mark_kernel"]
    return "regex:^(" + "|".join(["triton_", "_", "liger_", "element_mul_kernel", "embedding_", *mine]) + ").*"


def profile(ncu, groups, name, metrics, seconds, folder, env, everything=False):
    """(Rows, facts) of one ncu run of some groups."""
    stem, began = folder / f"{groups.replace(',', '-')}-{name}", time.time()
    log, labels = stem.with_suffix(".csv"), stem.with_suffix(".json")
    command = [ncu, "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "all", "--replay-mode", "kernel"]
    command += ["--target-processes", "application-only", "--metrics", ",".join(metrics), "--csv", "--page", "raw"]
    command += [] if everything else ["--kernel-name", compiled_kernels()]
    command += ["--print-units", "base", "--log-file", str(log), *child(groups, labels, began + seconds)]
    ended = wait(start(command, stem.with_suffix(".log"), env), seconds + 20)
    text = log.read_text(errors="replace") if log.exists() else ""
    rows, units = rows_of(text)
    cases = json.loads(labels.read_text()) if labels.exists() else []
    failed = [line["label"] for line in cases if line["failed"]]
    took = round(time.time() - began, 1)
    print(f"{name} {groups}: {len(rows)} launches, {len(cases)} cases, {took} s, failed: {failed}", file=sys.stderr, flush=True)
    said = [*text.splitlines(), *tail(stem.with_suffix(".log"), 20000).splitlines()]
    messages = [line for line in said if line.startswith("==") and "Profiling" not in line][-20:]
    facts = {"seconds": took, "ended": ended, "launches": len(rows), "cases": cases, "messages": messages}
    facts |= {"units": units, "metrics": metrics, "log": tail(stem.with_suffix(".log"), 1500)}
    return [{"pass": name, "groups": groups} | row for row in rows], facts


def refused(metrics, messages):
    """Metrics that ncu's errors name."""
    errors = " ".join(line for line in messages if "ERROR" in line)
    return [name for name in metrics if name in errors or name.split(".")[0] in re.findall(r"\w+__\w+", errors)]


def save(output, rows, facts):
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with gzip.open(output, "wt", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    output.with_name(output.name + ".labels.json").write_text(json.dumps(facts, indent=1))


def measure(args):
    ncu = find_ncu(args.ncu)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="counters_"))
    caches = {"TRITON_CACHE_DIR": folder / "triton", "TORCHINDUCTOR_CACHE_DIR": folder / "inductor"}
    env = {name: str(path) for name, path in caches.items()} | os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    certain_s, others_s = args.seconds
    began = time.time()
    version = subprocess.run([ncu, "--version"], capture_output=True, text=True).stdout.splitlines()[-1:]
    known = known_metrics(ncu)
    runs = (("certain", chosen(CERTAIN, known), certain_s), ("others", chosen(OTHERS, known), others_s))
    left_out = sorted({*CERTAIN, *OTHERS}.difference(*(metrics for _, metrics, _ in runs)))
    print(f"{version}: {len(known)} metrics, left out: {left_out}", file=sys.stderr, flush=True)
    facts = {"ncu": version, "torch": torch.__version__, "triton": triton.__version__, "left_out": left_out, "groups": list(args.only)}
    facts["warm"] = fill_caches(args, folder, env, began + args.warm_seconds)
    rows = []
    for name, metrics, seconds in runs:
        until = time.time() + seconds
        batches = [",".join(part) for part in (args.only[:2], args.only[2:]) if part] if name == "certain" else [",".join(args.only)]
        for done, groups in enumerate(batches):
            everything = args.all_kernels
            for attempt in range(2):
                left_s = max(10.0, until - time.time())
                share_s = left_s if done + 1 == len(batches) else 0.6 * left_s
                try:
                    profiled = profile(ncu, groups, name, metrics, share_s, folder, env, everything)
                    more, facts[f"{name}/{groups}/{attempt}"] = profiled
                    rows += more
                except Exception as error:
                    facts[f"{name}/{groups}/{attempt}"] = {"failed": f"{type(error).__name__}: {error}"}
                    break
                save(args.output, rows, facts)
                wrong = refused(metrics, facts[f"{name}/{groups}/{attempt}"]["messages"])
                if more:
                    break
                everything = everything or not wrong  # perhaps the names' filter is the problem
                metrics = [metric for metric in metrics if metric not in wrong]
    print(f"{len(rows)} launches in {args.output}, {time.time() - began:.0f} s in all", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="launch the kernels, without ncu")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("counters.csv.gz"))
    parser.add_argument("--only", default=",".join(GROUPS), help="groups: " + ",".join(GROUPS))
    parser.add_argument("--seconds", default="75,45", help="limits of the two runs of ncu")
    parser.add_argument("--warm-seconds", type=float, default=90, help="limit of the compilation before them")
    parser.add_argument("--warm-parts", type=int, default=3, help="processes a group of it")
    parser.add_argument("--all-kernels", action="store_true", help="profile PyTorch's own kernels, too")
    parser.add_argument("--ncu", help="default: on PATH, or where CUDA puts it")
    parser.add_argument("--labels", type=pathlib.Path, help="with --run: write the cases here")
    parser.add_argument("--part", default="0/1", help="with --run: this share of the cases")
    parser.add_argument("--until", type=float, default=float("inf"), help="with --run: start no case after this Unix time")
    args = parser.parse_args()
    args.only = [group for group in args.only.split(",") if group in GROUPS]
    args.part, args.parts = map(int, args.part.split("/"))
    args.seconds = [float(part) for part in (args.seconds.split(",") * 2)[:2]]
    if args.run:
        run(args)
    else:
        measure(args)


if __name__ == "__main__":
    main()
