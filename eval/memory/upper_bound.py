#!/usr/bin/env python3
"""The excess of measured runs over their predictions: data/calibration.json, and its promise on runs that it was not made from.

    python -m eval.memory.upper_bound --python ENV/bin/python --resume batch.jsonl
    python -m eval.memory.upper_bound --python ENV/bin/python --resume batch.jsonl --write data/calibration.json --markdown docs/results/upper-bound.md

The runs are those of xmem_rows.py (same --data, same ENV, and the same --resume file). docs/explanation/upper-bound.md explains the method.
"""

import argparse
import json
import math
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

from eval import page, tables
from eval.jobs import add_gpucast_option
from eval.memory import xmem_rows

MIB = 2**20
CLASSES = ["no_convolutions", "varying_lengths", "dense", "pointwise", "grouped", "depthwise", "first_layer_only", "convolutions"]
ASSUMED = "workspaces_asked"  # no run was measured: half the range of runs without cuDNN's answers
POOLED = "convolutions"  # used for each kind of convolution with too few models
APART = ("no_convolutions", "varying_lengths")  # never pooled
LEAST_MODELS = 10  # for a kind with its own class: runs of one model resemble each other, so the number of models counts
CONFIDENCES = [0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.999, 0.9999]
INTERVAL, REQUEST = 0.95, 0.99  # each end of the 90 % interval; the request
TAIL_SHARE, TAIL_LEAST = 0.1, 5  # the largest scores, which determine the tail
SCALES_MIB = [500, 1000, 1500, 2000, 2500, 3000, 4000, 6000, 8000, 12000]


class Run(NamedTuple):
    """One measured run with its prediction. Bytes. `growth` is the memory on the card without the context."""

    model: str
    card: str
    job_class: str
    total: int
    context: int
    context_high: int
    kernels: int
    kernels_low: int
    kernels_high: int
    reserved: int  # PyTorch's peak, on a large enough card
    reserved_here: int  # the same on this card, where cached memory may have been given back
    growth: int
    real_oom: bool
    predicted_oom: bool
    verdict: str
    montecarlo: bool
    paper: dict  # xMem's estimate of the same run

    @property
    def need(self):
        return self.context + self.growth


# ---- from scores to a bound ----------------------------------------------------------------------------------------------


def quantile(scores, confidence):
    """A bound on a new score of the same kind, with at least this probability (split conformal prediction).

    Beyond the worst known score the probability cannot be promised for any distribution: then an exponential tail continues from it, with the
    slope of the largest tenth of the scores (at least five).
    """
    scores = sorted(scores)
    rank = math.ceil(confidence * (len(scores) + 1) - 1e-9)
    if rank <= len(scores):
        return scores[rank - 1]
    largest = max(TAIL_LEAST, round(TAIL_SHARE * len(scores)))
    threshold = scores[-largest - 1] if len(scores) > largest else scores[0]
    mean_excess = statistics.fmean(score - threshold for score in scores[-largest:])
    return scores[-1] + mean_excess * math.log(1 / ((len(scores) + 1) * (1 - confidence)))


def scale(reserved, scale_bytes, measured_up_to):
    return min(reserved, scale_bytes) * max(1, reserved / measured_up_to)


def upper_score(run, scale_bytes):
    return (run.growth - run.reserved_here - run.kernels_high) / min(run.reserved_here, scale_bytes)


def lower_score(run, scale_bytes):
    return (run.growth - run.reserved_here - run.kernels_low) / min(run.reserved_here, scale_bytes)


def rows_by_class(runs):
    """{class: (the class whose runs are used for it, those runs)}"""
    rows = {}
    for name in CLASSES:
        own = [run for run in runs if run.job_class == name]
        if name == POOLED or (name not in APART and len({run.model for run in own}) < LEAST_MODELS):
            rows[name] = (POOLED, [run for run in runs if run.job_class not in APART])
        else:
            rows[name] = (name, own)
    return rows


def bound(row_scores, confidence):
    return quantile(row_scores, confidence) if row_scores else 0.0


def scale_with_narrowest_requests(runs):
    """The error of runs does not grow in proportion to reserved, because a workspace belongs to one convolution. The limit of its growth is
    chosen so that requests are smallest on average."""
    by_class = rows_by_class(runs)
    own = [run for run in runs if run.job_class not in APART]
    if not own:
        return SCALES_MIB[-1] * MIB

    def mean_request(scale_bytes):
        bounds = {name: max(0, bound([upper_score(run, scale_bytes) for run in rows], REQUEST)) for name, (_, rows) in by_class.items()}
        return statistics.fmean(bounds[run.job_class] * min(run.reserved_here, scale_bytes) / run.need for run in own)

    return min((mib * MIB for mib in SCALES_MIB), key=mean_request)


