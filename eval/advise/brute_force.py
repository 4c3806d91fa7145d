#!/usr/bin/env python3
"""`gpucast advise` on public examples' scripts, compared with a brute-force search over the same choices.

    python -m eval.advise.brute_force --python ENV/bin/python --out OUT [--only gpt2-medium] [--most 200] [--page]

ENV has torch, transformers, peft, timm and diffusers. For each case: the search until it is done; every one of its points again, which must
need the same memory; and all combinations of its changes (checkpoints: none and all; every number of parts that divides the batch; also
changes without effect alone). Changes that act on nothing are not combined. No combination may be better than a point of the front: less memory and less time a sample, by more
than 1 %. OUT keeps the answers, the captures and the lines of `gpucast batch`; the same command started again goes on.
"""

import argparse
import itertools
import json
import os
import shlex
import subprocess
from pathlib import Path

from eval import ROOT, jobs, page

PAGE = ROOT / "docs/results/advise.md"
SCRIPTS = Path(__file__).parent / "scripts"
CASES = {
    "gpt2": ("rtx3060", ["gpt.py", "--batch-size", "16"]),
    "gpt2-medium": ("rtx3060", ["gpt.py", "--model", "gpt2-medium", "--batch-size", "8"]),
    "vit-large": ("rtx3060", ["vit.py", "--batch-size", "64"]),
    "unet": ("rtx3060", ["unet.py", "--train_batch_size", "32"]),
    "lora-1b": ("rtx3060", ["lora.py", "--batch-size", "8"]),
    "lora-7b": ("rtx4090", ["lora.py", "--model", "7b", "--dtype", "bfloat16", "--batch-size", "4", "--length", "2048"]),
}
SAME = 0.01  # of the step's time: the host's part differs from run to run
MOST_PARTS = 32  # as in src/search/advise_choices.cc


def advice_for(gpucast, python, gpu, words, cache):
    done = subprocess.run(
        [gpucast, "advise", "--gpu", gpu, "--seconds", "0", "--cache", str(cache), "--format", "json", "--", python, *words],
        cwd=SCRIPTS,
        capture_output=True,
        text=True,
    )
    if done.returncode == 2:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def axis_of(what_if):
    kind = what_if.partition(":")[0]
    optimizers = ("fused", "no-foreach", "optimizer-in-backward", "offload-optimizer", "8bit-optimizer", "factored-optimizer")
    return "optimizer" if kind in optimizers else kind


def combinations(advice, samples):
    """Lists of what-ifs: every combination of the answer's changes, without checkpoints of some modules only."""
    axes = {"micro-batch": {"": None}}
    for parts in (2**power for power in range(1, MOST_PARTS.bit_length())):
        if samples % parts == 0:
            axes["micro-batch"][f"micro-batch:{parts}"] = None
    without_effect_alone = [entry["what"] for entry in advice["left_out"] if entry["why"].startswith("it changes neither")]
    for what_ifs in [*(point["what_ifs"] for point in advice["points"]), *([what] for what in without_effect_alone)]:
        for what_if in what_ifs:
            if "=" not in what_if:
                axes.setdefault(axis_of(what_if), {"": None})[what_if] = None
    each = [[what_if for what_if in combination if what_if] for combination in itertools.product(*axes.values())]
    return [what_ifs for what_ifs in each if not contradict(what_ifs)]


def contradict(what_ifs):
    return "optimizer-in-backward" in what_ifs and any(what_if.startswith("micro-batch:") for what_if in what_ifs)


