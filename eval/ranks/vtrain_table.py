"""python -m eval.ranks.vtrain_table --data DIR --vtrain REPOSITORY

vTrain's own table of all-reduces on 2 to 8 A100 (nccl-tests) compared with gpucast, and with its rows on one node: how much longer a step of
more data parallel ranks is, where all else is equal.
"""

import argparse
import csv
import io
import json
import subprocess
from pathlib import Path

from eval import jobs, tables
from eval.ranks.sweeps import vtrain_rows

COMMIT = "f8dda84"
CARDS = range(2, 9)
MIB = 1 << 20
VOCABULARY = 50257
SAME_S = 5e-6  # the rows' microseconds, rounded more than once


def read_table(repository, cards):
    """[(bytes, seconds out of place, seconds in place)]"""
    command = ["git", "--git-dir", str(repository), "show", f"{COMMIT}:trace/a100/AR_GPU{cards}_1M_1024M_LUT"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [(int(line[0]), int(line[3]) / 1e9, int(line[5]) / 1e9) for line in list(csv.reader(io.StringIO(text)))[1:]]


def gpucast_s(gpucast, lines):
    """All-reduces of [(cards, bytes)] on an A100's node."""
    operations = [
        {
            "kind": "collective",
            "precision": "fp32",
            "element_bytes": 4,
            "collective": {"kind": "all_reduce", "ranks": cards, "nodes": 1, "bytes": size},
        }
        for cards, size in lines
    ]
    text = "".join(json.dumps(operation) + "\n" for operation in operations)
    command = [gpucast, "time", "--operations", "-", "--gpu", "a100-80"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return [json.loads(line)["expected_ns"] / 1e9 for line in done.stdout.splitlines()]


def gradient_mib(row):
    """Of the stages' gradients in fp16, as vTrain's predictor counts them: its table has whole MiB."""
    part = row.hidden // row.tp
    layer = 4 * row.hidden + 4 * row.hidden * part + 3 * part + row.hidden + 8 * row.hidden * part + 4 * part + row.hidden
    words, places = VOCABULARY // row.tp * row.hidden, row.sequence * row.hidden
    inside = row.layers // row.pp * layer
    stages = [inside + 2 * words + places] if row.pp == 1 else [inside + words + places, inside + words]
    return {round(2 * elements / MIB) for elements in stages}


def more_ranks(rows, table):
    """[(row, seconds more than with one data parallel rank, the table's seconds)]"""

    def plan(row):
        return row.hidden, row.layers, row.micro_batch, row.tp, row.pp, row.micro_batches

    alone = {plan(row): row.step_s for row in rows if row.dp == 1}
    out = []
    for row in rows:
        listed = [table[row.dp, size] for size in gradient_mib(row) if (row.dp, size) in table]
        if row.dp > 1 and plan(row) in alone and listed:
            out.append((row, row.step_s - alone[plan(row)], listed))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="has multi_gpu/runs_vtrain.csv")
    parser.add_argument("--vtrain", type=Path, required=True, help="a git directory of VIA-Research/vTrain")
    jobs.add_gpucast_option(parser)
    args = parser.parse_args()
    tests = {cards: read_table(args.vtrain, cards) for cards in CARDS}
    lines = [(cards, size, seconds) for cards, some in tests.items() for size, seconds, _ in some]
    times = gpucast_s(jobs.find(args.gpucast), [line[:2] for line in lines])
    errors = [tables.error(time, line[2]) for time, line in zip(times, lines, strict=True)]
    by_cards = [(f"{n} cards", *tables.error_cells([e for e, line in zip(errors, lines) if line[0] == n])) for n in CARDS]
    print(tables.text(("all-reduces", *tables.ERROR_HEAD), [*by_cards, ("all", *tables.error_cells(errors))]))
    rows = [row for row in vtrain_rows(args.data) if row.gpus <= row.gpus_per_node]
    found = more_ranks(rows, {(cards, size // MIB): seconds for cards, some in tests.items() for size, _, seconds in some})
    same = sum(min(abs(more - one) for one in listed) < SAME_S for _, more, listed in found)
    print(f"\n{same} of {len(found)} rows with 2 or 4 data parallel ranks are longer by the table's time to {1e6 * SAME_S:.0f} us")


if __name__ == "__main__":
    main()
