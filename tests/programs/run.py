#!/usr/bin/env python3
"""The usual kinds of programs, each under `gpucast run` to its own end: does it end, do the report's peaks equal PyTorch's own
counters on every rank and device, and does anything remain?

run.py --gpucast build/release/bin/gpucast --python ENV/bin/python [--only trainer,ddp] [--rows FILE] [--markdown docs/reference/compatibility.md]
"""

import argparse
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from page import markdown
from programs import PROGRAMS

HERE = Path(__file__).resolve().parent
PEAKS = re.compile(r"^(?:\[[^\]]*\]:)?@(\d+)\.(\d+)=(\d+),(\d+)$", re.MULTILINE)
GPUCAST_SAYS = re.compile(r"^gpucast: (?!the capture )(.*)$", re.MULTILINE)
EXIT_FAILED = 2


@functools.cache
def version_of(python, package):
    code = f"from importlib import metadata; print(metadata.version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def processes_with(marker):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if marker.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def left_behind(program, marker, temporary, shared_before, said):
    """Processes, shared memory, files. Files that gpucast reports (the capture of a failed script) do not count."""
    for _ in range(50):
        processes = processes_with(marker)
        if not processes:
            break
        time.sleep(0.1)
    left = [f"process {Path(f'/proc/{pid}/comm').read_text().strip()}" for pid in processes if Path(f"/proc/{pid}").exists()]
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    shared = set(os.listdir("/dev/shm")) - shared_before
    for _ in range(100):  # others on this machine use it too
        shared &= set(os.listdir("/dev/shm"))
        if not shared:
            break
        time.sleep(0.1)
    left += [f"/dev/shm/{name}" for name in sorted(shared)]
    names = [path.name for path in sorted(temporary.iterdir())]
    return left + [f"$TMPDIR/{name}" for name in names if not re.match(program.leaves, name) and f"is in {temporary / name}" not in said]


def peaks_of(report):
    """(rank, device) -> (allocated, reserved), in bytes."""
    if "ranks" in report and report["ranks"]:
        return {(one["rank"], one["device"]): (one["allocated_bytes"], one["reserved_bytes"]) for one in report["ranks"]}
    peak = report["peak"]
    return {None: (peak["allocated_bytes"], peak["reserved_bytes"])}


def judge(program, code, out, err):
    """The row of a program that ended normally."""
    said = GPUCAST_SAYS.findall(err)
    row = {"code": code, "says": said[-1] if said else ""}
    if program.message:
        found = re.search(program.message, err + out)
        return {**row, "outcome": "message" if code == EXIT_FAILED and found else "failed", "says": found[0] if found else row["says"]}
    if code not in (0, 1):
        raised = [line for line in err.splitlines() if re.match(r"(\[rank\d+\]: ?)?[\w.]*(Error|Exception|Interrupt)\b", line)]
        return {**row, "outcome": "failed", "problem": (raised or said or err.strip().splitlines() or ["?"])[-1][:200]}
    report = json.loads(out)
    reported = peaks_of(report)
    own = {(int(a), int(b)): (int(c), int(d)) for a, b, c, d in PEAKS.findall(err)}
    if None in reported and len(own) == 1:
        own = {None: next(iter(own.values()))}
    judged = report["peak"]
    row |= {
        "outcome": "equal" if own == reported else "differs",
        "ranks": len(reported),
        "allocated": judged["allocated_bytes"],
        "reserved": judged["reserved_bytes"],
        "steps": report["steps"],
        "warnings": sorted({warning["code"] for warning in report["warnings"]}),
    }
    if own != reported:
        row["problem"] = f"own {sorted(own.items(), key=str)}, reported {sorted(reported.items(), key=str)}"[:400]
    if program.steps is not None and report["steps"] != program.steps:
        row |= {"outcome": "steps", "problem": f"{report['steps']} steps seen, {program.steps} taken"}
    return row


