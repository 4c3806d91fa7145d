"""Predicted and measured times of whole trainings: `gpucast time --run` compared with public logs.

    python -m eval.whole_run.evaluate --gpucast BIN --python ENV/bin/python --checkouts DIR --out OUT [--only NAMES] [--again]
        [--page docs/results/whole-run.md]

DIR has a clone of each repository at its commit, in a folder of its name; `--clones` prints the commands that make them. ENV has PyTorch
and what the trainers import; rows of another release run in the environment torch-RELEASE in ENV's folder. Packages go to OUT/packages, what
the trainers print to OUT/logs, rows to OUT/rows.jsonl: an evaluation that was interrupted goes on. `--run` starts each command under
`gpucast run` for three steps instead, to see that it works.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

from eval import ROOT, environments, page, tables
from eval.whole_run.rows import ROWS, SCRIPTS

PAGE = ROOT / "docs/results/whole-run.md"
COMMAND = (
    "python -m eval.whole_run.evaluate --gpucast BIN --python ENV/bin/python --checkouts DIR --out OUT --page docs/results/whole-run.md"
)
NS = 1e9
EXIT_GOOD = (0, 1)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpucast", type=os.path.abspath)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--checkouts", type=Path, default=Path("checkouts"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", type=lambda names: names.lower().split(","), default=[], help="rows in whose name one of these words is")
    parser.add_argument("--again", action="store_true", help="also rows that are in OUT")
    parser.add_argument("--run", action="store_true", help="only run each command for three steps")
    parser.add_argument("--limit", type=float, default=3600, help="seconds for a row")
    parser.add_argument("--page", type=Path, help="renew this page")
    parser.add_argument("--clones", action="store_true", help="print the commands that make DIR, and end")
    return parser.parse_args()


# --- Running -------------------------------------------------------------------------------------------------------------------------


def packages_of(args, row):
    return environments.packages_of(environments.python_of(args.python, row.torch), args.out, row.packages)


def environment_of(args, row, checkout, packages):
    own = {name: value.replace("CHECKOUT", str(checkout)) for name, value in row.environment.items()}
    folders = [own.pop("PYTHONPATH", ""), str(packages or "")]
    programs = [*([str(packages / "bin")] if packages else []), str(environments.python_of(args.python, row.torch).parent)]
    return {
        **os.environ,
        "PATH": ":".join([*programs, os.environ["PATH"]]),
        "PYTHONPATH": ":".join(filter(None, folders)),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HOME": str(args.out / "cache"),
        "WANDB_MODE": "disabled",
        **own,
    }


def make_data(args, row, checkout):
    """None, or what went wrong. The main environment makes it, also for other releases: their CUDA libraries may be gpucast's only."""
    packages = "" if row.torch else str(packages_of(args, row) or "")
    words = [str(args.python), "-m", "eval.whole_run.made", row.name, str(checkout)]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": packages}, capture_output=True, text=True)
    return None if done.returncode == 0 else f"no data: {(done.stderr.strip().splitlines() or ['?'])[-1]}"


def command_of(row, output):
    return [word.replace("SCRIPTS", str(SCRIPTS)).replace("OUT", str(output)) for word in shlex.split(row.command)]


def slug(name):
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def last_message(log):
    """gpucast's, or the last line that was printed."""
    lines = [line for line in log.splitlines() if line.strip() and "the capture up to there" not in line]
    said = [line for line in lines if line.startswith("gpucast: ")]
    return (said or lines or [""])[-1][:300]


def run(args, row):
    checkout = row.checkout(args.checkouts)
    if row.repository and not checkout.is_dir():
        return {"name": row.name, "problem": f"no clone of {row.repository}"}
    checkout.mkdir(parents=True, exist_ok=True)
    packages = packages_of(args, row)
    environment = environment_of(args, row, checkout, packages)
    if row.data and (problem := make_data(args, row, checkout)):
        return {"name": row.name, "problem": problem}
    output = args.out / "output" / slug(row.name)
    shutil.rmtree(output, ignore_errors=True)  # some trainers refuse a folder that exists
    output.parent.mkdir(parents=True, exist_ok=True)
    logs = args.out / "logs"
    logs.mkdir(exist_ok=True)
    mode = ["run", "--steps", "3"] if args.run else ["time", "--run", *row.told]
    words = [args.gpucast, *mode, "--gpu", row.card, "--format", "json", "--", *command_of(row, output)]
    began = time.monotonic()
    with open(logs / f"{slug(row.name)}{'-run' if args.run else ''}.log", "w") as log:
        try:
            done = subprocess.run(
                *(words,),
                cwd=checkout / row.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                timeout=args.limit,
            )
        except subprocess.TimeoutExpired:
            return {"name": row.name, "problem": f"more than {args.limit:.0f} s"}
    shutil.rmtree(output, ignore_errors=True)
    found = {"name": row.name, "seconds": round(time.monotonic() - began)}
    if done.returncode not in EXIT_GOOD:
        return {**found, "problem": last_message(Path(log.name).read_text(errors="replace")) or f"exit code {done.returncode}"}
    report = json.loads(done.stdout)
    if args.run:
        return {**found, "steps": report["steps"], "peak_bytes": report["peak"]["allocated_bytes"]}
    if not report["run"]["complete"]:
        return {**found, "problem": " ".join(report["run"]["notes"])}
    return {**found, **{key: report["run"].get(key) for key in ("wall_ns", "parts", "complete", "steps", "epochs", "notes")}}


