#!/usr/bin/env python3
"""Steps measured on real cards, compared with `gpucast time`.

    python -m eval.steps.run_steps timm-train --data DIR --captures DIR --python ENV/bin/python
    python -m eval.steps.run_steps neusight torchvision --data DIR --captures DIR --python ENV/bin/python --markdown FILE

One table per name: timm-train, timm-infer, neusight, torchvision, lambda, nvidia. DIR of --data has the layout of eval/steps/README.md;
other rows of the same format work too. ENV has PyTorch 2.6.0, torchvision, timm and transformers.
Captures are kept: start the same command again after a break. After a change of captures' contents, remove their folder.
"""

import argparse
import sys
from pathlib import Path

from eval.jobs import add_gpucast_option
from eval.steps import predict
from eval.steps import step_rows as measured
from eval.steps import step_tables as tables
from eval.steps.causes import CAUSES
from eval.steps.split import half


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", choices=list(measured.TABLES), metavar="TABLE", help=", ".join(measured.TABLES))
    parser.add_argument("--data", type=Path, required=True, help="a folder with the measured rows")
    parser.add_argument("--captures", type=Path, required=True, help="where captures are kept")
    add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable, help="a Python with torch, torchvision, timm and transformers")
    parser.add_argument("--old-timm", default="", help="a Python with timm 0.6, for models trained in 2022 (default: --python)")
    parser.add_argument("--release", **measured.RELEASE_OPTION)
    parser.add_argument("--sample", type=int, default=0, help="only N models of timm, spread over families (default: all)")
    parser.add_argument("--jobs", type=int, help="captures made at a time (default: what gpucast batch chooses)")
    parser.add_argument("--known", default="rtx3090", help="the card with known times in the table of ratios")
    parser.add_argument(
        "--cpu-speed", type=float, default=1.0, help="speed of the measured machines' hosts relative to this one while captures were made"
    )
    parser.add_argument("--constants", type=Path, help="a file of constants for `gpucast time`, instead of the table's own")
    parser.add_argument("--markdown", type=Path, help="write the tables here too")
    return parser.parse_args()


def document(args, name):
    """The table's Markdown."""
    options = measured.Options(args.data, args.python, args.old_timm, args.sample, args.captures, dict(args.release))
    rows = measured.TABLES[name](options)
    if not rows:
        return f"## {name}\nno rows in {args.data}"
    gpucast = predict.jobs.find(args.gpucast)
    files, problems = predict.captures(gpucast, rows, args.captures, args.jobs)
    left_out = [f"- {job}: {why}" for job, why in sorted(problems.items())]
    constants = args.constants or measured.CONSTANTS.get(name)
    extra = ["--cpu-speed", str(args.cpu_speed), *(["--constants", str(constants)] if constants else [])]
    predictions = predict.predict(gpucast, rows, files, extra, lambda text: left_out.append(f"- {text}"))
    keys = [lambda row: row.group, lambda row: row.card, lambda row: f"{row.card}, {row.group}"]
    if name in ("timm-train", "timm-infer"):
        keys.append(lambda row: f"{row.card}, {row.group}, {'half that constants were fitted on' if half(row.model) else 'not fitted'}")
    parts = [f"## {name}", "Errors in %.", tables.overview(rows, predictions, keys)]
    parts.append(tables.parts_overview(rows, predictions))
    parts.append(tables.known_overview(rows, predictions, args.known, lambda row: half(row.model)))
    parts += [f"### Misses above {100 * tables.NOTED_ERROR:.0f} %", tables.misses(rows, predictions, CAUSES)]
    if left_out:
        parts += [f"### Left out of {len(rows)} rows", "\n".join(left_out)]
    return "\n\n".join(part for part in parts if part)


def main():
    args = parse_args()
    text = "\n\n".join(document(args, name) for name in args.tables)
    print(text)
    if args.markdown:
        args.markdown.write_text(text + "\n")


if __name__ == "__main__":
    main()
