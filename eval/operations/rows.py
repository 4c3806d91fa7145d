"""Measured operations of --data DIR (with the layout of the project's shared data) as arrays: the operation, and its time.

A class is a file and a kind of measurement in it. Each has columns of one length; `ns` is the kernel's time without its launch."""

import json
import math
from pathlib import Path

import numpy

from eval import ROOT
from eval.data_sets import GPUS, VIDUR_CARDS, card_of, read_csv

# NeuSight's times are of the host: the shortest of an operator is the launch. This part of it is subtracted from each, and rows below twice it are left out.
LAUNCH_PART, LEAST_OVER_LAUNCH = 0.85, 2.0


def columns(rows):
    return {name: numpy.array([row[name] for row in rows]) for name in rows[0]} if rows else {}


LAYOUT = ("heads", "kv_heads", "head_dim", "window_size")  # of attention


def fitted_half(rows, names=("n", "k")):
    """The rows that fits may use: half of the values of these columns. All rows of one weight are on one side."""
    number = numpy.zeros(len(rows["ns"]), numpy.int64)
    for name in names:
        number = (number * 1_000_003 + rows[name].astype(numpy.int64)) % (1 << 31)
    return (number * 2_654_435_761 >> 13) % 2 == 0


def median_by_key(rows, key, value):
    found = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in key), []).append(row[value])
    return [dict(zip(key, k), **{value: float(numpy.median(v))}) for k, v in found.items()]


def gemm_row(batch, m, n, k, ns, element=2, a_t=False, b_t=True):
    return {
        "batch": float(batch),
        "m": float(m),
        "n": float(n),
        "k": float(k),
        "ns": ns,
        "element": element,
        "a_transposed": a_t,
        "b_transposed": b_t,
    }


def kept(classes):
    """Classes with rows, for cards in gpucast's table."""
    return {key: found for key, found in classes.items() if found and key[1] in GPUS}


def quantisation_ns(m, k, card):
    """The largest value of x is found, then x is written in fp8: two readings of 2 bytes and a writing of 1, from L2 where x is in it."""
    gpu = GPUS[card]
    architecture = json.loads((ROOT / "data/time/architectures.json").read_text())["architectures"]
    rates = architecture[gpu["compute_capability"]]["rates"]
    from_l2 = numpy.clip(2 - 2 * m * k / (0.5 * gpu["l2_bytes"]), 0, 1)
    l2_ns = 1e6 / (gpu["multiprocessors"] * gpu["clock_khz"] * rates["l2_bytes_per_clock"])
    return 5 * m * k * (from_l2 * l2_ns + (1 - from_l2) * 1e9 / (gpu["bandwidth_bytes_per_s"] * rates["dram_fraction"]))


def fp8_gemms(kernel):
    """Layers in fp8, by framework: its kernels for products and for the quantisation of x differ. `before_ns` is the time of the quantisation: of its
    bytes, and a fixed part, the difference between the framework's shortest rows in fp8 and in bf16. TensorRT-LLM's products are cuBLASLt's, which
    PyTorch calls for scales of whole tensors; those of the others are CUTLASS's."""
    rows, shortest = {}, {}
    for row in read_csv(kernel / "aic_gemm_fp8.csv"):
        if row["dtype"] == "fp8_static" and row["framework"] != "sglang":
            continue
        key = row["framework"], row["dtype"], card_of(row["card"])
        rows.setdefault(key, []).append({**{name: int(row[name]) for name in "mnk"}, "ms": float(row["latency_ms"])})
    for row in read_csv(kernel / "aic_gemm_bf16.csv"):
        shortest.setdefault((row["framework"], card_of(row["card"])), []).append(float(row["latency_ms"]) * 1e6)
    out = {}
    for (framework, kind, card), found in rows.items():
        if card not in GPUS:
            continue
        of = columns([gemm_row(1, r["m"], r["n"], r["k"], r["ms"] * 1e6, 1) for r in median_by_key(found, "mnk", "ms")])
        before = numpy.zeros(len(of["ns"]))
        if kind == "fp8":
            bf16 = numpy.quantile(shortest.get((framework, card), [0.0]), 0.02)
            before = max(0.0, numpy.quantile(of["ns"], 0.02) - bf16) + quantisation_ns(of["m"], of["k"], card)
        out[f"aic_gemm_fp8 ({framework}'s layer{'' if kind == 'fp8' else ', x in fp8'})", card, "fp8"] = {**of, "before_ns": before}
    return out


