#!/usr/bin/env python3
"""Do all ways of measuring a step agree, on a virtual card? Runs each of scripts/ under `gpucast time`, `gpucast run --real-time` and
`--warp`, and prints a table: milliseconds by `gpucast time`, and the difference of each other way from it, in percent. Under --warp the
host is an A100's, so these are compared with `gpucast time --cpu-speed`.

    python -m eval.clock.agree --python ENV/bin/python [--gpucast PATH] [--gpu a100-80] [--only NAME,NAME] [--out FILE] [--markdown docs/results/clock.md]

ENV has tqdm, if that is to be tried. FILE has a line of JSON for each finished script; scripts in it are not run again.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from eval import page
from eval.jobs import add_gpucast_option
from eval.tables import error, markdown_head, signed

SCRIPTS = pathlib.Path(__file__).parent / "scripts"
SHARED = ("measure", "clock_models")
COMMAND = "python -m eval.clock.agree --python PYTHON"
LONG_MS = 20
WAYS = ("events", "do_bench", "benchmark", "wall", "tqdm", "profiler")


def run(command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if result.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)}\n{result.stderr[-2000:]}")
    return result.stdout


def measured(command):
    return json.loads([line for line in run(command).splitlines() if line.startswith("{")][-1])


def on_both_hosts(source, options):
    """What `gpucast time` says of `source`, a capture or `--` and a command, with this machine's host and with an A100's. Without optimizer
    steps this machine's speed is unknown (0): then both are the same."""
    words = [options.gpucast, "time", "--format", "json", "--gpu", options.gpu]
    time = json.loads(run([*words, *source]))
    speed = time["server_speed"]
    return time, json.loads(run([*words, "--cpu-speed", f"{speed:.3f}", *source])) if speed else time


def times_on_both_hosts(command, options, *more):
    """The same of one capture of `command`: a second one may find this machine at another speed."""
    with tempfile.TemporaryDirectory() as folder:
        capture = f"{folder}/capture"
        run([options.gpucast, "run", "--gpu", options.gpu, "-o", capture, *more, "--", *command])
        return on_both_hosts([capture], options)


def one(name, options):
    script = [options.python, str(SCRIPTS / f"{name}.py")]
    gpu = ["--gpu", options.gpu]
    time, server_time = times_on_both_hosts([*script, "--steps-only"], options)
    return {
        "script": name,
        "step_ms": time["step"]["expected_ns"] / 1e6,
        "server_step_ms": server_time["step"]["expected_ns"] / 1e6,
        "bound": time["bound"],
        "unknown_share": time["unknown_share"],
        "real_time": measured([options.gpucast, "run", "--real-time", *gpu, "--", *script]),
        "warp": measured([options.gpucast, "run", "--warp", *gpu, "--", *script]),
    }


def rows_of_all(names, key, rows_of, out):
    """The rows of each name, in their order. Rows in the file `out` are not made again; it gets the others. A row says at `key` whose it is."""
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out and out.exists() else []
    done = {row[key] for row in rows}
    for name in names:
        if name in done:
            continue
        print(name, file=sys.stderr, flush=True)
        found = rows_of(name)
        rows.extend(found)
        if out:
            with out.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in found)
    return [row for name in names for row in rows if row[key] == name]


def table(rows):
    columns = [("real_time", way) for way in WAYS] + [("warp", way) for way in ("events", "wall", "tqdm")]
    columns = [(mode, way) for mode, way in columns if any(row[mode].get(way) is not None for row in rows)]  # ENV may have no tqdm
    lines = [
        markdown_head(["script", "bound", "step ms", *(f"{way}{' (warp)' if mode == 'warp' else ''} %" for mode, way in columns)], words=2)
    ]
    away, long = {column: [] for column in columns}, {column: [] for column in columns}
    for row in rows:
        cells = []
        for mode, way in columns:
            value = row[mode].get(way)
            step_ms = row["server_step_ms" if mode == "warp" else "step_ms"]
            cells.append("" if value is None else signed(error(value, step_ms), 1))
            if value is not None:
                away[mode, way].append(abs(error(value, step_ms)))
                if row["step_ms"] > LONG_MS:
                    long[mode, way].append(away[mode, way][-1])
        lines.append(f"| {row['script']} | {row['bound']} | {row['step_ms']:.2f} | " + " | ".join(cells) + " |")
    for label, of, what in (
        ("median, without sign", statistics.median, away),
        ("worst", max, away),
        (f"worst above {LONG_MS} ms", max, long),
    ):
        cells = [f"{100 * of(values):.1f}" if values else "" for values in what.values()]
        lines.append(f"| {label} | | | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def add_options(parser):
    parser.add_argument("--python", default=sys.executable)
    add_gpucast_option(parser)
    parser.add_argument("--gpu", default="a100-80")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path, help="a page to write the tables into")


def chosen(options, folder, shared):
    """The names of --only, or of all scripts of a folder that are not `shared` by others."""
    return options.only.split(",") if options.only else sorted(path.stem for path in folder.glob("*.py") if path.stem not in shared)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    options = parser.parse_args()
    names = chosen(options, SCRIPTS, SHARED)
    rows = rows_of_all(names, "script", lambda name: [one(name, options)], options.out)
    text = table(rows)
    print(text)
    if options.markdown:
        page.write(options.markdown, COMMAND, f"{len(rows)} scripts", {"agree": text})


if __name__ == "__main__":
    main()
