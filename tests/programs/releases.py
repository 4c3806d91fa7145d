#!/usr/bin/env python3
"""The examples' peaks on many PyTorch releases: one release at a time is installed (without NVIDIA's wheels), run and removed.

releases.py --gpucast build/release/bin/gpucast --rows FILE [--only 2.9.1,2.6.0]
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXAMPLES = {
    "ResNet-50, batch 32": ("train_resnet50.py", "--batch", "32"),
    "GPT, batch 16": ("train_gpt.py",),
    "MLP": ("train_mlp.py",),
}
# The newest patch of each minor release, with the torchvision of its time.
RELEASES = {
    "2.15.0": "0.29.2", "2.14.1": "0.29.1", "2.13.0": "0.28.0", "2.12.1": "0.27.1", "2.11.0": "0.26.0", "2.10.0": "0.25.0", "2.9.1": "0.24.1",
    "2.8.0": "0.23.0", "2.7.1": "0.22.1", "2.6.0": "0.21.0", "2.5.1": "0.20.1", "2.4.1": "0.19.1", "2.3.1": "0.18.1", "2.2.2": "0.17.2",
    "2.1.2": "0.16.2", "2.0.1": "0.15.2",
}  # fmt: skip


def python_of(interpreter):
    return subprocess.run(
        [interpreter, "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True
    ).stdout.strip()


def install(folder, interpreter, release):
    """PyTorch alone, then all packages that its metadata asks for, except NVIDIA's."""
    subprocess.run([interpreter, "-m", "venv", folder], check=True, capture_output=True)
    python = f"{folder}/bin/python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    vision = f"torchvision=={RELEASES[release]}" if release in RELEASES else "torchvision"
    subprocess.run([*pip, "--no-deps", f"torch==={release}", vision], check=True, capture_output=True, text=True)
    code = "from importlib.metadata import requires; print('\\n'.join(requires('torch') or []))"
    lines = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.splitlines()
    needs = [line for line in lines if not re.match(r"nvidia-|cuda-", line) and "extra ==" not in line]
    old = tuple(map(int, release.split(".")[:2])) < (2, 3)
    subprocess.run(
        [*pip, *needs, "numpy<2" if old else "numpy", "pillow", "requests", "setuptools<80"], check=True, capture_output=True, text=True
    )
    return python


def peaks(gpucast, python, example):
    command = [gpucast, "run", "--gpu", "rtx3060", "--cudnn", "off", "--steps", "1000", "--format", "json", "--", python]
    script = [str(HERE / "scripts/counted.py"), str(HERE.parent.parent / "examples" / example[0]), *example[1:]]
    done = subprocess.run([*command, *script], capture_output=True, text=True, timeout=300)
    if done.returncode not in (0, 1):
        said = re.findall(r"^gpucast: (.*)$", done.stderr, re.MULTILINE)
        return {"problem": (said or done.stderr.strip().splitlines() or ["?"])[-1][:200], "code": done.returncode}
    peak = json.loads(done.stdout)["peak"]
    own = re.findall(r"^@0\.0=(\d+),(\d+)$", done.stderr, re.MULTILINE)
    found = {"allocated": peak["allocated_bytes"], "reserved": peak["reserved_bytes"]}
    return {**found, "equal": [(str(found["allocated"]), str(found["reserved"]))] == own}


def row_of(options, release, interpreter):
    folder = tempfile.mkdtemp(prefix="release-")
    row = {"torch": release, "cuda": "", "python": python_of(interpreter), "peaks": {}}
    try:
        python = install(folder, interpreter, release)
        version = next(Path(folder).glob("lib/python3*/site-packages/torch/version.py")).read_text()
        row["cuda"] = (re.search(r"^cuda\b.*=\s*'([^']+)'", version, re.MULTILINE) or [None, "none"])[1]
        for name, example in EXAMPLES.items():
            row["peaks"][name] = peaks(options.gpucast, python, example)
    except subprocess.CalledProcessError as error:
        row["problem"] = ((error.stderr or "").strip().splitlines() or [str(error)])[-1][:200]
    except subprocess.TimeoutExpired as error:
        row["problem"] = f"more than {error.timeout} s"
    finally:
        shutil.rmtree(folder)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpucast", required=True)
    parser.add_argument("--python", default=sys.executable, help="the interpreters to make environments with, separated by commas")
    parser.add_argument("--only", help="these releases, separated by commas")
    parser.add_argument("--rows", required=True, help="keep results in this file, and continue from it")
    options = parser.parse_args()
    options.gpucast = os.path.abspath(options.gpucast)
    rows = [json.loads(line) for line in Path(options.rows).read_text().splitlines()] if os.path.exists(options.rows) else []
    for release in options.only.split(",") if options.only else RELEASES:
        for interpreter in options.python.split(","):
            started = time.monotonic()
            done = next((one for one in rows if (one["torch"], one["python"]) == (release, python_of(interpreter))), None)
            if done and not options.only:
                continue
            rows = [one for one in rows if one is not done]
            row = row_of(options, release, interpreter)
            rows.append({**row, "seconds": round(time.monotonic() - started)})
            print(json.dumps(rows[-1]), flush=True)
            Path(options.rows).write_text("".join(json.dumps(one) + "\n" for one in rows))
    good = [row for row in rows if all(one.get("equal") for one in row["peaks"].values()) and row["peaks"]]
    return 0 if len(good) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
