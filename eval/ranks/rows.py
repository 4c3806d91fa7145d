"""Measured collectives, and gpucast's times for them."""

import collections
import csv
import dataclasses
import gzip
import json
import subprocess
import tempfile

from eval.ranks.systems import System, machine_of, system_of

KINDS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
}
PRECISIONS = {"half": ("fp16", 2), "int8": ("int8", 1), "float": ("fp32", 4), "bfloat16": ("bf16", 2)}


@dataclasses.dataclass(frozen=True)
class Row:
    machine: str
    system: System
    kind: str
    dtype: str
    ranks: int
    nodes: int
    bytes: int
    measured_us: float
    release: str

    def operation(self):
        precision, element_bytes = PRECISIONS[self.dtype]
        return {
            "kind": "collective",
            "precision": precision,
            "element_bytes": element_bytes,
            "collective": {"kind": self.kind, "ranks": self.ranks, "nodes": self.nodes, "bytes": self.bytes},
        }

    def plain_us(self):
        """Bytes over the datasheet's rate, of NVLink or the network's cards."""
        part = {"all_reduce": 2}.get(self.kind, 1) * (self.ranks - 1) / self.ranks
        system = self.system
        rate = system.card_bytes_per_s
        if self.nodes > 1:
            rate = min(rate, system.network_bytes_per_s * self.ranks / self.nodes)
        return 1e6 * part * self.bytes / rate


def read(path):
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def one_node(path):
    """(rows, number of skipped rows by reason)"""
    rows, skipped = [], collections.Counter()
    for row in read(path):
        found = system_of(row["system"], row["device"])
        if found is None:
            skipped[f"unknown system {row['system']} ({row['device']})"] += 1
        elif row["collective"] not in KINDS or row["dtype"] not in PRECISIONS:
            skipped[f"unknown collective or type: {row['collective']}, {row['dtype']}"] += 1
        else:
            of = (KINDS[row["collective"]], row["dtype"], int(row["gpus"]), 1, int(row["bytes"]), float(row["time_us"]), row["library"])
            rows.append(Row(*found, *of))
    return rows, skipped


def several_nodes(path):
    rows, skipped = [], collections.Counter()
    for row in read(path):
        found = machine_of(row["card"], row["interconnect"], row["note"])
        if found is None:
            skipped[f"unknown machine {row['card']}, {row['interconnect']}"] += 1
            continue
        kind = KINDS.get(row["collective"])
        if kind is None or row["dtype"] not in PRECISIONS:
            skipped[f"unknown collective or type: {row['collective']}, {row['dtype']}"] += 1
            continue
        of = (kind, row["dtype"], int(row["gpus"]), int(row["nodes"]), int(row["bytes"]), float(row["time_us"]), row["library"])
        rows.append(Row(*found, *of))
    return rows, skipped


def predict_us(gpucast, rows, constants=None):
    """gpucast's times, in the rows' order. `constants`: a constants file's content."""
    by_system = collections.defaultdict(list)
    for place, row in enumerate(rows):
        by_system[row.system.card, row.system.machine].append(place)
    out = [0.0] * len(rows)
    for (card, machine), places in by_system.items():
        lines = "".join(json.dumps(rows[place].operation()) + "\n" for place in places)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            command = [gpucast, "time", "--operations", "-", "--gpu", card, "--machine", machine]
            if constants is not None:
                json.dump(constants, file)
                file.flush()
                command += ["--constants", file.name]
            done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
        for place, line in zip(places, done.stdout.splitlines(), strict=True):
            out[place] = json.loads(line)["expected_ns"] / 1e3
    return out
