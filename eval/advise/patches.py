#!/usr/bin/env python3
"""Patches of `gpucast advise --write-patch`: the patched scripts run, and need what the points say.

    python -m eval.advise.patches --python ENV/bin/python --out OUT [--only unet] [--runs 16] [--most 8] [--page]

ENV has torch, transformers, peft, timm, diffusers and bitsandbytes. For each case: a search of a few runs with all changes allowed. Some of its
points, first those with further kinds of changes, run again and become patches. Each patch is applied to a copy of the scripts, and the copy runs.
Its peaks, reserved and allocated, must be those of the run under what-ifs, to the byte. OUT keeps everything; the same command started again
goes on.
"""

import argparse
import gzip
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

from eval import ROOT, jobs, page
from eval.advise.brute_force import PAGE, SCRIPTS

ALLOWED = "bf16,bf16-weights,8bit-optimizer,factored-optimizer"
CASES = {
    "gpt2": ("rtx3060", ["gpt.py", "--batch-size", "16"]),
    "vit-large": ("rtx3060", ["vit.py", "--batch-size", "32"]),
    "unet": ("rtx3060", ["unet.py", "--train_batch_size", "16"]),
    "lora-1b": ("rtx3060", ["lora.py", "--batch-size", "4"]),
}


def points_of(gpucast, python, gpu, words, runs, cache):
    """What-ifs of each point that changes the script."""
    options = ["--gpu", gpu, "--seconds", "0", "--runs", str(runs), "--allow", ALLOWED, "--cache", str(cache)]
    command = [gpucast, "advise", *options, "--format", "json", "--", python, *words]
    done = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True)
    if done.returncode == 2:
        raise SystemExit(done.stderr)
    return [point["what_ifs"] for point in json.loads(done.stdout)["points"] if point["what_ifs"] and not point["settings"]]


def varied(points, most):
    """Points that bring a further kind of change, those with many changes first; then others."""
    chosen, kinds, rest = [], set(), sorted(points, key=len, reverse=True)
    while rest and len(chosen) < most:
        best = max(rest, key=lambda what_ifs: len(kinds_of(what_ifs) - kinds))
        rest.remove(best)
        chosen.append(best)
        kinds |= kinds_of(best)
    return chosen


def kinds_of(what_ifs):
    return {what_if.partition(":")[0] for what_if in what_ifs}


