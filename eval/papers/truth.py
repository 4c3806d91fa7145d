"""Truth tables in one form, from different files: the memory of real runs, and the estimators' predictions."""

import dataclasses
import json
import re
from typing import Optional

from eval.memory import xmem_rows
from eval.memory.xmem_rows import ESTIMATORS, kind_of
from eval.truth import measured_jobs

GPUCAST = "gpucast"
REQUESTED = f"{GPUCAST}, requested"
WITHOUT_CONVOLUTIONS = ("mlp", "gpt", "lstm")
PLACES = {0: "start", 1: "before backward", 2: "after step", None: "not recorded"}


@dataclasses.dataclass
class Estimate:
    """An estimator's prediction for a row, and its result."""

    bytes: float  # the job's need, also the limit of the second round
    error: float  # relative to the first round
    says_oom: bool
    second_oom: Optional[bool] = None  # None: there was no second round
    second_error: Optional[float] = None
    runtime_s: Optional[float] = None


@dataclasses.dataclass
class Row:
    """One real run."""

    name: str
    source: str
    experiment: str  # anova, montecarlo, ...
    kind: str  # transformer, small batch, CNN
    model: str
    optimizer: str
    batch: int
    place: str  # of zero_grad
    gpu: str
    total_bytes: int
    truth_bytes: int
    measures: (
        str  # nvml_used: the device's memory; nvml_growth: minus the memory in use after the context was made; reserved: PyTorch's peak
    )
    oom: bool
    fitted: bool  # a constant of gpucast was read off this row
    estimates: dict
    raw: dict = dataclasses.field(repr=False)


def from_xmem(raw):
    """A row of the xMem data."""
    kind = kind_of(raw)
    return Row(
        name=raw["path"],
        source="xmem",
        experiment=raw["experiment"],
        kind=kind,
        model=raw["model"].split("/")[-1],
        optimizer=raw["optimizer"],
        batch=raw["batch_size"],
        place=PLACES.get(raw["zero_grad_mode"], "start"),
        gpu=raw["gpu"],
        total_bytes=raw["total_gpu_memory"],
        truth_bytes=raw["ground"],
        measures="nvml_growth",
        oom=raw["real_oom"],
        # The ledger's kernels and handles, and the way to repeat such rows, were determined from these (docs/results/accuracy.md).
        fitted=kind != "CNN" and raw["zero_grad_mode"] is None,
        estimates=estimates_of(raw),
        raw=raw,
    )


def estimates_of(raw):
    return {
        ESTIMATORS.get(key, key): Estimate(
            bytes=said["memory"],
            error=said["error"],
            says_oom=said["oom"],
            second_oom=said["second_oom"],
            second_error=said["second_error"],
            runtime_s=said["runtime_ns"] / 1e9 if said["runtime_ns"] >= 0 else None,
        )
        for key, said in raw["estimators"].items()
        if said["memory"] >= 0  # otherwise a model that the estimator does not support
    }


def from_measured(raw, source):
    """A job of eval/truth/measure_on_gpu.py: the device's memory if the driver reported it, otherwise PyTorch's reserved memory in three steps."""
    job, used = raw["job"], raw.get("device_used_peak_bytes")
    told = used and raw.get("device_used_before_bytes") is not None
    return Row(
        name=measured_jobs.name_of(raw),
        source=source,
        experiment="measured",
        kind="no convolutions" if job["model"] in WITHOUT_CONVOLUTIONS else "CNN",
        model=job["model"],
        optimizer=job["optimizer"],
        batch=job["batch"],
        place=job.get("zero_grad", "start").replace("_", " "),
        gpu=raw["source"]["card"],
        total_bytes=raw["source"]["properties"]["total_memory"],
        truth_bytes=used - raw["device_used_before_bytes"] if told else raw["max_memory_reserved_3_steps_bytes"],
        measures="nvml_used" if told else "reserved",
        oom=False,
        fitted=False,
        estimates={},
        raw={**raw, "path": source, "total_gpu_memory": raw["source"]["properties"]["total_memory"]},
    )


