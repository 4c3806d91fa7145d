#!/usr/bin/env python3
"""The three examples under several Pythons: those with the same PyTorch release must report the same peaks.

Meant for one environment with NVIDIA's wheels and one without: `make test-nvidia`.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = (["train_resnet50.py", "--batch", "32"], ["train_gpt.py"], ["train_mlp.py"])


def describe(python: str) -> tuple[str, int]:
    """PyTorch's release and how many of NVIDIA's wheels are installed, without importing CUDA libraries."""
    code = (
        "from importlib import metadata as m; "
        "print(m.version('torch'), sum((d.metadata['Name'] or '').startswith('nvidia-') for d in m.distributions()))"
    )
    out = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    return out[0], int(out[1])


def peaks(gpucast: str, python: str, example: list[str]) -> dict:
    command = [
        gpucast,
        "run",
        "--gpu",
        "rtx3060",
        "--cudnn",
        "off",
        "--format",
        "json",
        "--",
        python,
        str(ROOT / "examples" / example[0]),
        *example[1:],
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)}\nexit code {done.returncode}\n{done.stderr}")
    report = json.loads(done.stdout)
    return {key: report["peak"][key] for key in ("allocated_bytes", "reserved_bytes")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpucast", required=True)
    parser.add_argument("python", nargs="+")
    options = parser.parse_args()
    seen: dict[tuple[str, str], dict] = {}
    wrong = 0
    print(f"{'torch':<14}{'NVIDIA wheels':>14}  {'example':<20}{'allocated B':>16}{'reserved B':>16}")
    for python in options.python:
        release, wheels = describe(python)
        for example in EXAMPLES:
            got = peaks(options.gpucast, python, example)
            same = seen.setdefault((release, example[0]), got) == got
            wrong += not same
            print(
                f"{release:<14}{wheels:>14}  {example[0]:<20}{got['allocated_bytes']:>16}{got['reserved_bytes']:>16}{'' if same else '  DIFFERS'}"
            )
    print(f"{wrong} differences")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
