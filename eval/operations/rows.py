"""Measured operations of --data DIR (with the layout of the project's shared data) as arrays: the operation, and its time.

A class is a file and a kind of measurement in it. Each has columns of one length; `ns` is the kernel's time without its launch."""

import json
import math
from pathlib import Path

import numpy

from eval.data_sets import GPUS, VIDUR_CARDS, card_of, read_csv

# NeuSight's times are of the host: the shortest of an operator is the launch. This part of it is subtracted from each, and rows below twice it are left out.
LAUNCH_PART, LEAST_OVER_LAUNCH = 0.85, 2.0


def columns(rows):
    return {name: numpy.array([row[name] for row in rows]) for name in rows[0]} if rows else {}


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


def gemms(data):
    """{(class, card id, precision): columns}."""
    out = {}
    kernel = Path(data) / "kernel_times"
    for file, precisions in (("aic_gemm_bf16", {"bf16": "bf16"}), ("aic_gemm_fp8", {"fp8_static": "fp8"})):
        rows = {}
        for row in read_csv(kernel / f"{file}.csv"):
            card = card_of(row["card"])
            if row["dtype"] not in precisions or (row["dtype"] == "fp8_static" and row["framework"] != "sglang"):
                continue
            shape = tuple(int(row[name]) for name in "mnk")
            precision = precisions[row["dtype"]]
            ns = float(row["all_median_ms"] if precision == "bf16" else row["latency_ms"]) * 1e6
            rows.setdefault((f"{file} (one layer)", card, precision), {})[shape] = gemm_row(1, *shape, ns, 2 if precision == "bf16" else 1)
        out.update({key: columns(list(found.values())) for key, found in rows.items()})
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
    """{(class, card id, precision): columns} of a framework's prefill times."""
    rows = {}
    for row in read_csv(Path(data) / "kernel_times" / "aic_attention.csv"):
        if row["dtype"] != "bf16" or row["kv_cache_dtype"] not in ("bf16", "float16", "auto", ""):
            continue
        shape = {name: int(row[name]) for name in ("batch", "seq", "heads", "kv_heads", "head_dim", "window_size", "causal")}
        kind = "window" if shape["window_size"] else "causal" if shape["causal"] else "full"
        rows.setdefault((f"aic_attention forward, {kind}", card_of(row["card"]), "bf16"), {})[tuple(shape.values())] = {
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
                        "prefill": True,
                    },
                }
            )
        )
    return "\n".join(out) + "\n"
