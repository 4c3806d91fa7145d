#!/usr/bin/env python3
"""The evaluation of the xMem paper, for gpucast and every estimator that the truth tables have.

    python -m eval.papers.run_papers --python ENV/bin/python --out /tmp/papers
    python -m eval.papers.run_papers --python ENV/bin/python --out /tmp/papers --data DIR --model gpt2

Truth tables: xmem/runs.jsonl of --data, the files of eval/truth, and eval/matrix/results.jsonl (truth of the virtual GPU, estimators on
CPU profiles). ENV: PyTorch 2.6.0, torchvision 0.21.0 and transformers 4.51.3. Runs are kept in --out: a second start continues after
the first. It writes rows.jsonl, report.md and report.html there. docs/howto/evaluate.md has more.
"""

import argparse
import dataclasses
import datetime
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from eval import ROOT, jobs
from eval.memory import xmem_rows
from eval.papers import document, estimators, metrics, truth
from eval.truth import measured_jobs


def fail(message):
    sys.exit(f"run_papers.py: {message}")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    xmem_rows.add_data_option(parser)
    xmem_rows.add_cudnn_option(parser)
    parser.add_argument(
        "--truth", type=Path, default=ROOT / "eval/truth", help="a folder of files of measure_on_gpu.py (default %(default)s)"
    )
    parser.add_argument("--matrix", type=Path, default=ROOT / "eval/matrix/results.jsonl", help="default %(default)s")
    parser.add_argument("--out", type=Path, required=True, help="where runs are kept and the report is written")
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable, help="a Python with torch 2.6.0, torchvision 0.21.0 and transformers 4.51.3")
    parser.add_argument("--arch", choices=["transformer", "cnn", "all"], default="all")
    parser.add_argument("--min-batch", type=int, default=1, help="of transformers (default %(default)s)")
    parser.add_argument("--model", help="only this model (part of its name)")
    parser.add_argument("--limit", type=int, help="only the first N rows of the xMem data")
    parser.add_argument("--jobs", type=int, help="runs at a time (default: what gpucast batch chooses)")
    parser.add_argument(
        "--second-round",
        choices=["replay", "run"],
        default="replay",
        help="replay the first run with each estimate as the limit, or run every one again (hundreds of runs; default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the drawn rows and the permutations (default %(default)s)")
    parser.add_argument("--draws", type=int, default=1000, help="for an interval (default %(default)s)")
    return parser.parse_args()


# --- Truth tables --------------------------------------------------------------------------------------------------------------------


def xmem_table(args):
    """The rows of the xMem data with gpucast's predictions; none if the data is absent."""
    if not args.data.exists():
        print(f"run_papers.py: no xMem data at {args.data}; going on without", file=sys.stderr)
        return []
    raws, outcomes, _ = xmem_rows.measure_all(args, xmem_rows.read_rows(args))
    return [(truth.from_xmem(raw), outcome) for raw, outcome in zip(raws, outcomes)]


def measured_tables(args):
    """{file: [(row, gpucast's prediction)]} of eval/truth."""
    gpu_ids = {gpu["name"]: gpu["id"] for gpu in jobs.gpus(args.gpucast)}
    tables = {}
    for path in sorted(args.truth.glob("*.jsonl")):
        rows = truth.read_measured(path)
        for row in rows:
            row.raw["gpu_id"] = gpu_ids.get(row.gpu)
        unknown = {row.gpu for row in rows if row.raw["gpu_id"] is None}
        if unknown:
            print(f"left out, not in `gpucast gpus`: {', '.join(sorted(unknown))}", file=sys.stderr)
        rows = [row for row in rows if row.raw["gpu_id"]]
        lines = jobs.run(args.gpucast, [measured_job(args, row) for row in rows], args.resume, args.jobs) if rows else {}
        tables[path.stem] = [(row, xmem_rows.outcome(row.raw, lines[row.name])) for row in rows if xmem_rows.ran(lines[row.name])]
    return tables


def measured_job(args, row):
    return measured_jobs.job_of(row.raw, args.python, row.raw["gpu_id"], args.cudnn)


def job_of(args, row):
    return xmem_rows.job_of(args, row.raw) if row.source == "xmem" else measured_job(args, row)


def matrix_table(args):
    if not args.matrix.is_file():
        return []
    return [truth.from_matrix(json.loads(line)) for line in args.matrix.read_text().splitlines() if line.strip()]


# --- Rewritten estimators -------------------------------------------------------------------------------------------------------------


def statistics_of(args, names):
    """{model's name: its figures for estimators}; kept in --out."""
    path = args.out / "models.jsonl"
    known = {line["model"]: line for line in map(json.loads, path.read_text().splitlines())} if path.exists() else {}
    missing = sorted(set(names) - set(known))
    if missing:
        fresh = args.out / "new.models.jsonl"
        words = [args.gpucast, "run", "--gpu", "rtx3060", "--", args.python, "-m", "eval.papers.model_statistics", str(fresh), *missing]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        if not fresh.exists():
            fail(f"model_statistics.py failed:\n{done.stderr[-3000:]}")
        known.update((line["model"], line) for line in map(json.loads, fresh.read_text().splitlines()))
        path.write_text("".join(json.dumps(line) + "\n" for line in known.values()))
        fresh.unlink()
    return known


