"""Operations that are bound by memory, compared with `gpucast time --operations`: NeuSight's operators and traces, vidur's layers, aiconfigurator's
quantisation.

    python -m eval.operations.memory --data DIR

DIR has the layout of its data sets; missing ones are left out. The rows of each fit, and rows of cards left out of the fit:
fit_memory_bound.py --leave-out.
"""

import ast
import re

import numpy as np

from eval.data_sets import VIDUR_CARDS, card_of, read_csv
from eval.operations.measured import Row, tables

# The part of the time of NeuSight's smallest rows before a larger row's kernel starts: larger for operators with more host work.
SHARE = {"add": 0.54, "relu": 0.54, "softmax": 0.73, "long softmax": 0.95, "ln": 0.95}
# Operators of NeuSight's traces: the number of tensors of the output's size that they read.
READS = {"add": 2, "truediv": 1, "mul": 2, "gelu": 1, "relu": 1, "tanh": 1}


def elementwise(elements, reads, size, **more):
    return {
        "kind": "elementwise",
        "precision": "fp32" if size == 4 else "fp16",
        "element_bytes": size,
        "bytes_read": elements * size * reads,
        "bytes_written": elements * size,
        **more,
    }


def normalization(rows, columns, size, which, **more):
    n = rows * columns * size
    weights, statistics = {"softmax": (0, 0), "rms": (columns * size, 0), "layer": (2 * columns * size, 8 * rows)}[which]
    return {
        "kind": "normalization",
        "precision": "fp32" if size == 4 else "fp16",
        "element_bytes": size,
        "bytes_read": n + weights,
        "bytes_written": n + statistics,
        "rows": rows,
        "columns": columns,
        **more,
    }


def neusight_operators(data):
    for folder in ("ops_train", "ops_test"):
        for path in sorted((data / "neusight" / folder).glob("*__*.csv.gz")):
            name = path.name.split("__")[0]
            card = card_of(path.name.removesuffix(".csv.gz").split("__")[1])
            if name not in ("add", "relu", "softmax", "ln") or card is None:
                continue
            read = read_csv(path)
            floor = float(np.median(np.sort([float(r["Latency"]) for r in read])[:20])) * 1e3
            for r in read:
                b, h, us = int(float(r["B"])), int(float(r["H"])), float(r["Latency"]) * 1e3
                if us < 1.5 * floor:
                    continue  # the launch, not the kernel
                label = {"softmax": "softmax" if h <= 1024 else "long softmax"}.get(name, name)
                if name in ("add", "relu"):
                    operation = elementwise(b * h, READS[name], 4)
                else:
                    operation = normalization(b, h, 4, "softmax" if name == "softmax" else "layer")
                yield Row("NeuSight operators, fp32", label, card, us, operation, floor, SHARE[label], f"{b}x{h}")


