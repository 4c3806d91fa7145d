#!/usr/bin/env python3
"""Public trainers by their own commands under `gpucast run`: do the report's peaks equal PyTorch's own counters, to the byte?

python tests/programs/run_trainers.py --gpucast build/release/bin/gpucast --python ENV/bin/python --checkouts DIR --out OUT
    [--only litgpt,timm] [--again] [--page]

DIR has a clone of each repository in a folder of its name; `--clones` prints the commands. Packages go to OUT/packages, output to OUT/logs,
rows to OUT/trainers.jsonl: a run that was interrupted goes on. ENV is `make programs`'s.
"""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import uuid
from pathlib import Path

from page import WORKS, sizes, text

from run import ended, left_behind, usual_environment, version_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))

from trainers import TRAINERS  # noqa: E402

from eval import environments  # noqa: E402
from eval import page as results  # noqa: E402

PAGE = ROOT / "docs/results/trainers.md"


def make_data(checkout, trainer):
    for make in trainer.data:
        done = checkout / f".made-{make.name.replace('/', '-')}"
        if not done.exists():
            make(checkout)
            done.touch()


def environment_of(options, trainer, temporary, marker):
    python = environments.python_of(options.python, trainer.torch)
    packages = environments.packages_of(python, options.out, trainer.packages)
    own = trainer.checkout(options.checkouts) / trainer.python_path if trainer.python_path else None
    folders = [HERE / "trainers/counting", *(folder for folder in (packages, own) if folder)]
    programs = [*([packages / "bin"] if packages else []), python.parent]
    cache = options.out / "cache"
    return {
        **usual_environment(folders, programs, temporary, cache, marker),
        "HF_DATASETS_OFFLINE": "1",
        "HF_HOME": str(cache / "huggingface"),
        **dict(trainer.environment),
    }


def run(options, trainer):
    checkout = trainer.checkout(options.checkouts)
    row = {"name": trainer.name, "command": trainer.command, "commit": trainer.commit, "packages": trainer.packages}
    row["torch"] = version_of(str(environments.python_of(options.python, trainer.torch)), "torch")
    if trainer.repository and not checkout.is_dir():
        return {**row, "outcome": "absent", "problem": f"no clone of {trainer.repository}"}
    checkout.mkdir(parents=True, exist_ok=True)
    make_data(checkout, trainer)
    temporary = Path(tempfile.mkdtemp(prefix="trainers-"))
    inner = temporary / "tmp"
    inner.mkdir()
    marker = f"GPUCAST_PROGRAM={uuid.uuid4().hex}"
    environment = environment_of(options, trainer, inner, marker)
    under = [options.gpucast, "run", "--steps", "1000", "--format", "json", "-o", temporary / "capture.gpucast", *trainer.options, "--"]
    command = ["bash", "-c", trainer.command.replace("CHECKOUT", str(checkout))]
    shared_before = set(os.listdir("/dev/shm"))
    logs = options.out / "logs"
    logs.mkdir(exist_ok=True)
    log = logs / f"{re.sub(r'[^a-z0-9]+', '-', trainer.name.lower())}.log"
    row |= ended(trainer, [*under, *command], checkout / trainer.folder, environment, temporary / "out", log)
    row["left"] = left_behind(trainer, marker, inner, shared_before, log.read_text(errors="replace"))
    shutil.rmtree(temporary)
    return row


def trainers_table(rows):
    by_name = {trainer.name: trainer for trainer in TRAINERS}
    lines = [
        "| trainer | release | command | peaks | ranks | steps | allocated, MiB | reserved, MiB | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        trainer = by_name[row["name"]]
        name = f"[{text(trainer.name)}]({trainer.source})" + (f" ({trainer.remark})" if trainer.remark else "")
        release = ", ".join(
            [
                *([trainer.commit[:7]] if trainer.commit else []),
                *trainer.packages[:1],
                *([f"torch {trainer.torch}"] if trainer.torch else []),
            ]
        )
        word = WORKS.get(row["outcome"], row["outcome"])
        why = row.get("problem") or (row.get("says") if row["outcome"] == "message" else "")
        cell = f"{word}: {text(why)[:160]}" if why else word
        allocated, reserved = sizes(row)
        lines.append(
            f"| {name} | {release} | `{text(trainer.command)}` | {cell} | {row.get('ranks', '')} | {row.get('steps', '')} | {allocated} | {reserved} | {row.get('seconds', '')} |"
        )
    equal = sum(row["outcome"] == "equal" for row in rows)
    return "\n".join([f"{equal} of {len(rows)} are equal.", "", *lines])


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpucast", type=os.path.abspath)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--checkouts", type=Path, default=Path("checkouts"))
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--only", type=lambda words: words.lower().split(","), default=[], help="trainers in whose name one of these words is"
    )
    parser.add_argument("--again", action="store_true", help="also those that have a row")
    parser.add_argument("--page", action="store_true", help="renew docs/results/trainers.md")
    parser.add_argument("--clones", action="store_true", help="print the commands that make DIR, and end")
    return parser.parse_args()


def main():
    options = parse_args()
    if options.clones:
        for repository, commit in sorted({(trainer.repository, trainer.commit) for trainer in TRAINERS if trainer.repository}):
            folder = options.checkouts / repository.split("/")[1]
            print(f"git clone https://github.com/{repository} {folder} && git -C {folder} checkout {commit}")
        return 0
    options.python = options.python.absolute()  # not resolved: the environment is found from the link
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    journal = options.out / "trainers.jsonl"
    rows = {row["name"]: row for row in map(json.loads, journal.read_text().splitlines())} if journal.exists() else {}
    for trainer in TRAINERS:
        if (options.only and not any(word in trainer.name.lower() for word in options.only)) or (
            trainer.name in rows and not options.again
        ):
            continue
        rows[trainer.name] = row = run(options, trainer)
        print(json.dumps(row), flush=True)
        with open(journal, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    kept = [rows[trainer.name] for trainer in TRAINERS if trainer.name in rows]
    if options.page:
        results.write(PAGE, "make trainers CHECKOUTS=DIR", f"{len(kept)} trainers", {"trainers": trainers_table(kept)})
    return 0 if all(row["outcome"] in ("equal", "message") for row in kept) else 1


if __name__ == "__main__":
    sys.exit(main())