def fit(runs):
    """The table, from runs that did not run out of memory. Without `widening`, which needs several cards."""
    runs = [run for run in runs if not run.real_oom]
    scale_bytes = scale_with_narrowest_requests(runs)
    classes = []
    for name, (rows_of, rows) in rows_by_class(runs).items():
        upper = [upper_score(run, scale_bytes) for run in rows]
        lower = [-lower_score(run, scale_bytes) for run in rows]
        quantiles = [[confidence, round(bound(upper, confidence), 4)] for confidence in CONFIDENCES]
        classes.append(
            {
                "name": name,
                "rows_of": rows_of,
                "rows": len(rows),
                "models": len({run.model for run in rows}),
                "low": round(-bound(lower, INTERVAL), 4),
                "quantiles": quantiles,
            }
        )
    pooled = next(row for row in classes if row["name"] == POOLED)
    classes.append(
        {
            "name": ASSUMED,
            "rows_of": "half the range of convolutions without answers from cuDNN (eleven runs on an A100 took at most 3.1 % more)",
            "rows": 0,
            "models": 0,
            "low": round(pooled["low"] / 2, 4),
            "quantiles": [[confidence, round(score / 2, 4)] for confidence, score in pooled["quantiles"]],
        }
    )
    return {
        "scale_bytes": scale_bytes,
        "measured_up_to_bytes": max((run.reserved_here for run in runs), default=1),
        "widening": 1.0,
        "classes": classes,
    }


def widening(runs):
    """One card's worst run divided by the promise from the other cards' runs, at least 1. For convolutions."""
    runs = [run for run in runs if not run.real_oom and run.job_class not in APART]
    most = 1.0
    for card in {run.card for run in runs}:
        table = fit([run for run in runs if run.card != card])
        promised = score_at(class_of(table, POOLED), REQUEST)
        worst = max(upper_score(run, table["scale_bytes"]) for run in runs if run.card == card)
        if promised > 0:
            most = max(most, worst / promised)
    return math.ceil(10 * most) / 10


# ---- a table's bounds, computed as in src/ledger/calibration.cc and src/ledger/beside.cc ---------------------------------------


def class_of(table, name):
    return next(row for row in table["classes"] if row["name"] == name)


def score_at(row, confidence):
    known = row["quantiles"]
    if confidence <= known[0][0]:
        return known[0][1]
    right = next((i for i in range(1, len(known)) if known[i][0] >= confidence), len(known) - 1)
    (left_confidence, left), (right_confidence, score) = known[right - 1], known[right]

    def left_to_one(share):
        return -math.log(1 - share)

    slope = (score - left) / (left_to_one(right_confidence) - left_to_one(left_confidence))
    return left + slope * (left_to_one(confidence) - left_to_one(left_confidence))


def whole_mib(number):
    return math.ceil(number / MIB) * MIB


def calibrated(table, job_class, reserved, confidence, factor=1.0):
    """(low, high, request): a run's memory beyond the allocator and the ledger's other lines."""
    row = class_of(table, job_class)
    by = factor * scale(reserved, table["scale_bytes"], table["measured_up_to_bytes"])
    low = -whole_mib(-min(0, row["low"]) * by)
    return low, whole_mib(max(0, score_at(row, INTERVAL)) * by), whole_mib(max(0, score_at(row, confidence)) * by)


def request_bytes(table, run, confidence=REQUEST, factor=1.0):
    return run.reserved + run.context_high + run.kernels_high + calibrated(table, run.job_class, run.reserved, confidence, factor)[2]


def interval(table, run, factor=1.0):
    """For growth on this card: NVML's first sample is after the context."""
    low, high, _ = calibrated(table, run.job_class, run.reserved_here, INTERVAL, factor)
    if run.job_class == "no_convolutions":
        low = high = 0
    return run.reserved_here + run.kernels_low + low, run.reserved_here + run.kernels_high + high


# ---- how well it keeps its promise ---------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    right: bool  # out of memory or not was predicted
    runs: bool  # with the request as the card's whole memory
    runs_in_paper: bool  # with the paper's second round: only PyTorch's allocator is capped, in steps of 1 %
    request: int
    covered: bool
    width: float  # of the interval, as a share of the growth