def neusight_traces(data):
    """Operators inside models, forward; kernels long enough for the launch not to matter."""
    for path in sorted((data / "neusight/label").glob("*.csv.gz")):
        card = card_of(path.name.split("__")[0])
        if card is None or path.name.startswith("AMD"):
            continue
        for r in read_csv(path):
            us = float(r["fw_latency"] or 0) * 1e3
            if us < 150:
                continue
            target = r["op"] + " " + r["target"]
            shapes = ast.literal_eval(r["input_shapes"] or "[]")
            try:
                out = ast.literal_eval(r["output_shape"])
                n = int(np.prod(out))
            except (ValueError, SyntaxError, TypeError):
                continue
            name = (re.search(r"function (\w+)", target) or re.search(r"(\w+)$", target) or [None, ""])[1]
            if name in READS and shapes and list(out) == list(shapes[0]):
                reads = sum(int(np.prod(s)) for s in shapes[:2]) / n if len(shapes) > 1 else 1
                operation, label = elementwise(n, reads, 4), "elementwise"
                operation["bytes_read"] = int(operation["bytes_read"])
            elif name == "softmax" and list(out) == list(shapes[0]):
                operation, label = normalization(n // out[-1], out[-1], 4, "softmax"), "softmax"
            elif re.search(r"LayerNorm|ln_|layer_norm", target) and list(out) == list(shapes[0]):
                operation, label = normalization(n // out[-1], out[-1], 4, "layer"), "layer norm"
            elif re.search(r"embeddings|wte|wpe|embed_", target) and len(shapes) == 1 and len(out) == len(shapes[0]) + 1:
                operation, label = {"kind": "indexing", "bytes_read": 4 * n, "bytes_written": 4 * n}, "embedding"
            else:
                continue
            yield Row("NeuSight traces, fp32", label, card, us, operation, note=f"{path.name.split('__')[1]} {out}")


def vidur(data):
    for r in read_csv(data / "kernel_times/vidur_ops.csv"):
        card, op, tokens, width, tp = VIDUR_CARDS[r["card"]], r["op"], int(r["num_tokens"]), int(r["n_embd"]), int(r["tp"])
        inner, head = int(r["n_expanded_embd"]) // tp, width // int(r["n_head"])
        heads = int(r["n_head"]) // tp + max(1, int(r["n_kv_head"]) // tp)
        phi = "phi-2" in r["model"]  # layer norm, one for both branches; gelu; adds twice
        if op in ("input_layernorm", "post_attention_layernorm"):
            operation, label = normalization(tokens, width, 2, "layer" if phi else "rms"), "norm"
        elif op == "mlp_act":
            gated = int(r["gated_mlp"])
            operation = elementwise(tokens * inner, 2, 2, rows=tokens, columns=inner) if gated else elementwise(tokens * inner, 1, 2)
            label = "activation"
        elif op == "attn_rope":
            operation, label = elementwise(tokens * heads * head, 1, 2, rows=tokens, columns=heads * head), "rope"
        elif op == "add":
            operation, label = elementwise(tokens * width * (2 if phi else 1), 2, 2, launches=2 if phi else 1), "add"
        elif op == "emb":
            operation = {
                "kind": "indexing",
                "precision": "fp16",
                "element_bytes": 2,
                "bytes_read": tokens * width * 2,
                "bytes_written": tokens * width * 2,
            }
            label = "embedding"
        else:
            continue
        yield Row(
            "vidur layers, fp16", label, card, float(r["median_ms"]) * 1e3, operation, note=f"{r['model']} {op} {tokens} tokens, tp {tp}"
        )


def quantisation(data):
    for r in read_csv(data / "kernel_times/aic_other_ops.csv"):
        if r["op"] != "scale_matrix":
            continue
        n = int(r["m"]) * int(r["n"])
        operation = {"kind": "elementwise", "precision": "fp16", "element_bytes": 2, "bytes_read": 2 * n, "bytes_written": n}
        yield Row(
            "aiconfigurator, bf16 to fp8",
            "static quantisation",
            card_of(r["card"]),
            float(r["latency_ms"]) * 1e3,
            operation,
            note=f"{r['m']}x{r['n']} {r['framework']}",
        )


def rows(data):
    for read in (neusight_operators, neusight_traces, vidur, quantisation):
        yield from read(data)


def cause(row, ratio):
    us = row.measured_us
    if row.table.startswith("vidur") and us < 12:
        return "shorter than 12 us: the profiler's resolution is 1 us, and launches are of that size"
    if row.label == "static quantisation":
        return (
            "shorter than 8 us: a launch's time differs by framework"
            if us < 8
            else "a tensor near L2's size: the order of accesses decides whether it stays there"
        )
    if row.label in ("softmax", "long softmax") and row.card == "p100-16-pcie":
        return "P100 does not keep global memory in L1: each of three readings of a row goes to L2"
    if row.label == "elementwise":
        return "an operand is broadcast, or converted by a separate kernel" if ratio > 1 else "shorter in the trace than its bytes allow"
    if row.label == "embedding":
        return (
            "few rows: one after another in a block"
            if us < 12
            else "waiting for whole-number divisions: more on cards of few threads, less where L2 holds the result"
        )
    if row.label in ("ln", "layer norm"):
        return "rows of a few hundred columns, or a second reading that L1 held" if ratio < 1 else "a second reading that no cache held"
    if row.label == "norm" and ratio < 1:
        return "a few rows for each multiprocessor: the cost of a row is smaller while L2 feeds it"
    return "a tensor near L2's size: the part that is still there is not known"


if __name__ == "__main__":
    tables(rows, cause, __doc__)
