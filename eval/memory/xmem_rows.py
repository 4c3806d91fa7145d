#!/usr/bin/env python3
"""Repeat the measured runs of the xMem artifact on the virtual GPU and compare them with the real cards.

    python -m eval.memory.xmem_rows --python ENV/bin/python --resume rows.jsonl
    python -m eval.memory.xmem_rows --python ENV/bin/python --arch cnn --resume rows.jsonl --markdown docs/results/accuracy.md

ENV: PyTorch 2.6.0 and transformers 4.51.3, torchvision 0.21.0 (as in the measured runs). A row takes a second or two.
docs/results/accuracy.md explains the comparison.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from eval import ROOT, jobs, page
from eval.tables import median, percent, quantile, table

HERE = Path(__file__).resolve().parent

WORKLOAD = HERE / "xmem_workload.py"
STEPS = 4
MIB = 2**20
GRID_BYTES = 2 * MIB  # NVML counts device memory in this step
KNOWN_LENGTH_BATCH = 15  # smaller batches of text are padded to a random length below 128 tokens
GPU_IDS = {"NVIDIA GeForce RTX 3060": "rtx3060", "NVIDIA GeForce RTX 4060": "rtx4060", "NVIDIA A100-SXM4-40GB": "a100-40"}
KINDS = ("transformer", "small batch", "CNN")
ESTIMATORS = {"solution": "xMem", "DNNmem": "DNNMem", "SchedTune": "SchedTune", "LLMem": "LLMem"}
SAME_RELEASE = ("solution", "DNNmem")  # whose second rounds ran with the first round's PyTorch; the others' ran with 2.3.1 and 2.0.1
LARGE_ERROR = 0.06
RULES_READ_OFF = (
    "ConvNeXt",
    "RegNetY",
)  # models whose rows gave a rule (src/vgpu/libs/cudnn_workspace.cc): the others' errors are shown separately, too
COMMAND = "make accuracy DATA=DIR"  # upper_bound.py's too


def fail(message):
    sys.exit(f"xmem_rows.py: {message}")


def add_data_option(parser):
    parser.add_argument(
        "--data",
        type=Path,
        default=ROOT / "shared/data",
        help="the measured runs, no part of this repository: a folder with xmem/runs.jsonl, or that file (default %(default)s)",
    )


def add_cudnn_option(parser):
    parser.add_argument("--cudnn", default="auto", help="value for `gpucast run --cudnn` (default %(default)s)")


def rows_file(data):
    """The file of measured runs that --data means."""
    for path in (data, data / "xmem/runs.jsonl", data / "runs.jsonl"):
        if path.is_file():
            return path
    return fail(f"no measured runs at {data}; name a folder that has xmem/runs.jsonl with --data")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_option(parser)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable, help="a Python with torch 2.6.0, torchvision 0.21.0 and transformers 4.51.3")
    parser.add_argument("--arch", choices=["transformer", "cnn", "all"], default="transformer")
    parser.add_argument(
        "--min-batch",
        type=int,
        default=KNOWN_LENGTH_BATCH,
        help="leave out smaller transformer batches, whose text length is unknown (default %(default)s)",
    )
    parser.add_argument("--model", help="only this model (part of its name)")
    parser.add_argument("--limit", type=int, help="only the first N rows")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    add_cudnn_option(parser)
    parser.add_argument("--resume", type=Path, help="keep the lines of gpucast batch here, and take those that are already there")
    parser.add_argument("--results", type=Path, help="write one JSON line per row here: gpucast's prediction")
    parser.add_argument("--markdown", type=Path, help="also put the tables into this document, between its markers")
    return parser.parse_args()


def read_rows(args):
    rows = [json.loads(line) for line in rows_file(args.data).read_text().splitlines() if line.strip()]
    rows = [row for row in rows if args.arch in ("all", row["arch"])]
    rows = [row for row in rows if row["arch"] == "cnn" or row["batch_size"] >= args.min_batch]
    if args.model:
        rows = [row for row in rows if args.model.lower() in row["model"].lower()]
    for what, unknown in (
        ("no configuration in eval/memory/configs", {row["model"] for row in rows if not known(row)}),
        ("not among the cards", {row["gpu"] for row in rows if row["gpu"] not in GPU_IDS}),
    ):
        if unknown:
            print(f"left out, {what}: {', '.join(sorted(unknown))}", file=sys.stderr)
    rows = [row for row in rows if known(row) and row["gpu"] in GPU_IDS]
    rows.sort(
        key=lambda row: (
            row["arch"] != "transformer",
            row["gpu"],
            row["zero_grad_mode"] is not None,
            row["model"],
            row["optimizer"],
            row["batch_size"],
        )
    )
    rows = rows[: args.limit]
    if not rows:
        fail("no row is left with these options")
    return rows


def known(row):
    return row["arch"] == "cnn" or (HERE / "configs" / (row["model"].replace("/", "__") + ".json")).is_file()


def generation(row):
    return "zero_grad not recorded" if row["zero_grad_mode"] is None else "zero_grad recorded"


def kind_of(row):
    if row["arch"] == "cnn":
        return KINDS[2]
    return KINDS[0] if row["batch_size"] >= KNOWN_LENGTH_BATCH else KINDS[1]


def name_of(row):
    place = "-" if row["zero_grad_mode"] is None else row["zero_grad_mode"]
    return f"{row['model'].split('/')[-1]} {row['optimizer']} {row['batch_size']} z{place}"


def card_of(row):
    return row["gpu"].split()[-1] if "RTX" in row["gpu"] else "A100-40"


def place_of(row):
    """The place of zero_grad: 0 first in the iteration, 1 before backward, 2 last. Not recorded, or any other number: 0."""
    return row["zero_grad_mode"] if row["zero_grad_mode"] in (1, 2) else 0


def name_of_job(row):
    """Rows that repeat a configuration share its run."""
    return f"{GPU_IDS[row['gpu']]} {name_of(row)}"


def name_on_full_card(row):
    return f"{name_of_job(row)}, full card"


def job_of(args, row, enforce_capacity=False):
    """The row's run as a job of `gpucast batch`."""
    # Rows that do not record the place of zero_grad: without cuBLAS workspaces from the caching allocator.
    unrecorded = row["zero_grad_mode"] is None
    command = [args.python, str(WORKLOAD), "--model", row["model"], "--optimizer", row["optimizer"]]
    command += ["--batch", str(row["batch_size"]), "--zero-grad", str(place_of(row))]
    return {
        "name": name_on_full_card(row) if enforce_capacity else name_of_job(row),
        "command": command,
        "gpu": GPU_IDS[row["gpu"]],
        "steps": STEPS,
        "enforce_capacity": enforce_capacity,
        **({} if args.cudnn == "auto" else {"cudnn": args.cudnn}),
        "environment": {"PYTORCH_CUDA_ALLOC_CONF": None, "CUBLAS_WORKSPACE_CONFIG": ":0:0" if unrecorded else None},
    }


