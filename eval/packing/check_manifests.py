#!/usr/bin/env python3
"""Checks the output of `gpucast pack --to` with the schedulers themselves, as far as packages have them.

    python -m eval.packing.check_manifests --gpucast build/release/bin/gpucast          (pip install kubernetes ray)

Kubernetes: each object must come back unchanged from the official client's models; an unknown field would be lost, a field of another
type fails. Ray: started here with the plan's virtual cards; gpucast's program submits the plan's jobs as tasks; each reports its
card and time, and no card may ever hold more memory than it has. Slurm: the shell parses the script, and a replacement for
sbatch must get each job's words back unchanged."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from eval.jobs import add_gpucast_option

MODES = ("mps", "mps-limits", "timeslice")
# The program of a Ray task: reports its time and card.
JOB = 'import json, os, sys, time; a = time.time(); time.sleep(float(sys.argv[2])); print(json.dumps([sys.argv[1], os.environ["CUDA_VISIBLE_DEVICES"], a, time.time()]), file=open(sys.argv[3] + "/" + sys.argv[1], "w"))'


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_gpucast_option(parser)
    parser.add_argument("--jobs", type=int, default=60)
    return parser.parse_args()


def table(count, folder):
    """Jobs of all sizes, as JSON lines; their command leaves a file in `folder`."""
    lines = []
    for i in range(count):
        name = f"job {i} 'x\""
        command = [sys.executable, "-c", JOB, str(i), f"{0.1 + i % 5 / 10}", str(folder)]
        lines.append(
            {"name": name, "memory_gib": 1 + i * 7 % 20, "occupancy": 0.1 + i % 7 / 10, "nvml_utilization": 0.2 + i % 8 / 10,
             "dram": i % 9 / 10, "step_ms": 50, "steps": 100 + i % 9, "cards": 2 if i % 11 == 10 else 1, "command": command}
        )  # fmt: skip
    return lines


def pack(gpucast, jobs, *words):
    text = "".join(json.dumps(job) + "\n" for job in jobs)
    done = subprocess.run([gpucast, "pack", "-", *words], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"gpucast pack {' '.join(words)}: {done.stderr}")
    return done.stdout


def check_kubernetes(gpucast, jobs):
    import kubernetes

    client = kubernetes.client.ApiClient()
    kinds = {"Job": kubernetes.client.V1Job, "ConfigMap": kubernetes.client.V1ConfigMap}
    count = 0
    for scheduler in ("kubernetes", "hami", "kai", "volcano"):
        for mode in (*MODES, "mig") if scheduler == "kubernetes" else MODES:
            words = ["--gpus", "4xa100-80", "--mode", mode, "--to", scheduler, "--image", "train:1"]
            for item in json.loads(pack(gpucast, jobs, *words))["items"]:
                back = client.sanitize_for_serialization(kinds[item["kind"]].from_dict(item))
                assert without_empty(back) == without_empty(item), (scheduler, mode, item, back)
                count += 1
    return count


def without_empty(value):
    if isinstance(value, dict):
        return {key: without_empty(one) for key, one in value.items() if one not in ({}, None)}
    return [without_empty(one) for one in value] if isinstance(value, list) else value


def check_ray(gpucast, jobs, folder):
    import ray

    cards = 4
    text = pack(gpucast, jobs, "--gpus", f"{cards}xp40", "--to", "ray")
    scope = {"__name__": "plan"}
    exec(compile(text, "plan.py", "exec"), scope)
    line = next(line for line in text.splitlines() if "ray start" in line)
    capacity_mib = json.loads(line.split("--resources='")[1].rstrip("'"))["p40-mib"] / cards
    ray.init(num_cpus=32, num_gpus=cards, resources={"p40-mib": capacity_mib * cards}, include_dashboard=False, logging_level="ERROR")
    codes = ray.get([scope["run"].options(**options).remote(command) for options, command in scope["JOBS"]])
    ray.shutdown()
    assert codes == [0] * len(jobs), codes
    mib = {job["command"][3]: job["memory_gib"] * 1024 for job in jobs}
    runs = [json.loads(path.read_text()) for path in folder.iterdir()]
    assert len(runs) == len(jobs)
    most, together = 0, 0
    for _, devices, begin, _ in runs:
        for card in devices.split(","):
            here = [name for name, other, start, end in runs if card in other.split(",") and start <= begin < end]
            together = max(together, len(here))
            most = max(most, sum(mib[name] for name in here))
    assert together > 1 and most <= capacity_mib, (together, most, capacity_mib)
    return len(runs), together, most / capacity_mib


def check_slurm(gpucast, jobs):
    for mode in MODES:
        script = pack(gpucast, jobs, "--gpus", "4xp40", "--mode", mode, "--to", "slurm")
        stand_in = "sbatch() { for word; do case $word in --wrap=*) eval \"set -- ${word#--wrap=}\"; printf '%s\\0' \"$@\"; printf '\\n';; esac; done; }\n"
        done = subprocess.run(["sh", "-c", stand_in + script], capture_output=True, text=True, check=True)
        assert [line.split("\0")[:-1] for line in done.stdout.splitlines()] == [job["command"] for job in jobs], mode
    return len(jobs) * len(MODES)


def main():
    args = parse_args()
    with tempfile.TemporaryDirectory(prefix="check_manifests_") as folder:
        jobs = table(args.jobs, Path(folder))
        print(f"Kubernetes: {check_kubernetes(args.gpucast, jobs)} objects equal to the client's models")
        print(f"Slurm: {check_slurm(args.gpucast, jobs)} commands whole")
        count, together, most = check_ray(args.gpucast, jobs, Path(folder))
        print(f"Ray: {count} tasks done, up to {together} on a card at once, at most {100 * most:.1f} % of its memory")


if __name__ == "__main__":
    main()