def judge(table, run, factor=1.0):
    request = min(run.total, request_bytes(table, run, factor=factor))
    whole_card = request == run.total  # the first round ran so
    cap = xmem_rows.limit_bytes(request, run.total)
    low, high = interval(table, run, factor)
    return Outcome(
        right=run.predicted_oom == run.real_oom,
        runs=whole_card or run.need <= request,
        runs_in_paper=whole_card or run.growth - run.kernels <= cap,
        request=request,
        covered=low <= run.growth <= high,
        width=(high - low) / run.growth,
    )


def group_of(run):
    return {"no_convolutions": "text", "varying_lengths": "text, small batches"}.get(run.job_class, run.job_class)


def judged(runs, leave_out=None):
    """[(run, outcome)], each by a table from the runs that do not share leave_out(run)."""
    made = {}
    out = []
    for run in runs:
        key = leave_out(run) if leave_out else None
        if key not in made:
            rest = [other for other in runs if leave_out is None or leave_out(other) != key]
            made[key] = fit(rest)
            cards = {other.card for other in rest}
            made[key]["widening"] = widening(rest) if len(cards) > 1 else widening(runs)
            made[key]["cards"] = cards
        factor = 1.0 if run.card in made[key]["cards"] else made[key]["widening"]
        out.append((run, judge(made[key], run, factor)))
    return out


def summary_rows(pairs):
    groups = {}
    for run, outcome in pairs:
        groups.setdefault(group_of(run), []).append((run, outcome))
    order = ["text", "text, small batches", *[name for name in CLASSES if name in groups]]
    body = [summary_row(name, groups[name]) for name in order if name in groups]
    convolutions = [pair for pair in pairs if pair[0].job_class not in APART]
    return [*body, summary_row("all convolutions", convolutions), summary_row("all", pairs)]


def summary_row(name, pairs):
    def percent(values):
        values = list(values)
        return f"{100 * statistics.fmean(values):.1f}" if values else "-"

    ran = [(run, outcome) for run, outcome in pairs if not run.real_oom]
    drawn = [(run, outcome) for run, outcome in pairs if run.montecarlo and run.paper]
    ours = [xmem_rows.saved_bytes(outcome.right, run.real_oom, outcome.runs_in_paper, outcome.request, run.total) for run, outcome in drawn]
    papers = [
        xmem_rows.saved_bytes(
            run.paper["correct_estimation"], run.real_oom, run.paper["second_oom"] is False, run.paper["memory"], run.total
        )
        for run, _ in drawn
    ]
    exact = [xmem_rows.saved_bytes(True, run.real_oom, True, run.growth, run.total) for run, _ in drawn]
    rated = [run for run, _ in pairs if run.paper]
    covered = binomial_interval(sum(outcome.covered for _, outcome in ran), len(ran)) if ran else None
    return [
        name,
        len(pairs),
        len(ran),
        sum(not outcome.right for _, outcome in pairs),
        percent(not (outcome.right and (run.real_oom or outcome.runs)) for run, outcome in pairs),
        percent(not (outcome.right and (run.real_oom or outcome.runs_in_paper)) for run, outcome in pairs),
        percent(not (run.paper["correct_estimation"] and (run.real_oom or run.paper["second_oom"] is False)) for run in rated),
        f"{statistics.fmean(ours) / 1e9:.2f}" if ours else "-",
        f"{statistics.fmean(papers) / 1e9:.2f}" if papers else "-",
        f"{statistics.fmean(exact) / 1e9:.2f}" if exact else "-",
        percent(outcome.request / run.need - 1 for run, outcome in ran),
        percent(outcome.covered for _, outcome in ran),
        "{:.0f} to {:.0f}".format(*(100 * share for share in covered)) if ran else "-",
        percent(outcome.width for _, outcome in ran),
    ]


def binomial_interval(count, of, confidence=0.9):
    """Clopper and Pearson's: the true shares for which this count of rows, or a more extreme one, is not rare."""
    tail = (1 - confidence) / 2

    def at_most(most, share):
        return sum(math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(most + 1))

    def solve(rises_above):
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if rises_above(middle) else (middle, high)
        return (low + high) / 2

    low = solve(lambda share: 1 - at_most(count - 1, share) >= tail) if count else 0.0
    high = solve(lambda share: at_most(count, share) <= tail) if count < of else 1.0
    return low, high


HEADER = [
    "class",
    "rows",
    "not OOM",
    "wrong OOM",
    "PEF %",
    "PEF % as in the paper",
    "xMem PEF %",
    "MCP GB",
    "xMem MCP GB",
    "MCP GB of an exact figure",
]
HEADER += ["asked above need %", "in the 90 % interval %", "true share may be %", "its width %"]