def limited(job, fraction):
    """The same run with PyTorch's allocator limited to this part of the card."""
    python, *script = job["command"]
    words = [python, str(ROOT / "eval/papers/limited.py"), f"{fraction:.2f}", *script]
    return {**job, "name": f"{job['name']}, at most {fraction:.2f}", "command": words, "enforce_capacity": True}


def usable_bytes(row, result):
    """The card's memory that is left for PyTorch's allocator."""
    return row["total_gpu_memory"] - ledger_bytes(result)


def ledger_bytes(result, what=None):
    return sum(line["expected_bytes"] for line in result["report"]["ledger"] if what in (None, line["what"]))


def needs_second_run(row, result):
    """It may still run if the allocator gives cached segments back: then that run counts."""
    peak = result["report"]["peak"]
    return peak["allocated_bytes"] <= usable_bytes(row, result) < peak["reserved_bytes"]


def outcome(row, first, second=None):
    """The runs of a row: the first without a limit, the second on a full card if one was needed."""
    peak = first["report"]["peak"]
    if second is None:
        oom = peak["allocated_bytes"] > usable_bytes(row, first)  # the tensors alone do not fit, whatever the allocator gives back
    else:
        oom = jobs.out_of_memory(second)
        peak = peak if oom else second["report"]["peak"]
    used = second if second and not oom else first
    return {
        "path": row["path"],
        "job": first["name"],
        "peak_reserved_bytes": peak["reserved_bytes"],
        "peak_allocated_bytes": peak["allocated_bytes"],
        "ledger_bytes": ledger_bytes(first),
        # NVML's growth outside the allocator: its first sample is after the context.
        "growth_bytes": ledger_bytes(first) - ledger_bytes(first, "CUDA context"),
        "kernels_high_bytes": next(line["high_bytes"] for line in first["report"]["ledger"] if line["what"].startswith("kernels loaded")),
        "device": used["report"]["device"],
        "min_capacity_bytes": first["report"]["min_capacity_bytes"],
        "oom": oom,
        "second_run": second is not None,
        "seconds": round(first["seconds"] + (second["seconds"] if second else 0), 2),
        "warnings": [warning.get("code", "") if isinstance(warning, dict) else warning for warning in first["report"].get("warnings", [])],
    }


