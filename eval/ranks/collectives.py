"""gpucast's times of collectives compared with nccl-tests on one node and on two.

    python -m eval.ranks.collectives --data DIR [--misses 20] [--page]

DIR has multi_gpu/collectives_one_node.csv.gz and collectives_nodes.csv.gz. --constants evaluates the constants of eval.ranks.fit_collectives,
with --left-out for the machines that it did not fit.
"""

import argparse
import collections
import json
import pathlib

from eval import ROOT, jobs, page
from eval import tables as t
from eval.ranks import rows as measured

PAGE = ROOT / "docs/results/collectives.md"
COMMAND = "python -m eval.ranks.collectives --data DIR --page"
FASTEST_SLOT = 100e9  # bytes a second
# By the built-in constants: NVLink on the first four, cards in slots on the next two (l40s: two and four cards), the network on the logs.
FITTED = "a100_sxm,h200_sxm,b200_sxm,gb300,l40s,rtx4090 node,p4de,a3-mega,nd-h100-v5,dgx-h100"
HEAD = ("machine", "nodes", "collective", "fitted", *t.ERROR_HEAD, "plain median", "plain 90th")


def read_rows(data):
    found, skipped = [], collections.Counter()
    for read, name in ((measured.one_node, "collectives_one_node"), (measured.several_nodes, "collectives_nodes")):
        path = data / "multi_gpu" / f"{name}.csv.gz"
        if not path.exists():
            skipped[f"no file {path.name}"] += 1
            continue
        rows, missing = read(path)
        found += rows
        skipped += missing
    return found, skipped


def lines_of(rows, times, fitted):
    groups = collections.defaultdict(list)
    for row, us in zip(rows, times, strict=True):
        pair = (t.error(us, row.measured_us), t.error(row.plain_us(), row.measured_us))
        links = "NVLink" if row.system.card_bytes_per_s > FASTEST_SLOT else "slots"
        for machine in (row.machine, f"all {links}, {'fitted' if row.machine in fitted else 'left out'}"):
            groups[machine, row.nodes, row.kind].append(pair)
    order = sorted(groups, key=lambda key: (key[1], key[0].startswith("all "), *key))
    out = []
    for machine, nodes, kind in order:
        errors, plain = zip(*groups[machine, nodes, kind])
        away = t.sizes(plain)
        word = "yes" if machine in fitted or machine.endswith(", fitted") else "no"
        out.append((machine, nodes, kind, word, *t.error_cells(errors), t.percent(away[0], 0), t.percent(away[2], 0)))
    return out


def print_misses(rows, times, count):
    worst = sorted(zip(rows, times, strict=True), key=lambda pair: -abs(t.error(pair[1], pair[0].measured_us)))[:count]
    head = ("machine", "collective", "type", "ranks", "nodes", "bytes", "release", "measured us", "predicted us", "error %")
    lines = [
        (
            r.machine,
            r.kind,
            r.dtype,
            r.ranks,
            r.nodes,
            r.bytes,
            r.release,
            r.measured_us,
            f"{us:.1f}",
            t.signed(t.error(us, r.measured_us), 0),
        )
        for r, us in worst
    ]
    print(t.text(head, lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--constants", type=pathlib.Path, help="a file of eval.ranks.fit_collectives, over the built-in constants")
    parser.add_argument("--fitted", default=FITTED, help="machines that the constants were fitted on")
    parser.add_argument("--misses", type=int, default=0, help="also print the worst rows")
    parser.add_argument("--page", action="store_true", help=f"renew {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    rows, skipped = read_rows(options.data)
    for reason, count in skipped.items():
        print(f"skipped: {reason}: {count} rows")
    if not rows:
        raise SystemExit(f"no rows in {options.data}/multi_gpu")
    constants = json.loads(options.constants.read_text()) if options.constants else None
    times = measured.predict_us(jobs.find(options.gpucast), rows, constants)
    lines = lines_of(rows, times, set(options.fitted.split(",")))
    print(t.text(HEAD, lines))
    if options.misses:
        print_misses(rows, times, options.misses)
    if options.page:
        page.write(PAGE, COMMAND, f"{len(rows):,} collectives", {"collectives": t.markdown(HEAD, lines)})


if __name__ == "__main__":
    main()