def class_table(table, markdown):
    header = ["class", "its rows", "models", "low %", *[f"{100 * confidence:g} %" for confidence in CONFIDENCES[2:7]]]
    body = []
    for row in table["classes"]:
        scores = [score_at(row, confidence) for confidence in CONFIDENCES[2:7]]
        rows = f"{row['rows']}" + ("" if row["rows_of"] == row["name"] else f" of {row['rows_of']}" if row["rows"] else ", assumed")
        body.append([row["name"], rows, row["models"], f"{100 * row['low']:.1f}", *[f"{100 * score:.1f}" for score in scores]])
    return tables.table(header, body, markdown)


def report(runs, table, markdown):
    parts = [
        f"Shares of min(reserved, {table['scale_bytes'] // MIB} MiB); {table['widening']} times that on unmeasured cards and precisions.",
        class_table(table, markdown),
    ]
    ways = [
        ("All rows; the table above is made from them", None),
        ("Each model by a table without its rows", lambda run: run.model),
        ("Each card by a table without its rows, widened", lambda run: run.card),
        ("Each row by a table without it", lambda run: runs.index(run)),
    ]
    for title, leave_out in ways:
        rows = summary_rows(judged(runs, leave_out))
        parts += [f"**{title}**" if markdown else title, tables.table(HEADER, rows, markdown)]
    verdicts = {}
    for run in runs:
        count = verdicts.setdefault(run.verdict, [0, 0])
        count[run.real_oom] += 1
    words = "; ".join(f"{name}: {ran} ran, {oom} did not" for name, (ran, oom) in sorted(verdicts.items()))
    parts.append(f"Verdicts of `gpucast run`: {words}.")
    return "\n\n".join(parts)


# ---- rows ------------------------------------------------------------------------------------------------------------------


def line_of(report_, what):
    return next(line for line in report_["ledger"] if line["what"].startswith(what))


def to_run(row, first, result):
    said = first["report"]
    context, kernels = line_of(said, "CUDA context"), line_of(said, "kernels loaded")
    job_class = said["device"]["classes"][0]
    if xmem_rows.kind_of(row) == "small batch":
        job_class = "varying_lengths"  # the measured run drew its texts, this one has the longest
    return Run(
        model=row["model"],
        card=xmem_rows.card_of(row),
        job_class=job_class,
        total=row["total_gpu_memory"],
        context=context["expected_bytes"],
        context_high=context["high_bytes"],
        kernels=kernels["expected_bytes"],
        kernels_low=kernels["low_bytes"],
        kernels_high=kernels["high_bytes"],
        reserved=said["peak"]["reserved_bytes"],
        reserved_here=result["peak_reserved_bytes"],
        growth=row["ground"],
        real_oom=row["real_oom"],
        predicted_oom=result["oom"],
        verdict=said["verdict"],
        montecarlo=row["experiment"] == "montecarlo",
        paper=row["estimators"].get("solution") or {},
    )


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    xmem_rows.add_data_option(parser)
    xmem_rows.add_cudnn_option(parser)
    add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable, help="a Python with torch 2.6.0, torchvision 0.21.0 and transformers 4.51.3")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--resume", type=Path, help="keep the lines of gpucast batch here, and take those that are already there")
    parser.add_argument("--write", type=Path, help="write the table here: data/calibration.json")
    parser.add_argument("--markdown", type=Path, help="also put the tables into this document, between its markers")
    parser.set_defaults(arch="all", min_batch=1, model=None, limit=None)
    return parser.parse_args()


def main():
    args = parse_args()
    rows, results, firsts = xmem_rows.measure_all(args, xmem_rows.read_rows(args))
    runs = [to_run(row, firsts[result["job"]], result) for row, result in zip(rows, results)]
    table = {
        "schema_version": 1,
        "made_by": "python -m eval.memory.upper_bound --write data/calibration.json",
        "source": "training runs of the xMem artifact on RTX 3060 and RTX 4060 (doi 10.1145/3721462.3770773), PyTorch 2.6.0, CUDA 12.4, float32",
        "cards": sorted({xmem_rows.GPU_IDS[row["gpu"]] for row in rows}),
        **fit(runs),
        "widening": widening(runs),
    }
    print(report(runs, table, markdown=False))
    if args.write:
        args.write.write_text(json.dumps(table, indent=1) + "\n")
    if args.markdown:
        page.write(args.markdown, xmem_rows.COMMAND, f"{len(runs)} measured runs", {"calibrate": report(runs, table, markdown=True)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
