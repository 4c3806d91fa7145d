"""python -m eval.ranks.vtrain --data DIR --megatron REPOSITORY --python ENV/bin/python --cache OUT

Megatron-LM's own script, captured with the plan of each row of vTrain's sweep, and its predicted step compared with the row's.
"""

import argparse
import random
import statistics
from pathlib import Path

from eval import jobs, tables
from eval.ranks import composed, judge, megatron, plain
from eval.ranks.ask import add_options, ask, options_of, step_s
from eval.ranks.sweeps import vtrain_rows

# Of the rows on several nodes, whose network is half of a DGX's.
CLUSTER = Path(__file__).parent / "vtrain_machine.json"
PARTS = ("gpus", "tp", "dp", "pp", "micro_batch", "hidden")
# As the paper says.
PUBLISHED = "vTrain itself: mean 8.37 % on one node, 14.73 % on several"


def sample(rows, number, seed):
    """Rows of every plan alike: one of each (cards, tp, dp, pp, micro batch) in turn."""
    groups = {}
    shuffled = random.Random(seed).sample(rows, len(rows))
    for row in shuffled:
        groups.setdefault((row.gpus, row.tp, row.dp, row.pp, row.micro_batch, row.hidden), []).append(row)
    order = random.Random(seed).sample(sorted(groups), len(groups))
    found = []
    while len(found) < number and any(groups.values()):
        for key in order:
            if groups[key] and len(found) < number:
                found.append(groups[key].pop())
    return found


ONLY_THE_CARD = 1e6  # a host's speed, with which nothing waits for it


def predict(args, files, row):
    """`gpucast time` with the host of an A100's server instead of this machine's as it was during the capture; and the time of --gap-us."""
    options = options_of(args)
    alone = [ask(args.gpucast, [file], row.card, []) for file in files]
    if args.gap_us:
        options += ["--cpu-speed", str(ONLY_THE_CARD)]
    elif not args.cpu_speed:
        options += ["--cpu-speed", str(args.host * statistics.median(answer["server_speed"] for answer in alone))]
    launches = max(sum(phase["launches"] for phase in answer["by_phase"]) for answer in alone)
    # The gaps of a pipeline's fill are waited for, too.
    gaps_s = launches * args.gap_us / 1e6 * (row.micro_batches + row.pp - 1) / row.micro_batches
    answer = ask(args.gpucast, files, row.card, options)
    return step_s(answer) + gaps_s, answer


def predictions(args, rows, program):
    """{row: predicted seconds} of the rows whose captures succeed, and the rows whose step waits for the host."""
    folder = args.cache / "captures"
    folder.mkdir(parents=True, exist_ok=True)
    found, slow, within = {}, set(), 0
    for number, row in enumerate(rows):
        files, problem = megatron.capture(args.gpucast, row, args.python, program, folder)
        if problem:
            print(f"{megatron.name_of(row)}: {problem}")
            continue
        found[row], answer = predict(args, files[:1] if args.one_rank else files, row)
        if answer["bound"] == "host":
            slow.add(row)
        low_s, high_s = (found[row] * answer["step"][end] / answer["step"]["expected_ns"] for end in ("low_ns", "high_ns"))
        within += low_s <= row.step_s <= high_s
        error = tables.signed(tables.error(found[row], row.step_s), 1)
        times = f"{1e3 * row.step_s:.1f} ms, predicted {1e3 * found[row]:.1f} ({error} %)"
        host = f"GPU {answer['gpu_ns'] / 1e6:.1f}, host {answer['host_ns'] / 1e6:.1f}"
        print(f"{number + 1}/{len(rows)} {megatron.name_of(row)} {times}: {host}", flush=True)
    print(f"{within} of {len(found)} measured steps lie in their predicted interval")
    return found, slow


def report(rows, predicted):
    print(tables.text(("steps", *tables.ERROR_HEAD), judge.error_lines(rows, predicted, PARTS)))
    for name, times in (("gpucast", predicted), ("plain", {row: plain.step_s(row) for row in rows})):
        median, _, tenth, worst = tables.sizes([tables.error(times[row], row.step_s) for row in rows])
        cases, right, loss = judge.choices(rows, times)
        order = judge.spearman([times[row] for row in rows], [row.step_s for row in rows])
        print(
            f"{name}: median {100 * median:.1f} %, 90th {100 * tenth:.1f}, worst {100 * worst:.1f}; Spearman {order:.3f}; "
            f"fastest plan within {100 * judge.WITHIN:.0f} % in {right} of {cases} cases, largest loss {100 * loss:.1f} %"
        )


