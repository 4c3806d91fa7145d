#!/usr/bin/env python3
"""Do scripts of several ranks print the step of `gpucast time`? Runs each of rank_scripts/ on 2 and 4 ranks under `gpucast time`,
`gpucast run --real-time` and `--warp`, and prints a table.

    python -m eval.clock.ranks --python ENV/bin/python [--gpucast PATH] [--gpu a100-80] [--only NAME,NAME] [--ranks 2,4] [--out FILE]
        [--markdown docs/results/clock.md]

FILE has a line of JSON for each finished script and number of ranks; these are not run again.
"""

import argparse
import pathlib
import socket
import statistics

from eval import page
from eval.clock.agree import add_options, chosen, measured, on_both_hosts, rows_of_all
from eval.tables import error, markdown_head, signed

SCRIPTS = pathlib.Path(__file__).parent / "rank_scripts"
SHARED = ("measure_ranks",)
COMMAND = "python -m eval.clock.ranks --python PYTHON"
MODES = ("real_time", "warp")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def one(name, ranks, options):
    def command():
        torchrun = [options.python, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", str(free_port())]
        return [*torchrun, str(SCRIPTS / f"{name}.py")]

    def run(mode):
        return measured([options.gpucast, "run", mode, "--gpu", options.gpu, "--", *command()])["wall"]

    time, server_time = on_both_hosts(["--", *command(), "--steps-only"], options)  # a capture's file is one rank
    return {
        "script": name,
        "ranks": ranks,
        "step_ms": time["step"]["expected_ns"] / 1e6,
        "server_step_ms": server_time["step"]["expected_ns"] / 1e6,
        "bound": time["bound"],
        "waiting_share": max(rank["bubble_ns"] / rank["step_ns"] for rank in time["ranks"]),
        "real_time": run("--real-time"),
        "warp": run("--warp"),
    }


def away_percent(row, mode):
    return error(row[mode], row["server_step_ms" if mode == "warp" else "step_ms"])


def table(rows):
    lines = [markdown_head(["script", "ranks", "bound", "longest wait %", "step ms", "real time %", "warp %"], words=3)]
    for row in rows:
        figures = [signed(away_percent(row, mode), 1) for mode in MODES]
        waiting = f"{100 * row['waiting_share']:.1f}"
        lines.append(f"| {row['script']} | {row['ranks']} | {row['bound']} | {waiting} | {row['step_ms']:.2f} | {' | '.join(figures)} |")
    for label, of in (("median, without sign", statistics.median), ("worst", max)):
        figures = [f"{100 * of([abs(away_percent(row, mode)) for row in rows]):.1f}" for mode in MODES]
        lines.append(f"| {label} | | | | | {' | '.join(figures)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--ranks", default="2,4")
    options = parser.parse_args()
    names = chosen(options, SCRIPTS, SHARED)
    counts = [int(count) for count in options.ranks.split(",")]
    rows = rows_of_all(names, "script", lambda name: [one(name, count, options) for count in counts], options.out)
    text = table(rows)
    print(text)
    if options.markdown:
        page.write(options.markdown, COMMAND, f"{len(rows)} runs of {len(names)} scripts", {"ranks": text})


if __name__ == "__main__":
    main()
