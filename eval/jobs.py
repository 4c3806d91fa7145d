"""Many `gpucast run`s for the evaluation scripts: one `gpucast batch` that can be continued."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from eval import ROOT

BUILT = ROOT / "build/release/bin/gpucast"
GPUCAST = os.environ.get("GPUCAST_BIN") or (str(BUILT) if BUILT.exists() else "gpucast")


def add_gpucast_option(parser):
    parser.add_argument("--gpucast", default=GPUCAST, help="default: $GPUCAST_BIN, build/release/bin/gpucast of this tree, or on PATH")


def find(gpucast):
    """The command's full path, because jobs may run in other folders."""
    path = shutil.which(gpucast)
    if not path:
        raise SystemExit(f"no gpucast at '{gpucast}'; build it and name it with --gpucast")
    return str(Path(path).resolve())


def versions(python):
    """{package: release} of this Python's training packages. From their metadata: importing them takes seconds, and PyTorch's CUDA build needs libraries."""
    code = "import importlib.metadata as m; print(*(f'{d.metadata[\"Name\"]} {d.version}' for d in m.distributions()), sep='\\n')"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    installed = dict(line.split() for line in reversed(done.stdout.splitlines()))  # the first on the path counts
    return {name: installed[name] for name in ("torch", "torchvision", "transformers") if name in installed}


def gpus(gpucast):
    """The cards that `gpucast gpus` lists."""
    listed = subprocess.run([gpucast, "gpus", "--format", "json"], capture_output=True, text=True, check=True).stdout
    return json.loads(listed)["gpus"]


def run(gpucast, jobs, results=None, at_once=None):
    """{name: line of `gpucast batch`} for these jobs.

    `results`: a file that keeps every line. Jobs in it are not run again, unless the job has changed or had failed; the jobs
    are kept next to it (NAME.jobs). Other jobs' lines stay, so several calls may share a file. None: nothing is kept.
    """
    if results is None:
        with tempfile.TemporaryDirectory(prefix="gpucast_eval_") as folder:
            return run(gpucast, jobs, Path(folder) / "results.jsonl", at_once)
    wanted = {job["name"]: job for job in jobs}
    jobs_file = results.with_name(results.name + ".jobs")
    asked, done = read_lines(jobs_file), read_lines(results)
    kept = {name: line for name, line in done.items() if name not in wanted or is_answer(line, asked.get(name), wanted[name])}
    if len(kept) != len(done):
        write_lines(results, kept.values())
    write_lines(jobs_file, {**asked, **wanted}.values())
    todo = [job for name, job in wanted.items() if name not in kept]
    if todo:
        words = [find(gpucast), "batch", "-", "-o", str(results), *(["--jobs", str(at_once)] if at_once else [])]
        code = subprocess.run(words, input="".join(json.dumps(job) + "\n" for job in todo), text=True).returncode
        done = read_lines(results)
        missing = [job["name"] for job in todo if job["name"] not in done]
        if missing:
            raise SystemExit(f"gpucast batch ended with exit code {code} before {len(missing)} jobs; start the same command again")
    return {name: done[name] for name in wanted}


def is_answer(line, asked, wanted):
    return asked == wanted and (line["status"] != "failed" or out_of_memory(line))


def problem(result):
    """The reason why a job failed; None: it did not."""
    if result["status"] != "failed":
        return None
    error = result["error"] or {}
    printed = (result.get("printed") or "").strip()
    return f"{error.get('code')}: {error.get('message')}" + (f"\n{printed[-3000:]}" if printed else "")


def out_of_memory(result):
    """Did the script run out of memory? A script without room for its first tensor captures nothing, so its message decides."""
    code = (result["error"] or {}).get("code")
    return code == "out_of_memory" or (code == "script_failed" and "OutOfMemoryError" in (result.get("printed") or ""))


def read_lines(path):
    """{name: line} of a JSONL file; a line that was half written is left out."""
    lines = {}
    for text in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if text.endswith("\n") and text.strip():
            line = json.loads(text)
            if "name" not in line:
                raise SystemExit(f"{path} does not hold results of gpucast batch; name another file")
            lines[line["name"]] = line
    return lines


def write_lines(path, lines):
    """Writes all or nothing."""
    fresh = path.with_name("new." + path.name)
    fresh.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    fresh.replace(path)
