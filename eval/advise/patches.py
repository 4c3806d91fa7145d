#!/usr/bin/env python3
"""Patches of `gpucast advise --write-patch`: the patched scripts run, and need what the points say.

    python -m eval.advise.patches --python ENV/bin/python --out OUT [--only unet] [--runs 12] [--page]

ENV has torch, transformers, peft, timm, diffusers and bitsandbytes. For each case: a search of a few runs with all changes allowed, and a patch
for each point of the front. Each patch is applied to a copy of the scripts, and the copy runs. Its peaks, reserved and allocated, must be those
of the run under what-ifs, to the byte. OUT keeps everything; the same command started again goes on.
"""

import argparse
import json
import shlex
import shutil
import subprocess
from pathlib import Path

from eval import jobs, page
from eval.advise.brute_force import PAGE, SCRIPTS

ALLOWED = "bf16,bf16-weights,8bit-optimizer,factored-optimizer"
CASES = {
    "gpt2": ("rtx3060", ["gpt.py", "--batch-size", "16"]),
    "vit-large": ("rtx3060", ["vit.py", "--batch-size", "32"]),
    "unet": ("rtx3060", ["unet.py", "--train_batch_size", "16"]),
    "lora-1b": ("rtx3060", ["lora.py", "--batch-size", "4"]),
}


def advice_with_patches(gpucast, python, gpu, words, runs, folder, cache):
    shutil.rmtree(folder, ignore_errors=True)
    options = [
        "--gpu",
        gpu,
        "--seconds",
        "0",
        "--runs",
        str(runs),
        "--allow",
        ALLOWED,
        "--cache",
        str(cache),
        "--write-patch",
        f"{folder}/",
    ]
    command = [gpucast, "advise", *options, "--format", "json", "--", python, *words]
    done = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True)
    if done.returncode == 2:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def peaks(gpucast, python, gpu, words, advice, folder):
    """[(patch, point, peaks under what-ifs, peaks of the patched copy)]"""
    wanted = []
    for patch in advice["patches"]:
        if patch["path"] is None:
            continue
        point = advice["points"][patch["point"]]
        name = Path(patch["path"]).stem
        copy = folder / "copies" / name
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(SCRIPTS, copy)
        subprocess.run(["git", "apply", patch["path"]], cwd=copy, check=True)
        environment = {"PYTORCH_CUDA_ALLOC_CONF": point["settings"]} if point["settings"] else {}
        same = {"gpu": gpu, "environment": environment}
        under = [what_if for what_if in point["what_ifs"] if what_if in patch["placed"]]
        # What is made by hand is in neither; the command's own changes are in both.
        command = patch["command"] if patch["by_hand"] else [python, *words]
        what_ifs = under if patch["by_hand"] else point["what_ifs"]
        wanted.append({"name": f"{name} what-ifs", "command": command, "folder": str(SCRIPTS), "what_if": what_ifs, **same})
        wanted.append({"name": f"{name} patched", "command": patch["command"], "folder": str(copy), **same})
    lines = jobs.run(gpucast, wanted, folder / "results.jsonl", at_once=2)

    def peak(name):
        report = lines[name]["report"]
        return (report["peak"]["reserved_bytes"], report["peak"]["allocated_bytes"]) if report else None

    out = []
    for patch in advice["patches"]:
        if patch["path"] is not None:
            name = Path(patch["path"]).stem
            out.append((patch, advice["points"][patch["point"]], peak(f"{name} what-ifs"), peak(f"{name} patched")))
    return out


def table(rows):
    lines = ["| script | patches | changes placed | by hand | equal to the byte | kinds of changes |", "|---|---|---|---|---|---|"]
    for row in rows:
        kinds = ", ".join(f"`{kind}`" for kind in row["kinds"])
        lines.append(f"| `{row['command']}` | {row['patches']} | {row['placed']} | {row['by_hand']} | {row['equal']} | {kinds} |")
    return "\n".join([*lines, *(f"\n{row['case']}: {sentence}" for row in rows for sentence in row["different"])])


def row_of(case, words, advice, results):
    placed = [what_if for patch, *_ in results for what_if in patch["placed"]]
    different = []
    for _, point, expected, found in results:
        if expected is None or expected != found:
            different.append(
                f"{', '.join(point['what_ifs'])}: {expected} reserved and allocated under what-ifs, {found} of the patched script"
            )
    return {
        "case": case,
        "command": shlex.join(words),
        "patches": len(results),
        "placed": len(placed),
        "by_hand": sum(len(patch["by_hand"]) for patch in advice["patches"]),
        "equal": len(results) - len(different),
        "kinds": sorted({what_if.partition(":")[0] for what_if in placed}),
        "different": different,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=CASES, help="one case")
    parser.add_argument("--runs", type=int, default=12, help="of each search (default: 12)")
    parser.add_argument("--page", action="store_true", help="renew docs/results/advise.md with all cases that OUT holds")
    options = parser.parse_args()
    gpucast = jobs.find(options.gpucast)
    failed = 0
    for case, (gpu, words) in CASES.items():
        if options.only not in (None, case):
            continue
        folder = options.out.resolve() / case
        folder.mkdir(parents=True, exist_ok=True)
        cache = options.out.resolve() / "cache"
        advice = advice_with_patches(gpucast, options.python, gpu, words, options.runs, folder / "patches", cache)
        row = row_of(case, words, advice, peaks(gpucast, options.python, gpu, words, advice, folder))
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