def read_measured(path):
    """The jobs of a file that eval/truth/measure_on_gpu.py wrote."""
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        raw = json.loads(line) if line.strip() else {}
        if raw.get("part") != "job" or "error" in raw:
            continue
        try:
            rows.append(from_measured(raw, path.stem))
        except KeyError as error:
            raise SystemExit(f"{path}, line {number}: no {error}; eval/truth/measure_on_gpu.py writes such rows") from None
    return rows


def from_matrix(raw):
    """A line of eval/matrix/results.jsonl: the truth is the virtual GPU's, the estimators work on CPU profiles."""
    truth = raw["truth"]["peak_reserved_bytes"]
    # Names as in eval/matrix/cases.py: gpt2-b4-adamw-after_step-s128.
    model, batch, optimizer, place, rest = re.fullmatch(r"(.+?)-b(\d+)-([^-]+)-([^-]+)(.*)", raw["case"]).groups()
    estimates = {}
    for name, said in raw["predictions"].items():
        made, _, method = name.partition(" ")
        if made == "profile" and "peak_reserved_bytes" in said and not method.startswith("without"):
            peak = said["peak_reserved_bytes"]
            label = GPUCAST if method == GPUCAST else f"{method}'s method"
            estimates[label] = Estimate(bytes=peak, error=abs(peak - truth) / truth, says_oom=False, runtime_s=said.get("seconds"))
    return Row(
        name=raw["case"],
        source="matrix",
        experiment="matrix",
        kind="transformer" if re.search(r"-s\d", rest) else "CNN",
        model=model,
        optimizer=optimizer,
        batch=int(batch),
        place=place.replace("_", " "),
        gpu=raw["gpu"],
        total_bytes=0,
        truth_bytes=truth,
        measures="reserved",
        oom=False,
        fitted=False,
        estimates=estimates,
        raw=raw,
    )


def compared_bytes(row, outcome):
    """Of what gpucast said, the part that the row's measurement holds."""
    reserved = outcome["peak_reserved_bytes"]
    return reserved + {"nvml_growth": outcome["growth_bytes"], "nvml_used": outcome["ledger_bytes"], "reserved": 0}[row.measures]


def second_round_fails(row, name, limit, beside, virtual):
    """No real card ran with this limit. The second round counts as failed when it fails on the virtual GPU, or when what the real allocator
    had needed (the measurement minus the memory outside the allocator) is above the limit.
    """
    too_low = row.truth_bytes - beside > xmem_rows.limit_bytes(limit, row.total_bytes)
    return too_low or (virtual or {}).get((row.name, name), False)


def add_gpucast(row, outcome, virtual=None):
    """Adds gpucast's estimates to the others. `virtual`: {(row name, estimator): out of memory in the virtual GPU's second round}."""
    estimate = outcome["peak_reserved_bytes"] + outcome["ledger_bytes"]
    compared = compared_bytes(row, outcome)
    beside = compared - outcome["peak_reserved_bytes"]
    limits = {GPUCAST: estimate, REQUESTED: outcome["device"].get("request_bytes")}
    for name, limit in limits.items():
        if limit is None:
            continue
        row.estimates[name] = Estimate(
            bytes=limit,
            error=abs(limit - estimate + compared - row.truth_bytes) / row.truth_bytes,
            says_oom=outcome["oom"],
            second_oom=None if outcome["oom"] else second_round_fails(row, name, limit, beside, virtual),
            runtime_s=outcome["seconds"],
        )


def add_other(row, outcome, name, size_bytes, virtual=None):
    """Adds another estimator's figure, for the same memory as the measurement, as its authors compare it."""
    says_oom = size_bytes > row.total_bytes
    beside = compared_bytes(row, outcome) - outcome["peak_reserved_bytes"]
    row.estimates[name] = Estimate(
        bytes=size_bytes,
        error=abs(size_bytes - row.truth_bytes) / row.truth_bytes,
        says_oom=says_oom,
        second_oom=None if says_oom else second_round_fails(row, name, size_bytes, beside, virtual),
    )