def measure_all(args, rows):
    """(rows, gpucast's prediction for each, {job name: its first run}): two batches, the second of rows that fill their card. Rows that cannot
    run are left out."""
    firsts = jobs.run(args.gpucast, [job_of(args, row) for row in rows], args.resume, args.jobs)
    rows = [row for row in rows if ran(firsts[name_of_job(row)])]
    full = [job_of(args, row, enforce_capacity=True) for row in rows if needs_second_run(row, firsts[name_of_job(row)])]
    seconds = jobs.run(args.gpucast, full, args.resume, args.jobs) if full else {}
    rows = [row for row in rows if ran(seconds.get(name_on_full_card(row)))]
    return rows, [outcome(row, firsts[name_of_job(row)], seconds.get(name_on_full_card(row))) for row in rows], firsts


def ran(result):
    why = jobs.problem(result) if result else None
    if why:
        print(f"left out: {result['name']}: {why}", file=sys.stderr)
    return not why


def difference(row, result):
    """The card's memory beyond the allocator: real growth minus our peak reserved."""
    return row["ground"] - result["peak_reserved_bytes"]


def constants(rows, results):
    """Per card and generation, the growth outside the allocator, from the transformer rows of known length without OOM."""
    groups = {}
    for row, result in zip(rows, results):
        if kind_of(row) == KINDS[0] and not row["real_oom"]:
            groups.setdefault((card_of(row), generation(row)), []).append(difference(row, result))
    return {key: (statistics.median_low(values), values) for key, values in sorted(groups.items())}


def our_error(row, result):
    """Relative error of peak reserved plus the ledger's kernels and handles; NVML's growth does not include the context."""
    return abs(result["peak_reserved_bytes"] + result["growth_bytes"] - row["ground"]) / row["ground"]


def first_error(row, key):
    estimate = row["estimators"].get(key)
    return None if estimate is None or estimate["memory"] < 0 else estimate["error"]


def rows_table(rows, results):
    header = ["run", "card", "real MiB", "reserved MiB", "real - reserved", "OOM real/ours", "xMem error %", "our error %"]
    body = []
    for row, result in zip(rows, results):
        real, ours = ("yes" if row["real_oom"] else "no"), ("yes" if result["oom"] else "no")
        body.append(
            [
                name_of(row),
                card_of(row),
                f"{row['ground'] / MIB:.0f}",
                f"{result['peak_reserved_bytes'] / MIB:.0f}",
                "-" if row["real_oom"] else f"{difference(row, result) / MIB:.0f}",
                f"{real}/{ours}" + ("" if real == ours else " !"),
                "-" if row["real_oom"] else percent(first_error(row, "solution")),
                "-" if row["real_oom"] else percent(our_error(row, result)),
            ]
        )
    return table(header, body, as_markdown=False)


MISSES_NOTE = (
    "`z0`, `z1`, `z2`: `zero_grad` is first in the iteration, before backward, or last. `z-`: not recorded. "
    "The column of differences subtracts the constant of the row's card and group (the first table). "
    "The error subtracts the ledger's amount, one per card."
)


def misses_table(rows, results):
    """The rows that are off by more than NVML's step, if the constant of their card and generation is known."""
    groups = constants(rows, results)
    header = ["run", "card", "reserved MiB", "real - reserved - constant MiB", "our error %", "xMem error %"]
    body = []
    for row, result in zip(rows, results):
        constant = groups.get((card_of(row), generation(row)), (None, []))[0]
        if row["real_oom"] or constant is None or abs(difference(row, result) - constant) <= GRID_BYTES:
            continue
        off = (difference(row, result) - constant) / MIB
        errors = [percent(our_error(row, result)), percent(first_error(row, "solution"))]
        body.append([name_of(row), card_of(row), f"{result['peak_reserved_bytes'] / MIB:.0f}", f"{off:+.0f}", *errors])
    return table(header, body, as_markdown=True)


