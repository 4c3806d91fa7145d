#!/usr/bin/env python3
"""Does a sweep of shapes in one pass find the same times as `gpucast time` on each shape alone? Runs each of sweeps/ under
`gpucast run --warp`, then `gpucast time` on each of its values, and prints a table. Each pass measures all values. The
clock's time of a value is the least of --passes, because other programs on this machine only make a pass longer.

    python -m eval.clock.sweep --python ENV/bin/python [--gpucast PATH] [--gpu a100-80] [--only NAME,NAME] [--out FILE] [--markdown docs/results/clock.md]

FILE has a line of JSON for each value; sweeps in it are not run again.
"""

import argparse
import pathlib
import statistics

from eval import page
from eval.clock.agree import add_options, measured, rows_of_all, times_on_both_hosts
from eval.tables import error, markdown, percent, signed

SWEEPS = pathlib.Path(__file__).parent / "sweeps"
# How each of sweeps/ measures.
WAYS = {
    "adam_parameters": "events",
    "attention_lengths": "Timer",
    "compiled_sizes": "do_bench",
    "conv_batches": "events",
    "embedding_vocabularies": "Timer",
    "gpt_batches": "wall",
    "layer_norm_widths": "do_bench",
    "loss_vocabularies": "wall",
    "matmul_sizes": "events",
    "mlp_widths": "events",
    "residual_images": "wall",
    "softmax_columns": "do_bench",
}
COMMAND = "python -m eval.clock.sweep --python PYTHON"
BAR = 0.02


def alone(command, options):
    """`gpucast time` of one value, with the host of an A100, as under --warp."""
    _, found = times_on_both_hosts(command, options, "--steps", "10")
    return {
        "step_ms": found["step"]["expected_ns"] / 1e6,
        "gpu_ms": found["gpu_ns"] / 1e6,
        "host_ms": found["host_ns"] / 1e6 if found["server_speed"] else None,
        "bound": found["bound"],
    }


def rows_of(name, options):
    """A row for each value. Each pass of the clock measures all values in one process."""
    command = [options.python, str(SWEEPS / f"{name}.py")]
    passes = [measured([options.gpucast, "run", "--warp", "--gpu", options.gpu, "--", *command]) for _ in range(options.passes)]
    return [
        {"sweep": name, "value": value, "passes_ms": [one[value] for one in passes], **alone([*command, "--only", value], options)}
        for value in passes[0]
    ]


def kind(row):
    """What of a step the script measures, and with what of `gpucast time` it can be compared."""
    if WAYS[row["sweep"]] == "do_bench":
        return "do_bench"
    if row["bound"] == "host":
        return "host-bound" if row["host_ms"] else "host unknown"
    return "GPU-bound"


def compared_ms(row):
    """The step. Under do_bench the host launches ahead, during the fill, so only the GPU's part is measured. `gpucast time` finds the host's
    time of training steps only; of a forward, the GPU's part alone can be compared."""
    return row["gpu_ms"] if kind(row) in ("do_bench", "host unknown") else row["step_ms"]


def clock_ms(row):
    return min(row["passes_ms"])


def difference(row):
    return error(clock_ms(row), compared_ms(row))


def table(rows):
    lines = []
    for row in rows:
        ms = [f"{compared_ms(row):.4f}", f"{clock_ms(row):.4f}", f"{1e3 * (clock_ms(row) - compared_ms(row)):+.1f}"]
        lines.append([row["sweep"], row["value"], WAYS[row["sweep"]], kind(row), *ms, signed(difference(row), 1)])
    return markdown(["sweep", "value", "measured by", "kind", "time ms", "clock ms", "more us", "more %"], lines, words=(0, 2, 3))


def summary(rows):
    lines = []
    for name in ("GPU-bound", "host-bound", "host unknown", "do_bench", "all"):
        some = [row for row in rows if name in (kind(row), "all")]
        if some:
            sizes = [abs(difference(row)) for row in some]
            first = [abs(error(row["passes_ms"][0], compared_ms(row))) for row in some]
            within = [sum(size <= BAR for size in of) for of in (sizes, first)]
            lines.append([name, len(some), *within, percent(statistics.median(sizes), 1), percent(max(sizes), 1)])
    return markdown(["kind", "values", f"within {BAR:.0%}", "in the first pass", "median %", "worst %"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(WAYS)
    rows = rows_of_all(names, "sweep", lambda name: rows_of(name, options), options.out)
    print(text := table(rows), short := summary(rows), sep="\n\n")
    if options.markdown:
        page.write(options.markdown, COMMAND, f"{len(rows)} values of {len(names)} sweeps", {"sweep": text, "sweep-summary": short})


if __name__ == "__main__":
    main()
