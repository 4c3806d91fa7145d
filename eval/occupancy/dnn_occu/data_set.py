"""DNN-occu's data set, made again without a GPU: Table II's models in random configurations on its three cards. One line per run in OUT/rows.jsonl,
graphs next to it. Finished runs are not repeated. The occupancies are computed (`gpucast occupancy`), not measured.

    python -m eval.occupancy.dnn_occu.data_set --python .venv/torch-2.6.0/bin/python --out build/dnn_occu/data
"""

import argparse
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from eval.jobs import add_gpucast_option
from eval.occupancy.dnn_occu.dnn_occu_models import IMAGE, MODELS, SEQUENCE, TEXT

CARDS = ("a100-80", "rtx2080ti", "p40")


def configurations(model, count, seed):
    """Table II's ranges, each at most once."""
    rng = random.Random(f"{seed} {model}")
    found = []
    while len(found) < count:
        if model in SEQUENCE:
            one = {"batch": 8 * rng.randint(16, 64), "length": 8 * rng.randint(2, 16)}
        elif model in TEXT:
            one = {"batch": 4 * rng.randint(4, 32), "length": rng.randint(20, 512)}
        elif model in IMAGE:
            one = {"batch": 4 * rng.randint(4, 32), "channels": rng.randint(1, 10)}
        else:
            one = {"batch": 4 * rng.randint(4, 32)}
        if one not in found:
            found.append(one)
    return found


def name_of(model, configuration, gpu):
    return "-".join([model, *(f"{name}{value}" for name, value in configuration.items()), gpu])


def run(options, model, configuration, gpu):
    name = name_of(model, configuration, gpu)
    graph = options.out / "graphs" / (name + ".json")
    script = [str(Path(__file__).with_name("infer.py")), model]
    script += [word for name, value in configuration.items() for word in (f"--{name}", str(value))]
    done = subprocess.run(
        [options.gpucast, "occupancy", "--format", "json", "--gpu", gpu, "--", options.python, *script],
        env={**os.environ, "GPUCAST_GRAPH": str(graph)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return {"name": name, "problem": done.stderr.strip().splitlines()[-3:]}
    report = json.loads(done.stdout)
    return {
        "name": name,
        "model": model,
        "configuration": configuration,
        "gpu": gpu,
        "occupancy": report["occupancy"]["mean_of_kernels"],
        "launches": report["launches"],
        "sources": report["sources"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_gpucast_option(parser)
    parser.add_argument("--python", required=True, help="with a PyTorch for all three cards (2.6.0), torchvision and transformers")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--configurations", type=int, default=20, help="of each model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    (options.out / "graphs").mkdir(parents=True, exist_ok=True)
    path = options.out / "rows.jsonl"
    there = {json.loads(line)["name"] for line in path.read_text().splitlines()} if path.exists() else set()
    # The nth configuration of all models before the next of any: after a break the data set is smaller, but has all models.
    drawn = {model: configurations(model, options.configurations, options.seed) for model in options.models.split(",")}
    keys = [(model, drawn[model][n], gpu) for n in range(options.configurations) for model in drawn for gpu in CARDS]
    began, made, failed = time.monotonic(), 0, 0
    with path.open("a") as rows, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(run, options, *key) for key in keys if name_of(*key) not in there]
        for future in concurrent.futures.as_completed(waiting):
            row = future.result()
            made += 1
            if "problem" in row:
                failed += 1
                print(f"{row['name']}: {' | '.join(row['problem'])}", file=sys.stderr)
                continue
            rows.write(json.dumps(row) + "\n")
            rows.flush()
            if made % 20 == 0:
                left = (time.monotonic() - began) / made * (len(waiting) - made)
                print(f"{made} of {len(waiting)} runs, {failed} failed, {left:.0f} s to go", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