def exactness_table(groups, markdown):
    body = []
    for (card, when), (constant, values) in groups.items():
        same = sum(value == constant for value in values)
        near = sum(abs(value - constant) <= GRID_BYTES for value in values)
        body.append(
            [f"{card}, {when}", len(values), f"{constant / MIB:.0f}", same, near, f"{min(values) / MIB:.0f}..{max(values) / MIB:.0f}"]
        )
    return table(["transformer rows", "rows", "constant MiB", "equal to it", "within 2 MiB", "range MiB"], body, markdown)


def capped_ok(row, result):
    """Would the job run with PyTorch's allocator capped at our estimate?

    The real allocator's need is the real growth minus the memory outside it. That a run may be saved by giving cached memory back
    is ignored.
    """
    estimate = result["peak_reserved_bytes"] + result["ledger_bytes"]
    return row["ground"] - result["growth_bytes"] <= limit_bytes(estimate, row["total_gpu_memory"])


def limit_fraction(estimate, total):
    """The part of the card that the second round allows PyTorch's allocator, in the artifact's steps of 1 %."""
    return min(round(estimate / total, 2), 1.0)


def limit_bytes(estimate, total):
    return limit_fraction(estimate, total) * total


def saved_bytes(right, real_oom, runs_capped, estimate, total):
    """Equation 7 of the xMem paper: the usable rest of the card; a wrong estimate costs the whole card."""
    if right and real_oom:
        return total
    if right and runs_capped:
        return total - estimate
    return -total


def groups_of(rows, results):
    """(name of a group of rows, its rows with their results)"""
    pairs = list(zip(rows, results))
    for kind in KINDS:
        yield kind, [pair for pair in pairs if kind_of(pair[0]) == kind]
    others = [pair for pair in pairs if kind_of(pair[0]) == "CNN" and not any(model in pair[0]["model"] for model in RULES_READ_OFF)]
    yield f"CNN but {', '.join(RULES_READ_OFF)}", others


def metrics_table(rows, results, markdown):
    """MRE, PEF and MCP as the xMem paper defines them, every estimator on the same rows."""
    body = []
    for kind, pairs in groups_of(rows, results):
        if not pairs:
            continue
        for key in ["ours", *ESTIMATORS]:
            first, second, wrong, failed, saved, count = [], [], 0, 0, [], 0
            for row, result in pairs:
                total = row["total_gpu_memory"]
                if key == "ours":
                    right = result["oom"] == row["real_oom"]
                    runs_capped = capped_ok(row, result)
                    estimate_bytes = result["peak_reserved_bytes"] + result["ledger_bytes"]
                    errors = (our_error(row, result), None)
                else:
                    estimate = row["estimators"].get(key)
                    if estimate is None or estimate["memory"] < 0:
                        continue
                    right = estimate["correct_estimation"]
                    runs_capped = estimate["second_oom"] is False
                    estimate_bytes = estimate["memory"]
                    errors = (estimate["error"], estimate["second_error"] if runs_capped else None)
                count += 1
                wrong += not right
                failed += not (right and (row["real_oom"] or runs_capped))
                if not row["real_oom"]:
                    first.append(errors[0])
                    second.append(errors[0] if errors[1] is None else errors[1])
                if row["experiment"] == "montecarlo":
                    saved.append(saved_bytes(right, row["real_oom"], runs_capped, estimate_bytes, total))
            if count:
                mcp = f"{statistics.mean(saved) / 1e9:.2f}" if saved else "-"
                paper = "-" if key == "ours" else percent(median(second))
                label = "gpucast" if key == "ours" else ESTIMATORS[key]
                body.append(
                    [
                        f"{kind}: {label}",
                        count,
                        percent(median(first)),
                        percent(quantile(first, 0.9) if first else None),
                        percent(max(first, default=None)),
                        paper,
                        wrong,
                        percent(failed / count),
                        mcp,
                    ]
                )
    header = ["estimator", "rows", "median error %", "90th %", "worst %", "MRE %", "wrong OOM verdicts", "PEF %", "MCP GB"]
    return table(header, body, markdown)


def runs_out_at(result, limit):
    """Would a replay of the run go out of memory with PyTorch's allocator limited to `limit` bytes? The smallest card it runs on also holds the
    memory outside this limit."""
    return result["min_capacity_bytes"] - result["ledger_bytes"] > limit


