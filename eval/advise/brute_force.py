#!/usr/bin/env python3
"""`gpucast advise` on public examples' scripts, compared with a brute-force search over the same choices.

    python -m eval.advise.brute_force --python ENV/bin/python --out OUT [--only gpt2-medium] [--most 200]

ENV has torch, transformers, peft, timm and diffusers. For each case: the search until it is done; every one of its points again, which must
need the same memory; and all combinations of the changes that its single runs left (checkpoints: none and all). No combination may be
better than a point of the front: less memory and less time a sample, by more than 1 %. OUT keeps the answers and the runs.
"""

import argparse
import itertools
import json
import shlex
import subprocess
import tempfile
from pathlib import Path

from eval import jobs

SCRIPTS = Path(__file__).parent / "scripts"
CASES = {
    "gpt2-medium": ("rtx3060", ["gpt.py", "--model", "gpt2-medium", "--batch-size", "8"]),
    "vit-large": ("rtx3060", ["vit.py", "--batch-size", "64"]),
    "unet": ("rtx3060", ["unet.py", "--train_batch_size", "32"]),
    "lora-1b": ("rtx3060", ["lora.py", "--batch-size", "8"]),
    "lora-7b": ("rtx4090", ["lora.py", "--model", "7b", "--dtype", "bfloat16", "--batch-size", "4", "--length", "2048"]),
}
SAME = 0.01  # of the step's time: the host's part differs from run to run


def advice_for(gpucast, python, gpu, words):
    done = subprocess.run(
        [gpucast, "advise", "--gpu", gpu, "--seconds", "0", "--format", "json", "--", python, *words],
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


def combinations(advice):
    """Lists of what-ifs: every combination of the answer's changes, without checkpoints of some modules only."""
    axes = {}
    for point in advice["points"]:
        for what_if in point["what_ifs"]:
            if "=" not in what_if:
                axes.setdefault(axis_of(what_if), {"": None})[what_if] = None
    return [[what_if for what_if in combination if what_if] for combination in itertools.product(*axes.values())]


def measured(gpucast, python, gpu, words, lists_of_what_ifs, results):
    """[(what-ifs, reserved, device, ns a sample, verdict)] of the runs that were captured."""
    with tempfile.TemporaryDirectory(prefix="gpucast_eval_") as folder:
        wanted = [
            {
                "name": " ".join(what_ifs) or "as it is",
                "command": [python, *words],
                "gpu": gpu,
                "folder": str(SCRIPTS),
                "what_if": what_ifs,
                "output": f"{folder}/{number}.gpucast",
            }
            for number, what_ifs in enumerate(lists_of_what_ifs)
        ]
        lines = jobs.run(gpucast, wanted, None)
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
            step = loader.get("step_without") or time["step"]  # with every batch in time, as advise compares
            sample_ns = step["expected_ns"] / max(time["samples"], 1)
            out.append((job["what_if"], report["peak"]["reserved_bytes"], report["device"]["expected_bytes"], sample_ns, report["verdict"]))
    results.write_text(json.dumps(out))
    return out


def judge(advice, points, combined):
    """Sentences on what is wrong; none: all is well."""
    wrong = []
    again = {tuple(sorted(what_ifs)): (reserved, sample_ns) for what_ifs, reserved, _, sample_ns, _ in points}
    for point in advice["points"]:
        if point["settings"]:
            continue
        reserved = again.get(tuple(sorted(point["what_ifs"])), (None,))[0]
        if reserved != point["peak_reserved_bytes"]:
            wrong.append(f"{point['what_ifs']}: {point['peak_reserved_bytes']} bytes reserved, again {reserved}")
    per_sample = {tuple(sorted(what_ifs)): sample_ns for what_ifs, _, _, sample_ns, _ in points}
    for point in advice["points"]:
        if not point["on_front"]:
            continue
        own_ns = per_sample.get(tuple(sorted(point["what_ifs"])))
        for what_ifs, _, device, sample_ns, _ in combined:
            if own_ns and device < point["device_expected_bytes"] * (1 - SAME) and sample_ns < own_ns * (1 - SAME):
                wrong.append(f"{point['what_ifs']} is beaten by {what_ifs}")
    best = advice["points"][advice["best"]] if advice["best"] is not None else None
    for what_ifs, _, _, sample_ns, verdict in combined:
        if verdict != "fits":
            continue
        if best is None or sample_ns < per_sample[tuple(sorted(best["what_ifs"]))] * (1 - SAME):
            wrong.append(f"{what_ifs} fits and is faster than the best, {best and best['what_ifs']}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=CASES, help="one case")
    parser.add_argument("--most", type=int, default=200, help="combinations to run by brute force (the first ones; default: 200)")
    options = parser.parse_args()
    gpucast = jobs.find(options.gpucast)
    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, (gpu, words) in CASES.items():
        if options.only not in (None, name):
            continue
        advice = advice_for(gpucast, options.python, gpu, words)
        (options.out / f"{name}.json").write_text(json.dumps(advice, indent=1))
        points = measured(
            gpucast,
            options.python,
            gpu,
            words,
            [p["what_ifs"] for p in advice["points"] if not p["settings"]],
            options.out / f"{name}.points.json",
        )
        everything = combinations(advice)[: options.most]
        combined = measured(gpucast, options.python, gpu, words, everything, options.out / f"{name}.combined.json")
        wrong = judge(advice, points, combined)
        best = advice["points"][advice["best"]] if advice["best"] is not None else None
        print(
            f"{name} on {gpu}: {len(advice['points'])} points, {len(combined)} combinations; best: {shlex.join(best['what_ifs']) if best else 'none'}"
        )
        for sentence in wrong:
            print(f"  {sentence}")
        failed += bool(wrong)
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
