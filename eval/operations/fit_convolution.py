"""Fits the constants of convolutions, and shows their errors on cards that were left out.

    python -m eval.operations.fit_convolution --data DIR [--leave-out] [--write]

fp32: DeepBench's three passes on V100, P100 and 1080 Ti, and NeuSight's forward on P100, P4, T4, V100 and A100 for Winograd's way. fp16 on tensor
cores: DeepBench on V100 alone; --leave-out then fits on half of the shapes and judges the other half. --write puts the constants into data/time.
Needs numpy and scipy. `most` is not fitted: no convolution of the data without Winograd or FFT is faster than 0.8 of the rate that the card's matrix products sustain,
and batches of real steps are ten times as large as the data's, where a search over small ones says nothing of the limit.
"""

import argparse
import zlib
from pathlib import Path

import numpy as np

from eval.operations import convolution as measured_convolutions
from eval.operations.fit import Group, intervals, merge, write_constants
from eval.operations.measured import Judge, table

DIRECT = ["efficiency", "narrow", "k_overhead", "least_waves", "overlap", "start_ns"]
WINOGRAD = ["winograd", "winograd_k_overhead", "winograd_waves"]
NAMES = {
    "forward": [*DIRECT, *WINOGRAD, "winograd_fused"],
    "data_gradient": [*DIRECT, "strided_writes", "strided", *WINOGRAD, "winograd_fused"],
    "weight_gradient": [*DIRECT, *WINOGRAD],
}
TENSOR = {
    "forward": [*DIRECT, "few_channels"],
    "data_gradient": [*DIRECT, "strided_writes", "strided"],
    "weight_gradient": [*DIRECT, "few_channels"],
}


def half(row):
    return zlib.crc32(row.note.rsplit(" ", 1)[0].encode()) % 2


def groups(precisions=("fp32", "fp16")):
    for pass_, names in NAMES.items() if "fp32" in precisions else ():
        labels = [f"fp32 {pass_}"] + (["fp32 forward, 3x3"] if pass_ == "forward" else [])
        yield Group(f"fp32 {pass_}", labels, [("convolution", "fp32", f"{pass_}_{name}") for name in names], {"fp32 forward, 3x3": 0.2})
    for pass_, names in TENSOR.items() if "fp16" in precisions else ():
        yield Group(f"fp16 {pass_}", [f"fp16_mixed {pass_}"], [("convolution", "fp16", f"{pass_}_{name}") for name in names])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--leave-out", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--precisions", nargs="*", default=["fp32", "fp16"])
    arguments = parser.parse_args()
    rows = list(measured_convolutions.rows(arguments.data))
    file = {}
    for group in groups(arguments.precisions):
        values = group.fit(rows, base=file, steps=arguments.steps)
        merge(file, group.as_file(values))
        print(
            group.name,
            dict(zip([c[2].split("_", 1 if "forward" in c[2] else 2)[-1] for c in group.constants], np.round(values, 3).tolist())),
            flush=True,
        )
    judge, left_out = Judge(rows), None
    result = judge.run(file)
    if arguments.leave_out:
        left_out = np.full(len(rows), np.nan)
        for card in judge.by_card:
            base = {}
            for group in groups(["fp32"] if "fp32" in arguments.precisions else []):
                if not {judge.rows[i].label for i in judge.by_card[card]} & set(group.labels):
                    continue
                merge(base, group.as_file(group.fit(rows, without=card, base=base, a_card=150, steps=arguments.steps * 2 // 3)))
            left_out[judge.by_card[card]] = judge.run(base, [card])[0][judge.by_card[card]]
            print("left out", card, flush=True)
        for side in (0, 1) if "fp16" in arguments.precisions else ():
            base = {}
            for group in groups(["fp16"]):
                merge(base, group.as_file(group.fit([row for row in rows if half(row) != side], base=base, steps=arguments.steps // 2)))
            predicted = judge.run(base, ["v100-16"])[0]
            for i in judge.by_card["v100-16"]:
                if "fp16" in judge.rows[i].label and half(judge.rows[i]) == side:
                    left_out[i] = predicted[i]
        for i, row in enumerate(judge.rows):
            if "in_fp32" in row.label:
                left_out[i] = np.nan  # no rows of its kind
        found = intervals(judge, left_out, lambda row: row.operation["precision"])
        print("intervals", found)
        for precision, (low, high) in found.items():
            if precision not in arguments.precisions:
                continue
            merge(
                file,
                {
                    "operations": {
                        "convolution": {
                            precision: {"source": "fit", "low": low, "high": high, "low_datasheet": low, "high_datasheet": high}
                        }
                    }
                },
            )
        result = judge.run(file)
    table(judge, result, left_out)
    if arguments.write:
        convolution = file["operations"]["convolution"]
        for other in ("bf16", "tf32") if "fp16" in convolution else ():
            convolution[other] = dict(convolution["fp16"])
        write_constants(
            file,
            "eval/operations/fit_convolution.py on DeepBench's convolutions (V100, P100, 1080 Ti) and NeuSight's (P100, P4, T4, V100, A100); bf16 and tf32 as fp16",
        )


if __name__ == "__main__":
    main()
