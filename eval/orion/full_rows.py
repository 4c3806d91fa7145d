"""ORION's own measured rows, if available: DIR/orion/{CNN,MLP,Transformer}.csv, as its published scripts write them (one line for each
configuration: model, batch, precision, optimizer, learning rate, card, vCPUs, storage; its FLOPs and bytes; the time of a step, and its part on
the GPU). Makes the paper's Tables 3 to 5 and Figures 2 to 7 again, also with folds that keep equivalent rows together.

As in the published scripts, ORION's trees learn the whole step from everything, and PreNeT's the time on the GPU without vCPUs and storage;
both are judged by the whole step.
"""

import dataclasses
import functools
import hashlib
import random
import statistics

from eval.data_sets import read_csv
from eval.orion import published
from eval.orion.judged import folds, kept, trees
from python.orion import flops

PRENET = (
    "iteration_flops",
    "memory_surrogate_bytes",
    "intensity",
    "batch",
    "bits",
    "multiprocessors",
    "memory_bytes",
    "bandwidth_bytes_per_s",
)
PRENET += ("parameter_bytes", "activation_bytes", "memory_ms", "memory_pressure", "flops_per_multiprocessor", "samples_per_multiprocessor")
ORION = (*PRENET, "vcpus", "nvme", "disk_bytes")


@dataclasses.dataclass(frozen=True)
class Row:
    number: int  # line of the file
    model: str
    card: str
    batch: int
    vcpus: int
    storage: str
    configuration: str  # everything that the time may depend on: not the learning rate
    step_ms: float
    gpu_ms: float
    features: tuple  # of ORION


def plain(name):
    """ResNet-50 and resnet50 are one."""
    return "".join(c for c in name.lower() if c.isalnum())


def _card(line):
    """(multiprocessors, bytes, bytes/s): from the line, or from the paper's Table 2; None: neither has it."""
    found = [published.number(line.get(name)) for name in ("SM", "Memory (GB)", "GPU Memory Bandwidth (GB/s)")]
    if not all(found):
        names = [name for name in published.TABLE_2 if plain(line.get("gpu_name") or "").endswith(plain(name))]
        if not names:
            return None
        found = published.TABLE_2[max(names, key=len)]
    return found[0], found[1] * 2**30, found[2] * 1e9


def _row(number, line):
    """ValueError: what is missing."""
    wanted = (
        "batch_size",
        "precision",
        "param_bytes",
        "optimizer_state_bytes",
        "flops_train_per_batch",
        "avg_batch_time_ms",
        "T_gpu_ms",
        "vcpu",
    )
    values = {name: published.number(line.get(name)) for name in wanted}
    missing = [name for name, value in values.items() if value is None or (value == 0 and name != "optimizer_state_bytes")]
    activation = next((published.number(line.get(name)) for name in line if name and name.startswith("act_bytes_per_")), None)
    missing += [name for name in ("model", "gpu_name", "storage") if not line.get(name)]
    missing += ["act_bytes_per_sample_proxy"] if activation is None else []
    if missing:
        raise ValueError(f"no {', '.join(missing)}")
    card = _card(line)
    if card is None:
        raise ValueError(f"a card that is not in the paper's Table 2: {line['gpu_name']}")
    multiprocessors, memory, bandwidth = card
    batch, work = values["batch_size"], values["flops_train_per_batch"]
    surrogate = flops.memory_surrogate(values["param_bytes"], values["optimizer_state_bytes"], activation * batch)
    nvme = line["storage"].strip().lower() == "nvme"
    disk = (published.number(line.get("disk_bytes_per_sample")) or 0.0) * batch
    features = (
        *(work, surrogate, flops.intensity(work, surrogate), batch, values["precision"], multiprocessors, memory, bandwidth),
        *(values["param_bytes"], activation * batch, 1000 * surrogate / bandwidth, surrogate / memory, work / multiprocessors),
        *(batch / multiprocessors, values["vcpu"], float(nvme), disk),
    )
    names = ("model", "dataset", "optimizer", "gpu_name", "storage", "embed_dim", "seq_len", "src_len", "tgt_len")
    configuration = repr([line.get(name) for name in names] + [values[name] for name in ("batch_size", "precision", "vcpu")])
    return Row(
        number,
        line["model"].strip(),
        line["gpu_name"].strip(),
        int(batch),
        int(values["vcpu"]),
        "NVMe" if nvme else "SSD",
        configuration,
        values["avg_batch_time_ms"],
        values["T_gpu_ms"],
        features,
    )