def gemms(data):
    """{(class, card id, precision): columns}."""
    out = {}
    kernel = Path(data) / "kernel_times"
    rows = {}
    for row in read_csv(kernel / "aic_gemm_bf16.csv"):
        shape = tuple(int(row[name]) for name in "mnk")
        key = "aic_gemm_bf16 (one layer)", card_of(row["card"]), "bf16"
        rows.setdefault(key, {})[shape] = gemm_row(1, *shape, float(row["all_median_ms"]) * 1e6)
    out.update({key: columns(list(found.values())) for key, found in rows.items()})
    out.update(fp8_gemms(kernel))
    rows = {}
    for row in read_csv(kernel / "vidur_ops.csv"):
        if int(row["gemm_n"]) > 0:
            rows.setdefault(row["card"], []).append(
                {"m": int(row["num_tokens"]), "n": int(row["gemm_n"]), "k": int(row["gemm_k"]), "ms": float(row["median_ms"])}
            )
    for card, found in rows.items():
        out["vidur_ops (linear layers)", VIDUR_CARDS[card], "fp16"] = columns(
            [gemm_row(1, r["m"], r["n"], r["k"], r["ms"] * 1e6) for r in median_by_key(found, ("m", "n", "k"), "ms")]
        )
    for folder in ("ops_train", "ops_test"):
        of_cards = {}
        for op in ("linear", "bmm"):
            for path in (Path(data) / "neusight" / folder).glob(f"{op}__*.csv*"):
                card = card_of(path.name.split(".csv")[0].split("__")[1])
                of_cards[card, op] = read_csv(path.with_name(path.name.removesuffix(".gz")))
        for card in GPUS:  # in the table's order: a fit draws rows in this order
            for op in ("linear", "bmm"):
                rows = of_cards.get((card, op))
                if not rows:
                    continue
                ms = numpy.array([float(row["Latency"]) for row in rows])
                floor = numpy.quantile(ms, 0.005)
                # The file's N is the summed dimension, its K the columns of the result: this follows from the kernels' grids.
                out[f"neusight {folder} {op}", card, "fp32"] = columns(
                    [
                        gemm_row(row["B"], row["M"], row["K"], row["N"], (t - LAUNCH_PART * floor) * 1e6, 4, b_t=op == "linear")
                        for row, t in zip(rows, ms)
                        if t > LEAST_OVER_LAUNCH * floor
                    ]
                )
    rows = {}
    for row in read_csv(kernel / "deepbench_gemm.csv"):
        precision = "fp32" if row["precision"] == "fp32" else "fp16"
        # Column-major: the transpose of the row-major product of the transposes.
        rows.setdefault(("deepbench_gemm", card_of(row["card"]), precision), []).append(
            gemm_row(
                1,
                row["n"],
                row["m"],
                row["k"],
                float(row["time_ms"]) * 1e6,
                4 if precision == "fp32" else 2,
                row["b_trans"] == "T",
                row["a_trans"] == "T",
            )
        )
    out.update({key: columns(found) for key, found in rows.items()})
    return kept(out)


def attentions(data):
    """{(class, card id, precision): columns}: a framework's prefills, with its other kernels, and the attention of encoders, a kernel alone."""
    rows = {}
    for row in read_csv(Path(data) / "kernel_times" / "aic_attention.csv"):
        if row["dtype"] != "bf16" or row["kv_cache_dtype"] not in ("bf16", "float16", "auto", "", "none"):
            continue
        shape = {name: int(row[name]) for name in ("batch", "seq", "heads", "kv_heads", "head_dim", "window_size", "causal")}
        shape["prefill"] = int(row["op"] == "context_attention")
        kind = "window" if shape["window_size"] else "causal" if shape["causal"] else "full"
        name = f"aic_attention prefill, {kind}" if shape["prefill"] else f"aic_attention of encoders, {kind}"
        rows.setdefault((name, card_of(row["card"]), "bf16"), {})[tuple(shape.values())] = {
            **shape,
            "ns": float(row["all_median_ms"]) * 1e6,
        }
    return kept({key: columns(list(found.values())) for key, found in rows.items()})


def gemm_lines(rows, precision):
    """JSON lines for `gpucast time --operations`."""
    c = rows
    out = []
    for i in range(len(c["ns"])):
        batch, m, n, k, e = (int(c[name][i]) for name in ("batch", "m", "n", "k", "element"))
        read, written = batch * (m * k + k * n) * e, batch * m * n * (2 if precision == "fp8" else e)
        shape = {
            "batch": batch,
            "m": m,
            "n": n,
            "k": k,
            "a_transposed": bool(c["a_transposed"][i]),
            "b_transposed": bool(c["b_transposed"][i]),
        }
        out.append(
            json.dumps(
                {
                    "kind": "gemm",
                    "precision": precision,
                    "element_bytes": e,
                    "bytes_read": read,
                    "bytes_written": written,
                    "flops": 2 * batch * m * n * k,
                    "gemm": shape,
                }
            )
        )
    return "\n".join(out) + "\n"


def attention_lines(rows, precision):
    out = []
    for i in range(len(rows["ns"])):
        r = {name: int(rows[name][i]) for name in rows if name != "ns"}
        seen = r["seq"] / 2 if r["causal"] else r["seq"]
        if r["window_size"]:
            seen = min(seen, r["window_size"])
        flops = 4 * r["batch"] * r["heads"] * r["seq"] * seen * r["head_dim"]
        bytes_ = 2 * r["batch"] * r["seq"] * r["head_dim"] * 2
        out.append(
            json.dumps(
                {
                    "kind": "attention",
                    "precision": precision,
                    "element_bytes": 2,
                    "flops": math.floor(flops),
                    "bytes_read": bytes_ // 2 * (r["heads"] + 2 * r["kv_heads"]),
                    "bytes_written": bytes_ // 2 * r["heads"],
                    "attention": {
                        "batch": r["batch"],
                        "heads": r["heads"],
                        "kv_heads": r["kv_heads"],
                        "queries": r["seq"],
                        "keys": r["seq"],
                        "head_dim": r["head_dim"],
                        "value_dim": r["head_dim"],
                        "causal": bool(r["causal"]),
                        "window": r["window_size"],
                        "prefill": bool(r["prefill"]),
                    },
                }
            )
        )
    return "\n".join(out) + "\n"