def others_estimates(args, pairs):
    """[(row, outcome, estimator, bytes)] of SchedTune and LLMem on the xMem rows."""
    if not pairs:
        return []
    models = statistics_of(args, [row.raw["model"] for row, _ in pairs])
    cards = {gpu["id"]: gpu for gpu in jobs.gpus(args.gpucast)}
    samples, found = [], []
    for row, outcome in pairs:
        model = models[row.raw["model"]]
        point = estimators.features(model, row.batch, cards[xmem_rows.GPU_IDS[row.gpu]])
        samples.append((row.model, point, None if row.oom else row.truth_bytes))
        # The base without the context: the measurement does not include it.
        found.append((row, outcome, estimators.LLMEM, estimators.llmem_bytes(model, row.batch, outcome["growth_bytes"])))
    forest = estimators.schedtune_bytes(samples, args.seed)
    found += [(row, outcome, estimators.SCHEDTUNE, size) for (row, outcome), size in zip(pairs, forest)]
    return [line for line in found if line[3] is not None]


def add_estimates(pairs, others, virtual=None):
    """`virtual`: the results of the second rounds, which need the estimates first."""
    for row, outcome in pairs:
        truth.add_gpucast(row, outcome, virtual)
    for row, outcome, name, size_bytes in others:
        truth.add_other(row, outcome, name, size_bytes, virtual)


# --- The second round ----------------------------------------------------------------------------------------------------------------


def second_rounds(args, pairs):
    """{(row name, estimator): does the job with the estimate as its limit run out of memory on the virtual GPU?}

    As in the paper: only if the verdict was right and the real run succeeded.
    """
    asked = [
        (row, outcome, name, xmem_rows.limit_fraction(estimate.bytes, row.total_bytes))
        for row, outcome in pairs
        for name, estimate in row.estimates.items()
        if not row.oom and metrics.is_right(row, estimate)
    ]
    if args.second_round == "replay":
        return {
            (row.name, name): xmem_rows.runs_out_at(outcome, fraction * row.total_bytes)
            for row, outcome, name, fraction in asked
            if outcome["min_capacity_bytes"] is not None
        }
    todo = {(row.name, name): xmem_rows.limited(job_of(args, row), fraction) for row, _, name, fraction in asked}
    # Estimates with the same limit share a run.
    lines = jobs.run(args.gpucast, todo.values(), args.resume, args.jobs) if todo else {}
    oom = {name: jobs.out_of_memory(line) for name, line in lines.items() if jobs.out_of_memory(line) or xmem_rows.ran(line)}
    return {key: oom[job["name"]] for key, job in todo.items() if job["name"] in oom}


# --- Output --------------------------------------------------------------------------------------------------------------------------


def rows_json(rows, virtual):
    for row in rows:
        line = {key: getattr(row, key) for key in ("name", "source", "experiment", "kind", "model", "optimizer", "batch", "place", "gpu")}
        line.update(total_bytes=row.total_bytes, truth_bytes=row.truth_bytes, measures=row.measures, oom=row.oom, fitted=row.fitted)
        line["estimators"] = {
            name: {
                **dataclasses.asdict(estimate),
                "right": metrics.is_right(row, estimate),
                "passes": metrics.passes(row, estimate) if row.total_bytes else None,
                "saved_bytes": metrics.saved_bytes(row, estimate) if row.total_bytes else None,
                "second_oom_on_virtual_gpu": virtual.get((row.name, name)),
            }
            for name, estimate in row.estimates.items()
        }
        yield json.dumps(line) + "\n"


def versions(args, sources):
    about = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "gpucast": subprocess.run([args.gpucast, "--version"], capture_output=True, text=True).stdout.strip().removeprefix("gpucast "),
        "commit": subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True
        ).stdout.strip(),
        "runs": ", ".join(f"{name} {release}" for name, release in jobs.versions(args.python).items()),
        "cuDNN": args.cudnn,
        "second round": f"by {args.second_round}",
    }
    if "xmem" in sources:
        path = xmem_rows.rows_file(args.data)
        about["xmem"] = f"{path.name}, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    about["rows"] = ", ".join(f"{name} {len(rows)}" for name, rows in sources.items())
    about["seed, draws"] = f"{args.seed}, {args.draws}"
    return {key: value for key, value in about.items() if value}


def main():
    args = parse_args()
    args.gpucast = jobs.find(args.gpucast)
    args.python = os.path.abspath(shutil.which(args.python) or fail(f"no Python at '{args.python}'"))
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    args.resume = args.out / "runs.jsonl"
    tables = {"xmem": xmem_table(args), **measured_tables(args)}
    pairs = [pair for table in tables.values() for pair in table]
    others = others_estimates(args, tables["xmem"])
    add_estimates(pairs, others)
    virtual = second_rounds(args, pairs)
    add_estimates(pairs, others, virtual)
    sources = {name: [row for row, _ in table] for name, table in tables.items() if table}
    matrix = matrix_table(args)
    if matrix:
        sources["matrix"] = matrix
    if not sources:
        fail(f"no truth table: neither {args.data} nor {args.truth} nor {args.matrix} has one")
    blocks = document.blocks_of(sources, virtual, versions(args, sources), args.seed, args.draws)
    rows = [row for table in sources.values() for row in table]
    (args.out / "rows.jsonl").write_text("".join(rows_json(rows, virtual)))
    (args.out / "report.md").write_text(document.markdown(blocks))
    (args.out / "report.html").write_text(document.html(blocks))
    print(f"{len(rows)} rows; {args.out}/report.md, report.html and rows.jsonl", file=sys.stderr)


if __name__ == "__main__":
    main()