# --- Judging -------------------------------------------------------------------------------------------------------------------------


def counted_part_ns(row, part):
    return part["ns"] * row.counted.get(part["name"], 1) / row.repeats


def predicted_s(row, result):
    """(expected, low, high): what the source's time holds of the prediction. The interval keeps the whole run's ratios."""
    wall = result["wall_ns"]
    left_out_ns = sum(part["ns"] * (1 - row.counted.get(part["name"], 1)) for part in result["parts"])
    expected = (wall["expected"] - left_out_ns) / row.repeats / NS
    return expected, expected * wall["low"] / wall["expected"], expected * wall["high"] / wall["expected"]


def duration(seconds):
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.2f} h"


def parts_text(row, result):
    found = [(part["name"], counted_part_ns(row, part) / NS) for part in result["parts"]]
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in sorted(found, key=lambda one: -one[1]) if seconds > 0)


def judged(results):
    """(row, result, predicted) of the rows with a prediction, in the order of ROWS."""
    return [(row, results[row.name], predicted_s(row, results[row.name])) for row in ROWS if "wall_ns" in results.get(row.name, {})]


def runs_table(results):
    found = judged(results)
    lines = []
    for row, result, (expected, low, high) in found:
        measured = f"{'about ' if row.rounded else ''}{duration(row.measured_s)}"
        holds = "yes" if low <= row.measured_s <= high else "no"
        error = tables.signed(tables.error(expected, row.measured_s), 1)
        name = f"[{row.name}]({row.source})"
        lines.append(
            [name, row.card, measured, duration(expected), f"{duration(low)} to {duration(high)}", error, holds, parts_text(row, result)]
        )
    header = ["training", "card", "measured", "predicted", "interval", "error, %", "holds", "parts"]
    table = tables.markdown(header, lines, words=(0, 1, 7))
    problems = [f"- {row.name}: {results[row.name]['problem']}" for row in ROWS if "problem" in results.get(row.name, {})]
    return "\n".join([summary(found), "", table, *(["", "Without a prediction:", "", *problems] if problems else [])])


def summary(found):
    if not found:
        return "No row has a prediction yet."
    errors = [tables.error(expected, row.measured_s) for row, _, (expected, _, _) in found]
    holding = sum(low <= row.measured_s <= high for row, _, (_, low, high) in found)
    median, mean, ninetieth, worst = (tables.percent(size, 1) for size in tables.sizes(errors))
    makers = len({row.maker for row, _, _ in found})
    return (
        f"{len(found)} trainings of {makers} makers: median error {median} %, mean {mean} %, 90th percentile {ninetieth} %, worst {worst} %."
        f" {holding} of {len(found)} measured times lie within the interval."
    )


def sources_table():
    header = ["training", "maker", "card", "software", "samples", "lengths", "batch", "precision", "epochs", "steps", "evaluation"]
    header += ["checkpoints", "the time holds", "differs here"]
    lines = []
    for row in ROWS:
        card = row.card if row.card_is == "named" else f"{row.card} ({row.card_is})"
        facts = [row.software, row.samples, row.lengths, row.batch, row.precision, f"{row.epochs:g}", row.steps, row.evaluation]
        lines.append([f"[{row.name}]({row.source})", row.maker, card, *facts, row.checkpoints, row.holds, row.differs])
    return tables.markdown(header, lines, words=range(len(header)))


def commands_table():
    lines = []
    for row in ROWS:
        place = f"{row.repository}@{row.commit}, `{row.folder}`" if row.repository else "this package"
        lines.append([row.name, place, f"`{row.command}`", row.torch or "ENV"])
    return tables.markdown(["training", "from", "command", "PyTorch"], lines, words=range(4))


def main():
    args = parse_args()
    if args.clones:
        for repository, commit in sorted({(row.repository, row.commit) for row in ROWS if row.repository}):
            folder = args.checkouts / repository.split("/")[1]
            print(f"git clone https://github.com/{repository} {folder} && git -C {folder} checkout {commit}")
        return
    args.python = args.python.absolute()  # not resolved: the environment is found from the link
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    journal = args.out / ("runs.jsonl" if args.run else "rows.jsonl")
    results = {result["name"]: result for result in map(json.loads, journal.read_text().splitlines())} if journal.exists() else {}
    for row in ROWS:
        chosen = not args.only or any(word in row.name.lower() for word in args.only)
        if not chosen or (row.name in results and not args.again):
            continue
        results[row.name] = run(args, row)
        print(json.dumps(results[row.name]), flush=True)
        with open(journal, "a", encoding="utf-8") as file:
            file.write(json.dumps(results[row.name]) + "\n")
    if args.run:
        return
    print(runs_table(results))
    if args.page:
        shown = {"runs": runs_table(results), "sources": sources_table(), "commands": commands_table()}
        page.write(args.page, COMMAND, f"{len(judged(results))} of {len(ROWS)} trainings", shown)


if __name__ == "__main__":
    main()