def unknown_work(gpucast, capture):
    """The share of the GPU's time in work of unknown kind, and the operators that take most of it: (name, share)."""
    done = subprocess.run([gpucast, "time", str(capture), "--format", "json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        return {"unknown": None, "unknown_operators": [], "time_says": done.stderr.strip()[:200]}
    card = json.loads(done.stdout)["cards"][0]
    operators = sorted(((one["name"], round(one["share"], 4)) for one in card["unknown_operators"]), key=lambda one: -one[1])
    return {"unknown": card["unknown_share"], "unknown_operators": operators[:5]}


def usual_environment(python_path, programs, temporary, cache, marker):
    """Of a program under test: nothing is downloaded, and everything that it keeps is in `temporary` and `cache`."""
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
        "PYTHONPATH": ":".join(map(str, python_path)),
        "TMPDIR": str(temporary),
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(cache),
        "GPUCAST_PROGRAM": marker.partition("=")[2],
    }


def ended(program, command, folder, environment, out, err):
    """Runs the command, and judges it: a part of its row. `out`, `err`: files for what it prints."""
    started = time.monotonic()
    with open(out, "w") as stdout, open(err, "w") as stderr:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        try:
            code = process.wait(program.limit)
        except subprocess.TimeoutExpired:
            code = None
            process.kill()
            process.wait()
    seconds = {"seconds": round(time.monotonic() - started)}
    if code is None:
        return seconds | {"outcome": "hangs", "problem": f"more than {program.limit} s"}
    return seconds | judge(program, code, out.read_text(), err.read_text(errors="replace"))


def run(options, program):
    row = {"name": program.name, "group": program.group}
    versions = {package: version_of(options.python, package) for package in ("torch", *program.packages)}
    row["versions"] = versions
    if missing := [package for package, version in versions.items() if version is None]:
        return {**row, "outcome": "absent", "problem": f"not installed: {', '.join(missing)}"}
    temporary = Path(tempfile.mkdtemp(prefix="programs-"))
    folder = temporary / "job"
    inner = temporary / "tmp"
    folder.mkdir()
    inner.mkdir()
    marker = f"GPUCAST_PROGRAM={uuid.uuid4().hex}"
    environment = usual_environment([HERE / "scripts"], [Path(options.python).parent], inner, options.cache, marker)
    environment["YOLO_CONFIG_DIR"] = options.cache
    words = [word.replace("SCRIPTS", str(HERE / "scripts")).replace("GPUCAST", options.gpucast) for word in program.command]
    capture = temporary / "capture.gpucast"
    under = [options.gpucast, "run", "--steps", "1000", "--format", "json", "-o", str(capture), *program.options, "--"]
    command = words if program.whole else [*under, *words]
    shared_before = set(os.listdir("/dev/shm"))
    out, err = temporary / "out", temporary / "err"
    row |= ended(program, command, folder, environment, out, err)
    text = err.read_text(errors="replace")
    if row["outcome"] in ("equal", "steps", "differs"):
        row |= unknown_work(options.gpucast, capture)
    row["left"] = left_behind(program, marker, inner, shared_before, text)
    if options.logs:
        Path(options.logs).mkdir(parents=True, exist_ok=True)
        (Path(options.logs) / f"{re.sub(r'[^a-z0-9]+', '-', program.name.lower())}.log").write_text(text)
    shutil.rmtree(temporary)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpucast")
    parser.add_argument("--python")
    parser.add_argument("--only", help="programs in whose name or group one of these words is, separated by commas")
    parser.add_argument("--again", action="store_true", help="also those that have a row")
    parser.add_argument("--rows", help="keep results in this file, and continue from it")
    parser.add_argument("--releases", help="rows of releases.py, for the page")
    parser.add_argument("--logs", help="keep the programs' output in this folder")
    parser.add_argument("--markdown", help="write the page here")
    parser.add_argument("--cache", default=os.path.join(tempfile.gettempdir(), "gpucast-programs-cache"), help="for what compilers keep")
    options = parser.parse_args()
    rows = {}
    if options.rows and os.path.exists(options.rows):
        rows = {row["name"]: row for row in map(json.loads, Path(options.rows).read_text().splitlines())}
    words = [word.lower() for word in (options.only or "").split(",") if word]
    wanted = [one for one in PROGRAMS if not words or any(word in f"{one.group} {one.name}".lower() for word in words)]
    if options.gpucast:
        options.gpucast, options.python = os.path.abspath(options.gpucast), os.path.abspath(options.python)
    for program in wanted if options.gpucast else ():
        if program.name in rows and not options.again:
            continue
        rows[program.name] = row = run(options, program)
        print(json.dumps(row), flush=True)
        if options.rows:
            Path(options.rows).write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    order = {program.name: place for place, program in enumerate(PROGRAMS)}
    kept = sorted((row for row in rows.values() if row["name"] in order), key=lambda row: order[row["name"]])
    if options.markdown:
        releases = []
        if options.releases and os.path.exists(options.releases):
            releases = [json.loads(line) for line in Path(options.releases).read_text().splitlines()]
        Path(options.markdown).write_text(markdown(kept, releases))
    return 0 if all(row["outcome"] in ("equal", "message") for row in kept) else 1


if __name__ == "__main__":
    sys.exit(main())