def small_captures(args, rows, program):
    """{(hidden, tp, micro batch): what gpucast says of its captures}."""
    folder = args.cache / "captures"
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for key, row in sorted({composed.key_of(row): row for row in rows}.items()):
        found[key] = []
        for layers in composed.LAYERS:
            small = composed.captured_row(row, layers)
            files, problem = megatron.capture(args.gpucast, small, args.python, program, folder)
            if problem:
                raise SystemExit(f"{megatron.name_of(small)}: {problem}")
            found[key].append(ask(args.gpucast, files, row.card, options_of(args)))
    return found


def server_launch_s(args, answers):
    """Of an A100's server, for a launch; the median, because a busy machine slows some captures down."""
    return statistics.median(composed.launch_s(one) / (1 if args.cpu_speed else args.host * one["server_speed"]) for one in answers)


def sweeps(args, rows, program):
    """The order of the plans of each model on each number of cards."""
    captured = small_captures(args, rows, program)
    answers = [one for pair in captured.values() for one in pair]
    rate = max(map(composed.bus_rate, answers))
    parts = {key: composed.ends_and_layer(*map(composed.parts_of, pair)) for key, pair in captured.items()}
    launch_s = server_launch_s(args, answers)
    hosts = {f"nothing fitted, {1e6 * launch_s:.0f} us a launch": composed.overlapping(launch_s)}
    if args.gap_us:
        hosts[f"blocking, {args.gap_us} us a launch"] = composed.blocking(args.gap_us / 1e6)
    predicted = {"plain": {row: plain.step_s(row) for row in rows}}
    for name, host in hosts.items():
        predicted[name] = {row: composed.step_s(row, *parts[composed.key_of(row)], rate, host) for row in rows}
    lines = []
    for hidden in sorted({row.hidden for row in rows}):
        for name, times in predicted.items():
            lines.append((hidden, name, *composed.order_cells([row for row in rows if row.hidden == hidden], times)))
    print(tables.text(composed.ORDER_HEAD, lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="has multi_gpu/runs_vtrain.csv")
    megatron.add_options(parser)
    parser.add_argument("--rows", type=int, default=60, help="how many rows, spread over the plans; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--many", action="store_true", help="the rows on several nodes instead of those on one")
    parser.add_argument("--group", help="all plans of one model: HIDDEN,LAYERS,GLOBAL_BATCH,GPUS")
    parser.add_argument(
        "--sweeps",
        action="store_true",
        help="the order of all plans on one node, from two captures for each size; --rows and --seed do not count",
    )
    parser.add_argument(
        "--host", type=float, default=1, help="instead of --cpu-speed: relative to the host of an A100's server that gpucast knows"
    )
    parser.add_argument(
        "--gap-us", type=float, default=0, help="instead: every launch waits this long for the host, as with blocking launches"
    )
    parser.add_argument("--one-rank", action="store_true", help="ask for the first stage alone")
    add_options(parser)
    args = parser.parse_args()
    args.gpucast, args.cache = jobs.find(args.gpucast), args.cache.resolve()
    args.python = args.python.absolute()
    args.machine = args.machine or (str(CLUSTER) if args.many else None)
    rows = [row for row in vtrain_rows(args.data) if (row.gpus > row.gpus_per_node) == args.many]
    program = megatron.checkout(args.megatron, args.cache)
    if args.sweeps:
        sweeps(args, rows, program)
        return
    if args.group:
        wanted = tuple(map(int, args.group.split(",")))
        rows = [row for row in rows if (row.hidden, row.layers, row.global_batch, row.gpus) == wanted]
    elif args.rows:
        rows = sample(rows, args.rows, args.seed)
    predicted, slow = predictions(args, rows, program)
    rows = [row for row in rows if row in predicted]
    for name, some in (
        ("bound by the GPU", [row for row in rows if row not in slow]),
        ("bound by the host", [row for row in rows if row in slow]),
    ):
        print(f"\n{len(some)} rows {name}")
        if some:
            report(some, predicted)
    print("\nall")
    report(rows, predicted)
    print(PUBLISHED)


if __name__ == "__main__":
    main()