def patched(python, what_ifs, capture, folder):
    """The answer of python/patch, and a copy of the scripts with its patch; None: no line could be placed."""
    with gzip.open(capture, "rt", encoding="utf-8") as file:
        places = next(json.loads(line)["places"] for line in file if line.startswith('{"record": "process"'))
    folder.mkdir(parents=True, exist_ok=True)
    job = {"places": places, "what_ifs": what_ifs, "folder": str(SCRIPTS), "output": str(folder / "it.patch"), "header": []}
    (folder / "job.json").write_text(json.dumps(job))
    done = subprocess.run([python, ROOT / "python/patch/write.py", folder / "job.json"], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    if not answer["files"]:
        return answer, None
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(SCRIPTS, copy)
    subprocess.run(["git", "apply", folder / "it.patch"], cwd=copy, check=True)
    return answer, copy


def compared(gpucast, python, gpu, words, points, folder):
    """[(what-ifs, answer of python/patch, peaks under what-ifs, peaks of the patched copy)]"""
    names = {"+".join(what_ifs).replace(":", "-"): what_ifs for what_ifs in points}
    command = [python, *words]
    wanted = [
        {
            "name": name,
            "command": command,
            "gpu": gpu,
            "folder": str(SCRIPTS),
            "what_if": what_ifs,
            "output": str(folder / f"{name}.gpucast"),
        }
        for name, what_ifs in names.items()
    ]
    under = jobs.run(gpucast, wanted, folder / "what_ifs.jsonl", at_once=2)
    answers, wanted = {}, []
    for name, what_ifs in names.items():
        answers[name], copy = patched(python, what_ifs, folder / f"{name}.gpucast", folder / "patches" / name)
        if copy is not None:
            wanted.append({"name": name, "command": divided(command, what_ifs), "gpu": gpu, "folder": str(copy)})
    of_copies = jobs.run(gpucast, wanted, folder / "patched.jsonl", at_once=2)
    return [(what_ifs, answers[name], peaks(under, name), peaks(of_copies, name)) for name, what_ifs in names.items()]


def divided(command, what_ifs):
    """The command with its batch, the last word, in parts."""
    parts = next((int(what_if.partition(":")[2]) for what_if in what_ifs if what_if.startswith("micro-batch:")), 1)
    return [*command[:-1], str(int(command[-1]) // parts)]


def peaks(lines, name):
    report = lines[name]["report"] if name in lines else None
    return (report["peak"]["reserved_bytes"], report["peak"]["allocated_bytes"]) if report else None


def table(rows):
    lines = ["| script | patches | equal to the byte | changes placed, by hand | kinds of changes placed |", "|---|---|---|---|---|"]
    for row in rows:
        kinds = ", ".join(f"`{kind}`" for kind in row["kinds"])
        lines.append(f"| `{row['command']}` | {row['patches']} | {row['equal']} | {row['placed']}, {row['by_hand']} | {kinds} |")
    return "\n".join([*lines, *(f"\n`{row['case']}`: {sentence}" for row in rows for sentence in (*row["reasons"], *row["different"]))])


def row_of(case, words, results):
    placed = [what_if for _, answer, *_ in results for what_if in answer["placed"]]
    by_hand = [entry for _, answer, *_ in results for entry in answer["by_hand"]]
    whole = [result for result in results if not result[1]["by_hand"]]
    different = [
        f"{', '.join(what_ifs)}: {expected} bytes reserved and allocated under what-ifs, {found} of the patched script"
        for what_ifs, _, expected, found in whole
        if expected is None or expected != found
    ]
    return {
        "case": case,
        "command": shlex.join(words),
        "patches": len(whole),
        "placed": len(placed),
        "by_hand": len(by_hand),
        "reasons": sorted({f"{entry['what_if'].partition(':')[0]}: {entry['why']}" for entry in by_hand}),
        "equal": len(whole) - len(different),
        "kinds": sorted(kinds_of(placed)),
        "different": different,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", required=True, type=os.path.abspath)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=CASES, help="one case")
    parser.add_argument("--runs", type=int, default=16, help="of each search (default: 16)")
    parser.add_argument("--most", type=int, default=8, help="points of each search that become patches (default: 8)")
    parser.add_argument("--page", action="store_true", help="renew docs/results/advise.md with all cases that OUT holds")
    options = parser.parse_args()
    gpucast = jobs.find(options.gpucast)
    failed = 0
    for case, (gpu, words) in CASES.items():
        if options.only not in (None, case):
            continue
        folder = options.out.resolve() / case
        folder.mkdir(parents=True, exist_ok=True)
        points = points_of(gpucast, options.python, gpu, words, options.runs, options.out.resolve() / "cache")
        row = row_of(case, words, compared(gpucast, options.python, gpu, words, varied(points, options.most), folder))
        (folder / "row.json").write_text(json.dumps(row))
        print(f"{case}: {row['equal']} of {row['patches']} patches equal, {row['placed']} changes placed, {row['by_hand']} by hand")
        for sentence in row["different"]:
            print(f"  {sentence}")
        failed += bool(row["different"])
    if options.page:
        rows = [json.loads(path.read_text()) for path in sorted(options.out.glob("*/row.json"))]
        command = "python -m eval.advise.patches --python ENV/bin/python --out OUT"
        page.write(PAGE, command, f"{len(rows)} of its {len(CASES)} scripts", {"patches": table(rows)})
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
