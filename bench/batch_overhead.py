#!/usr/bin/env python3
"""The cost of a case of `gpucast batch` beyond the script's own work, over many ResNet-50 and GPT cases.

    ENV/bin/python bench/batch_overhead.py --gpucast build/release/bin/gpucast [--cases 100] [--fresh]

A script's own work: the same script in a child of a warm Python that has imported PyTorch (and torch._dynamo, like the batch) on the
virtual GPU's libraries, nothing recorded. The batch's time is the whole command's, with the start of its fork server. One case at a
time, on one side, then on the other. The answers are checked: the peaks in the report must equal those that the script itself reads without us;
with --fresh each whole report must also equal the report of a separate process. Returns non-zero only if an answer is wrong; times are for reading.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from run_overhead import BARE, MIB, ROOT, STEPS, cpu_seconds, peaks_printed, profile_text

# Runs each incoming script in a separate child: wall and CPU seconds, and its output.
WARM = (
    BARE.partition("if script:")[0]
    + """
import json, resource, time, torch._dynamo
for line in sys.stdin:
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    child = os.fork()
    if child == 0:
        output = os.open(profile + ".out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        sys.argv = json.loads(line)
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps([wall, cpu, status, open(profile + ".out").read()]), flush=True)
"""
)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpucast", default=os.environ.get("GPUCAST_BIN", "gpucast"), help="the gpucast command")
    parser.add_argument("--gpu", default="rtx3060")
    parser.add_argument("--cases", type=int, default=100, help="half of them ResNet-50, half GPT (default %(default)s)")
    parser.add_argument("--fresh", action="store_true", help="compare each report with the report of a separate process (slow)")
    return parser.parse_args()


def cases(count):
    """{name: words}: batch sizes and shapes, all different."""
    all_cases = {}
    for i in range(1, count // 2 + 1):
        all_cases[f"resnet {i}"] = ["train_resnet50.py", "--batch", str(i)]
        all_cases[f"gpt {i}"] = ["train_gpt.py", "--batch", str(1 + i % 10), "--sequence", str(64 * (1 + i // 10))]
    examples = ROOT / "examples"
    return {name: [str(examples / script), *options, "--steps", str(STEPS)] for name, (script, *options) in all_cases.items()}


def side_by_side(args, scripts, folder):
    """({name: (wall, CPU, peaks)} of the scripts without us, (wall, CPU) of the batch, {name: result}). Each case on one side, then on the
    other, so other work on the machine slows both."""
    library_dir = Path(args.gpucast).resolve().parent.parent / "lib/gpucast"
    profile = folder / "profile"
    profile.write_text(profile_text(args))
    (folder / "session.json").write_text(json.dumps({"library_dir": str(library_dir)}))
    environment = dict(os.environ, GPUCAST_SESSION=str(folder), GPUCAST_VGPU_PROFILE=str(profile))
    command = [sys.executable, "-c", WARM, str(library_dir), str(profile)]
    found, results, seconds, cpu = {}, {}, 0.0, cpu_seconds()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as warm:
        ours = subprocess.Popen([args.gpucast, "batch", "-", "--jobs", "1", "--steps", str(STEPS)], stderr=subprocess.DEVNULL, **pipes)
        for name, words in scripts.items():
            wall, own_cpu, status, printed = json.loads(ask(warm, words))
            if status != 0:
                sys.exit(f"batch_overhead.py: {name} failed without us")
            found[name] = (wall, own_cpu, peaks_printed(printed))
            started = time.monotonic()
            results[name] = json.loads(ask(ours, job_of(args, name, words)))
            seconds += time.monotonic() - started
        started = time.monotonic()
        ours.stdin.close()
        ours.wait()
        ours.stdout.close()
        seconds += time.monotonic() - started
        cpu = cpu_seconds() - cpu  # of finished children: not of the other side
        warm.stdin.close()
    return found, (seconds, cpu), results


def ask(process, question):
    process.stdin.write(json.dumps(question) + "\n")
    process.stdin.flush()
    return process.stdout.readline()


def job_of(args, name, words):
    return {"name": name, "command": [sys.executable, *words], "gpu": args.gpu}


def fresh_processes(args, scripts):
    """((wall, CPU) of a whole batch of separate processes, {name: result})."""
    jobs = "".join(json.dumps(job_of(args, name, words)) + "\n" for name, words in scripts.items())
    command = [args.gpucast, "batch", "-", "--jobs", "1", "--steps", str(STEPS), "--fresh"]
    cpu, started = cpu_seconds(), time.monotonic()
    done = subprocess.run(command, input=jobs, capture_output=True, text=True)
    seconds = time.monotonic() - started, cpu_seconds() - cpu
    if done.returncode not in (0, 1):
        sys.exit(f"batch_overhead.py: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return seconds, {result["name"]: result for result in map(json.loads, done.stdout.splitlines())}


def main():
    args = parse_args()
    scripts = cases(args.cases)
    with tempfile.TemporaryDirectory(prefix="batch_overhead_") as folder:
        own, seconds, results = side_by_side(args, scripts, Path(folder))
    count = len(scripts)
    wrong = [] if set(results) == set(scripts) else ["names"]
    for name, result in results.items():
        peak = result["report"]["peak"]
        found = (f"{peak['allocated_bytes'] / MIB:.1f}", f"{peak['reserved_bytes'] / MIB:.1f}")
        if found != own[name][2] or not result["forked"]:
            wrong.append(f"{name}: {found} MiB allocated, reserved; without us {own[name][2]}; forked {result['forked']}")
    plain = [sum(case[kind] for case in own.values()) for kind in (0, 1)]
    over = [(seconds[kind] - plain[kind]) / count for kind in (0, 1)]
    print(f"{count} cases, {STEPS} steps each, one at a time; wall (CPU) seconds a case")
    print(f"  the script's own work   {plain[0] / count:.2f} ({plain[1] / count:.2f})")
    print(f"  in a batch              {seconds[0] / count:.2f} ({seconds[1] / count:.2f})")
    print(f"  beyond its own work     {over[0]:.2f} ({over[1]:.2f})   {'within' if over[0] <= 0.6 else 'over'} the limit of 0.6")
    if args.fresh:
        fresh_seconds, fresh = fresh_processes(args, scripts)
        print(f"  in processes of its own {fresh_seconds[0] / count:.2f} ({fresh_seconds[1] / count:.2f})")
        same = sum(fresh[name]["report"] == results[name]["report"] for name in scripts)
        print(f"  reports equal to those of processes of their own: {same} of {count}")
        wrong += [f"{name}: another report" for name in scripts if fresh[name]["report"] != results[name]["report"]]
    for line in wrong:
        print(f"WRONG {line}")
    print(f"answers: {'all equal' if not wrong else f'{len(wrong)} wrong'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