def second_rounds_table(rows, results, markdown):
    """Each estimator's real second run, capped at its estimate, compared with a replay of our run with the same cap."""
    ended = {name: [] for name in ESTIMATORS.values()}
    for row, result in zip(rows, results):
        for key, name in ESTIMATORS.items():
            real = row["estimators"].get(key)
            if not real or real["second_oom"] is None or result["min_capacity_bytes"] is None:
                continue
            ours = runs_out_at(result, limit_bytes(real["memory"], row["total_gpu_memory"]))
            ended[name].append((ours, real["second_oom"], kind_of(row)))
    body = []
    for name, runs in ended.items():
        other = [kind for ours, real, kind in runs if ours != real]
        counts = [sum(ours == real == oom for ours, real, _ in runs) for oom in (False, True)]
        body.append([name, len(runs), *counts, len(other), sum(kind == "CNN" for kind in other)])
    body.append(["all", *(sum(line[i] for line in body) for i in range(1, 6))])
    return table(
        ["capped at the estimate of", "real second runs", "both run", "both out of memory", "differ", "CNNs of these"], body, markdown
    )


def measured_again(row, result, key):
    """The card's memory in an estimator's successful second round: the possible readings of the data.

    The data has the distance between that round and the estimate without its sign. A reading above the limit plus the possible
    size of kernels and handles is impossible.
    """
    said = row["estimators"].get(key)
    if not said or said["second_oom"] is not False or said["second_error"] is None:
        return []
    off = said["second_error"] * row["ground"]
    most = limit_bytes(said["memory"], row["total_gpu_memory"]) + result["kernels_high_bytes"]
    low, high = said["memory"] - off, said["memory"] + off
    return [low, high] if high <= most else [low]


def repeats_of(row, result):
    """[(limit in bytes, readings)] of the second rounds that repeat the first on the same PyTorch."""
    rounds = ((row["estimators"].get(key), measured_again(row, result, key)) for key in SAME_RELEASE)
    return [(limit_bytes(said["memory"], row["total_gpu_memory"]), readings) for said, readings in rounds if readings]


def peaks_under_limits(args, rows, results):
    """{(path, limit): our peak reserved with PyTorch's allocator at this limit} of measured second rounds; None: out of memory there."""
    peaks, jobs_of = {}, {}
    for row, result in zip(rows, results):
        for limit, _ in [] if row["real_oom"] else repeats_of(row, result):
            key = row["path"], limit
            if limit >= result["peak_reserved_bytes"]:
                peaks[key] = result["peak_reserved_bytes"]
            elif result["min_capacity_bytes"] is None or runs_out_at(result, limit):
                peaks[key] = None
            else:
                jobs_of[key] = limited(job_of(args, row), limit / row["total_gpu_memory"])
    lines = jobs.run(args.gpucast, jobs_of.values(), args.resume, args.jobs) if jobs_of else {}
    for key, job in jobs_of.items():
        line = lines[job["name"]]
        through = not jobs.out_of_memory(line) and ran(line)
        peaks[key] = line["report"]["peak"]["reserved_bytes"] if through else None
    return peaks


def nearest(values, to):
    return min(values, key=lambda value: abs(value - to))


# Kinds of second rounds: with a limit that the first round kept, too; with a limit and an estimate that leave only one reading.
ROUNDS = {
    "": lambda ground, limit, readings: True,
    ", limit above the first": lambda ground, limit, readings: limit >= ground,
    ", one reading": lambda ground, limit, readings: len(readings) == 1,
}


def repeated_rows(rows, results, peaks, wanted=ROUNDS[""]):
    """One entry a row without OOM that was measured again: relative distances, of the first round."""
    found = []
    for row, result in zip(rows, results):
        ground, ours = row["ground"], result["peak_reserved_bytes"] + result["growth_bytes"]
        repeats = [] if row["real_oom"] else [again for again in repeats_of(row, result) if wanted(ground, *again)]
        if not repeats:
            continue
        all_readings = [reading for _, readings in repeats for reading in readings]
        replayed = [(peaks[row["path"], limit], readings) for limit, readings in repeats]
        replayed = [(peak + result["growth_bytes"], readings) for peak, readings in replayed if peak is not None]
        found.append(
            {
                "row": row,
                "apart": [abs(nearest(readings, ground) - ground) / ground for _, readings in repeats],
                "apart_farther": [max(abs(reading - ground) for reading in readings) / ground for _, readings in repeats],
                "error": [abs(ours - ground) / ground],
                "error_again": [abs(nearest(readings, peak) - peak) / ground for peak, readings in replayed],
                "error_nearest": [abs(nearest([ground, *all_readings], ours) - ours) / ground],
                "again": nearest(all_readings, ours),
                "ours": ours,
            }
        )
    return found