def rows(data, family, most, seed):
    """(rows of a family, at most this number, by seed; left-out rows)."""
    found, problems = [], {}
    for number, line in enumerate(read_csv(data / "orion" / f"{family}.csv"), 2):
        try:
            found.append(_row(number, line))
        except ValueError as error:
            problems.setdefault(str(error), []).append(number)
    left_out = [f"{family}.csv: {len(lines)} lines, the first is {lines[0]}: {why}" for why, lines in problems.items()]
    if len(found) > most:
        left_out.append(f"{family}.csv: {len(found) - most} of {len(found)} rows, by chance (--own-rows)")
        found = sorted(random.Random(seed).sample(found, most), key=lambda row: row.number)
    return found, left_out


def predictions(found, key, folder, seed, progress=lambda text: None):
    """{line: (ORION's ms, PreNeT's ms)}: each group of rows with the same key(row), by trees that learned from the others."""
    parts = {}
    for row in found:
        parts.setdefault(key(row), []).append(row)
    out = {}
    for place, part in enumerate(parts[value] for value in sorted(parts)):
        inside = {row.number for row in part}
        others = [row for row in found if row.number not in inside]
        if not others:
            continue
        progress(f"ORION's own rows: {place + 1} of {len(parts)}")
        both = [
            kept(
                folder,
                ["own", seed, names, target, trees.SETTINGS, _digest(others), _digest(part)],
                functools.partial(_fit, names, target, others, part, seed),
            )
            for names, target in ((ORION, "step_ms"), (PRENET, "gpu_ms"))
        ]
        out.update({row.number: pair for row, pair in zip(part, zip(*both))})
    return out


def _fit(names, target, others, part, seed):
    """ms of each row of `part`. PreNeT's features are the first of ORION's."""
    learned = [row.features[: len(names)] for row in others]
    model = trees.train(learned, [getattr(row, target) for row in others], names, False, seed)
    return [trees.predict(model, row.features) for row in part]


def _digest(some):
    return hashlib.sha1(repr([(row.number, row.step_ms, row.gpu_ms, row.features) for row in some]).encode()).hexdigest()


def by_fold(found, value, seed):
    fold = folds([value(row) for row in found], seed)
    return lambda row: fold[value(row)]


def errors(some, predicted):
    """(ORION's RMSE, PreNeT's) of rows that have predictions; None without any."""
    some = [row for row in some if row.number in predicted]
    if not some:
        return None
    return tuple(published.rmse([(predicted[row.number][which], row.step_ms) for row in some]) for which in (0, 1))


PROTOCOLS = {
    "five-fold": lambda row: row.number,
    "five-fold, a configuration's learning rates together": lambda row: row.configuration,
    "five-fold, by model": lambda row: plain(row.model),
}


def relative(some, predicted):
    """The median of ORION's errors, row by row."""
    return statistics.median(abs(predicted[row.number][0] / row.step_ms - 1) for row in some)


def means(some, predicted):
    """(mean measured, mean predicted) as in the paper's Figures 5 to 7."""
    return statistics.fmean(row.step_ms for row in some), statistics.fmean(predicted[row.number][0] for row in some)


def table_of(mapping, name):
    """The paper's entry of a model with another spelling in the rows; None: it has none."""
    return next((values for model, values in mapping.items() if plain(model) == plain(name)), None)
