"""Fits the constants of kinds that are bound by memory, and shows their errors on cards that were left out.

    python -m eval.operations.fit_memory_bound --data DIR [--leave-out] [--write]

Fitted on NeuSight's operators and traces and vidur's layers. By architecture: the share of the datasheet's bandwidth that `add` and `relu`
reach. For every card: the cost of a row, its elements and a launch. --leave-out fits again without each card in turn (its share of the
bandwidth is then the median of the others') and prints both; --write puts the constants of all cards into data/time. Needs numpy and scipy.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from eval import jobs
from eval.operations import memory as measured_memory
from eval.operations.fit import Group, family, intervals, merge, write_constants
from eval.operations.measured import Judge, table

GROUPS = [
    Group("softmax", ["softmax"], [("normalization", "all", "softmax_" + x) for x in ("element_cycles", "passes", "overlap")]),
    Group("long softmax", ["long softmax"], [("normalization", "all", "long_softmax_" + x) for x in ("element_cycles", "overlap")]),
    Group(
        "layer norm",
        ["ln", "layer norm"],
        [("normalization", "all", "layer_" + x) for x in ("row_cycles", "element_cycles", "passes", "overlap")],
    ),
    Group(
        "norm",
        ["norm"],
        [
            ("normalization", "all", x)
            for x in ("floor_ns", "plain_row_cycles", "plain_element_cycles", "plain_step_cycles", "plain_overlap")
        ],
    ),
    Group(
        "block",
        ["activation", "rope"],
        [("elementwise", "all", "block_" + x) for x in ("row_cycles", "element_cycles", "step_cycles", "overlap")],
    ),
    Group("indexing", ["embedding"], [("indexing", "all", "floor_ns"), ("indexing", "all", "element_cycles")]),
]


def bandwidth_shares(rows):
    """By card: the share of the datasheet's bandwidth that large elementwise operations reach."""
    known, shares = {gpu["id"]: gpu for gpu in jobs.gpus(jobs.GPUCAST)}, defaultdict(list)
    for row in rows:
        bytes_ = row.operation["bytes_read"] + row.operation["bytes_written"]
        gpu = known[row.card]
        if row.label in ("add", "relu", "elementwise", "static quantisation") and bytes_ > 4 * gpu["l2_bytes"] and "phi-2" not in row.note:
            shares[row.card].append(bytes_ / (row.measured_us - row.floor_share * row.floor_us) * 1e6 / gpu["bandwidth_bytes_per_s"])
    return {card: float(np.median(s)) for card, s in shares.items() if len(s) >= 10}, {
        card: str(gpu["compute_capability"]) for card, gpu in known.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--leave-out", action="store_true")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    rows = list(measured_memory.rows(arguments.data))
    share, capability = bandwidth_shares(rows)
    print("share of the datasheet's bandwidth:", {card: round(s, 3) for card, s in share.items()})
    by_architecture = defaultdict(list)
    for card, s in share.items():
        by_architecture[capability[card]].append(s)
    file = {
        "architectures": {a: {"rates": {"source": "fit", "dram_fraction": float(f"{np.mean(s):.3g}")}} for a, s in by_architecture.items()}
    }
    for group in GROUPS:
        values = group.fit(rows, base=file)
        merge(file, group.as_file(values))
        print(group.name, dict(zip([c[2] for c in group.constants], np.round(values, 3).tolist())), flush=True)
    judge, left_out = Judge(rows), None
    result = judge.run(file)
    if arguments.leave_out:
        left_out = np.full(len(rows), np.nan)
        for card in judge.by_card:
            others = [s for c, s in share.items() if family(c) != family(card)]
            base = merge(
                json.loads(json.dumps(file)),
                {"architectures": {capability[card]: {"rates": {"source": "others", "dram_fraction": float(np.median(others))}}}},
            )
            has = {judge.rows[i].label for i in judge.by_card[card]}
            for group in GROUPS:
                if has & set(group.labels):
                    merge(base, group.as_file(group.fit(rows, without=card, base=base, a_card=120, steps=50)))
            left_out[judge.by_card[card]] = judge.run(base, [card])[0][judge.by_card[card]]
            print("left out", card, flush=True)
        found = intervals(judge, left_out, lambda row: (row.operation["kind"], "all"))
        for (kind, p), (low, high) in found.items():
            merge(
                file, {"operations": {kind: {p: {"source": "fit", "low": low, "high": high, "low_datasheet": low, "high_datasheet": high}}}}
            )
        print("intervals", found)
        result = judge.run(file)
    table(judge, result, left_out)
    if arguments.write:
        write_constants(
            file,
            "eval/operations/fit_memory_bound.py on NeuSight's operators and traces and vidur's layers (A100, A40, L4, P100, P4, T4, V100), H200 and L40S quantisation",
        )


if __name__ == "__main__":
    main()