def measured(gpucast, python, gpu, words, lists_of_what_ifs, folder):
    """[run] of those that were captured: what-ifs, memory, time of a step with every batch in time (as advise compares) and its samples."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [
        {
            "name": " ".join(what_ifs) or "as it is",
            "command": [python, *words],
            "gpu": gpu,
            "folder": str(SCRIPTS),
            "what_if": what_ifs,
            "output": f"{folder}/{'+'.join(what_ifs).replace(':', '-') or 'as-it-is'}.gpucast",
        }
        for what_ifs in lists_of_what_ifs
    ]
    lines = jobs.run(gpucast, wanted, folder / "results.jsonl", at_once=2)
    out = []
    for job in wanted:
        report = lines[job["name"]]["report"]
        if report is None or not all(what_if["acted"] for what_if in report["what_if"]):
            continue
        timed = subprocess.run(
            [gpucast, "time", job["output"], "--gpu", gpu, "--format", "json"], capture_output=True, text=True, check=True
        )
        time = json.loads(timed.stdout)
        loader = time.get("loader") or {}
        out.append(
            {
                "what_ifs": job["what_if"],
                "reserved_bytes": report["peak"]["reserved_bytes"],
                "device_bytes": report["device"]["expected_bytes"],
                "verdict": report["verdict"],
                "step_ns": (loader.get("step_without") or time["step"])["expected_ns"],
                "samples": time["samples"],
            }
        )
    return out


def add_time_of_a_sample(runs, samples):
    """A step of a batch in parts trains the whole batch, but its forward sees one part. Only half the batch is another batch."""
    for run in runs:
        own = run["samples"] if "half-batch" in run["what_ifs"] else samples
        run["sample_ns"] = run["step_ns"] / max(own, 1)


def key_of(what_ifs):
    return tuple(sorted(what_ifs))


def judge(advice, points, combined):
    """Sentences on what is wrong; none: all is well."""
    wrong = []
    again = {key_of(run["what_ifs"]): run for run in points}
    for point in advice["points"]:
        run = again.get(key_of(point["what_ifs"]))
        if run is None:
            wrong.append(f"{point['what_ifs']}: could not be run again")
        elif not point["settings"] and run["reserved_bytes"] != point["peak_reserved_bytes"]:
            wrong.append(f"{point['what_ifs']}: {point['peak_reserved_bytes']} bytes reserved, again {run['reserved_bytes']}")
    for point in advice["points"]:
        own = again.get(key_of(point["what_ifs"]))
        if own is None or not point["on_front"]:
            continue
        for run in combined:
            less = run["device_bytes"] < point["device_expected_bytes"] * (1 - SAME)
            if less and run["sample_ns"] < own["sample_ns"] * (1 - SAME):
                wrong.append(f"{point['what_ifs']} is beaten by {run['what_ifs']}")
    best = advice["points"][advice["best"]] if advice["best"] is not None else None
    best_run = again.get(key_of(best["what_ifs"])) if best else None
    for run in combined:
        if run["verdict"] == "fits" and (best_run is None or run["sample_ns"] < best_run["sample_ns"] * (1 - SAME)):
            wrong.append(f"{run['what_ifs']} fits and is faster than the best, {best and best['what_ifs']}")
    return wrong


def row_of(name, gpu, words, advice, combined, everything, wrong):
    best = advice["points"][advice["best"]] if advice["best"] is not None else None
    return {
        "case": name,
        "command": shlex.join(words),
        "gpu": gpu,
        "as_it_is": advice["points"][0]["verdict"],
        "runs": advice["runs"] + advice["cached_runs"],
        "points": len(advice["points"]),
        "front": sum(point["on_front"] for point in advice["points"]),
        "best": ", ".join(best["what_ifs"]) if best else "none",
        "best_gib": best["device_expected_bytes"] / 2**30 if best else None,
        "combinations": len(combined),
        "possible": len(everything),
        "wrong": wrong,
    }


def table(rows):
    lines = [
        "| script | card | as it is | runs of advise | points, on the front | best | combinations run, of | wrong |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        best = f"`{row['best']}`, {row['best_gib']:.2f} GiB" if row["best_gib"] else "none fits"
        lines.append(
            f"| `{row['command']}` | {row['gpu']} | {row['as_it_is'].replace('_', ' ')} | {row['runs']} | {row['points']}, {row['front']} | {best} "
            f"| {row['combinations']}, {row['possible']} | {len(row['wrong'])} |"
        )
    return "\n".join([*lines, *(f"\n{row['case']}: {sentence}" for row in rows for sentence in row["wrong"])])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", required=True, type=os.path.abspath)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=CASES, help="one case")
    parser.add_argument("--most", type=int, default=200, help="combinations to run by brute force (the first ones; default: 200)")
    parser.add_argument("--page", action="store_true", help="renew docs/results/advise.md with all cases that OUT holds")
    options = parser.parse_args()
    gpucast = jobs.find(options.gpucast)
    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, (gpu, words) in CASES.items():
        if options.only not in (None, name):
            continue
        folder = options.out / name
        folder.mkdir(exist_ok=True)
        advice = advice_for(gpucast, options.python, gpu, words, options.out / "cache")
        (folder / "advice.json").write_text(json.dumps(advice, indent=1))
        listed = {key_of(point["what_ifs"]): point["what_ifs"] for point in advice["points"]}  # one with settings has the same run
        points = measured(gpucast, options.python, gpu, words, list(listed.values()), folder / "points")
        samples = next(run["samples"] for run in points if not run["what_ifs"])
        everything = combinations(advice, samples)
        combined = measured(gpucast, options.python, gpu, words, everything[: options.most], folder / "combined")
        for runs in (points, combined):
            add_time_of_a_sample(runs, samples)
        (folder / "runs.json").write_text(json.dumps({"points": points, "combined": combined}, indent=1))
        wrong = judge(advice, points, combined)
        best = advice["points"][advice["best"]] if advice["best"] is not None else None
        print(
            f"{name} on {gpu}: {len(advice['points'])} points ({sum(point['on_front'] for point in advice['points'])} on the front), "
            f"{len(combined)} of {len(everything)} combinations; best: {shlex.join(best['what_ifs']) if best else 'none'}; wrong: {len(wrong)}"
        )
        (folder / "row.json").write_text(json.dumps(row_of(name, gpu, words, advice, combined, everything, wrong)))
        for sentence in wrong:
            print(f"  {sentence}")
        failed += bool(wrong)
    if options.page:
        rows = [json.loads(path.read_text()) for path in sorted(options.out.glob("*/row.json"))]
        command = "python -m eval.advise.brute_force --python ENV/bin/python --out OUT"
        page.write(PAGE, command, f"{len(rows)} of its {len(CASES)} scripts", {"brute_force": table(rows)})
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