def repeats_table(rows, results, peaks, markdown):
    """The distance between measured runs of one job, and between them and our prediction."""
    columns = {
        "apart": "two measured runs apart",
        "apart_farther": "by the other reading",
        "error": "we from the first",
        "error_again": "we from the second, same limit",
        "error_nearest": "we from the nearest",
    }
    body = []
    for kind in KINDS:
        for what, wanted in ROUNDS.items():
            group = [entry for entry in repeated_rows(rows, results, peaks, wanted) if kind_of(entry["row"]) == kind]
            if group:
                body.append([kind + what, len(group), sum(len(entry["apart"]) for entry in group)])
                body[-1] += [spread([value for entry in group for value in entry[key]]) for key in columns]
    return table(["median / 90th / worst %", "jobs", "second rounds", *columns.values()], body, markdown)


def spread(values):
    return " / ".join(percent(figure) for figure in (median(values), quantile(values, 0.9), max(values))) if values else "-"


def large_misses_table(rows, results, peaks, markdown):
    """The CNN rows with large errors, with another run of the same job."""
    body = []
    for entry in repeated_rows(rows, results, peaks):
        (first,), (least,) = entry["error"], entry["error_nearest"]
        if first > LARGE_ERROR and kind_of(entry["row"]) == "CNN":
            amounts = (f"{amount / MIB:.0f}" for amount in (entry["row"]["ground"], entry["again"], entry["ours"]))
            agrees = "yes" if least <= LARGE_ERROR else "no"
            body.append([name_of(entry["row"]), card_of(entry["row"]), *amounts, percent(first), percent(least), agrees])
    header = ["run", "card", "first run MiB", "another run MiB", "gpucast MiB", "error to the first %", "to the nearest %", "within 6 %"]
    return table(header, body, markdown)


def ledger_bounds(rows, results):
    """The amounts outside the allocator that agree with every verdict, as far as peaks alone show it."""
    lines = []
    for card in sorted({card_of(row) for row in rows}):
        pairs = [(row, result) for row, result in zip(rows, results) if card_of(row) == card and not result["second_run"]]
        left = [(row["real_oom"], row["total_gpu_memory"] - result["peak_reserved_bytes"]) for row, result in pairs]
        high = min((amount for oom, amount in left if not oom), default=None)
        low = max((amount for oom, amount in left if oom), default=0)
        if high is not None:
            lines.append(f"{card}: the verdicts are right with any ledger from {max(0, low) / MIB:.0f} to {high / MIB:.0f} MiB")
    return "\n".join(lines)


def summary(rows, results, peaks, markdown):
    groups = constants(rows, results)
    parts = []
    if groups:
        parts.append(exactness_table(groups, markdown))
    agree = sum(row["real_oom"] == result["oom"] for row, result in zip(rows, results))
    parts.append(f"OOM or not: {agree} of {len(rows)} agree ({sum(row['real_oom'] for row in rows)} real OOM).")
    parts.append(metrics_table(rows, results, markdown))
    parts.append(second_rounds_table(rows, results, markdown))
    if peaks:
        parts.append(repeats_table(rows, results, peaks, markdown))
        parts.append(large_misses_table(rows, results, peaks, markdown))
    return "\n\n".join(parts)


def main():
    args = parse_args()
    rows = read_rows(args)
    wanted = len(rows)
    rows, results, _ = measure_all(args, rows)
    if not rows:
        fail("no row could be run")
    if args.results:
        args.results.write_text("".join(json.dumps(result) + "\n" for result in results))
    peaks = peaks_under_limits(args, rows, results)
    print(rows_table(rows, results))
    print()
    print(summary(rows, results, peaks, markdown=False))
    print()
    print(ledger_bounds(rows, results))
    if args.markdown:
        tables = "\n\n".join(
            [summary(rows, results, peaks, markdown=True), "### Rows that are not exact", MISSES_NOTE, misses_table(rows, results)]
        )
        page.write(args.markdown, COMMAND, f"{len(rows)} measured runs", {"xmem_rows": tables})
    inexact = [value for constant, values in constants(rows, results).values() for value in values if abs(value - constant) > GRID_BYTES]
    disagree = sum(row["real_oom"] != result["oom"] for row, result in zip(rows, results))
    return 1 if inexact or disagree or len(rows) < wanted else 0


if __name__ == "__main__":
    sys.exit(main())
