"""The Triton kernels that the files beside this one were compiled from (triton.compile for sm_80; matmul_wgmma.ptx for sm_90)."""

import triton
import triton.language as tl


@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def read_columns(x, y, rows, columns, BLOCK: tl.constexpr):
    # One column a program: neighbouring threads read addresses that are a row apart.
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(0)
    value = tl.load(x + at * columns + column, mask=at < rows)
    tl.store(y + column * rows + at, value, mask=at < rows)


@triton.jit
def row_softmax(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * columns + at, value / tl.sum(value, 0), mask=at < columns)


@triton.jit
def count_into(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bucket = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(y + bucket, 1, mask=at < n)


@triton.jit
def matmul(a, b, c, m, n, k, stride_a, stride_b, stride_c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    left = a + row[:, None] * stride_a + inner[None, :]
    right = b + inner[:, None] * stride_b + column[None, :]
    total = tl.zeros((M, N), tl.float32)
    for step in range(0, tl.cdiv(k, K)):
        x = tl.load(left, mask=(row[:, None] < m) & (inner[None, :] < k - step * K), other=0.0)
        y = tl.load(right, mask=(inner[:, None] < k - step * K) & (column[None, :] < n), other=0.0)
        total = tl.dot(x, y, total)
        left += K
        right += K * stride_b
    tl.store(c + row[:, None] * stride_c + column[None, :], total.to(c.dtype.element_ty), mask=(row[:, None] < m) & (column[None, :] < n))


@triton.jit
def attention(q, k, v, o, scale, tokens, HEAD: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * tokens * HEAD
    row = tl.program_id(0) * M + tl.arange(0, M)
    inner = tl.arange(0, HEAD)
    query = tl.load(q + head + row[:, None] * HEAD + inner[None, :])
    best = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    out = tl.zeros((M, HEAD), tl.float32)
    end = tokens
    if CAUSAL:
        end = (tl.program_id(0) + 1) * M
    for start in range(0, end, N):
        at = start + tl.arange(0, N)
        key = tl.load(k + head + at[None, :] * HEAD + inner[:, None])
        score = tl.dot(query, key) * scale
        if CAUSAL:
            score = tl.where(row[:, None] >= at[None, :], score, -1e9)
        new = tl.maximum(best, tl.max(score, 1))
        p = tl.exp2(score - new[:, None])
        shrink = tl.exp2(best - new)
        total = total * shrink + tl.sum(p, 1)
        value = tl.load(v + head + at[:, None] * HEAD + inner[None, :])
        out = tl.dot(p.to(value.dtype), value, out * shrink[:, None])
        best = new
    tl.store(o + head + row[:, None] * HEAD + inner[None, :], (out / total[:, None]).to(o.dtype.element_ty))


@triton.jit
def gather_rows(x, index, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    source = tl.load(index + row).to(tl.int64)
    tl.store(y + row * columns + at, tl.load(x + source * columns + at, mask=at < columns), mask=at < columns)
