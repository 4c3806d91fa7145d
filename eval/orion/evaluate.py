#!/usr/bin/env python3
"""ORION, PreNeT, a roofline and gpucast on the same measured training steps, and checks of ORION's own figures.

    python -m eval.orion.evaluate --data DIR --captures CAPTURES --work WORK --python ENV/bin/python --markdown FILE --figures FOLDER

DIR has the layout of eval/steps/README.md (and orion/*.csv); other rows of the same format work too. ENV has the packages of
that page; this command needs LightGBM if anything is to be trained. Captures and fits are kept: start it again after a break.
"""

import argparse
import sys
from pathlib import Path

from eval import page
from eval.jobs import add_gpucast_option
from eval.orion import judged as judging
from eval.orion import orion_tables, own_steps, pictures, published
from eval.steps import predict
from eval.steps import step_rows as measured

TABLES = ("timm-train", "torchvision", "nvidia", "neusight", "lambda")
COMMAND = "python -m eval.orion.evaluate --data DIR --captures DIR"
FORWARD_TABLES = ("timm-infer", "neusight")


def parse_args(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with the measured rows")
    parser.add_argument("--captures", type=Path, help="where captures are kept; without it only ORION's own figures are checked")
    parser.add_argument(
        "--work", type=Path, help="where fits are kept (default: fits, in the folder of the captures; needed for ORION's own rows)"
    )
    parser.add_argument("--own-rows", type=int, default=4000, help="the most rows per family of ORION's own rows (DIR/orion/CNN.csv ...)")
    parser.add_argument("--table", action="append", choices=list(measured.TABLES), help=f"may be repeated (default: {', '.join(TABLES)})")
    parser.add_argument(
        "--forward", action="store_true", help=f"forward passes alone, where they were measured: {', '.join(FORWARD_TABLES)}"
    )
    add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable, help="a Python with torch, torchvision, timm and transformers")
    parser.add_argument("--old-timm", default="", help="a Python with timm 0.6, for models trained in 2022 (default: --python)")
    parser.add_argument("--sample", type=int, default=0, help="only N models of timm, spread over families (default: all)")
    parser.add_argument("--jobs", type=int, help="captures made at a time (default: what gpucast batch chooses)")
    parser.add_argument(
        "--cpu-speed", type=float, default=1.0, help="speed of the measured hosts relative to this one while captures were made"
    )
    parser.add_argument("--seed", type=int, default=1, help="of folds and trees")
    parser.add_argument("--trees", type=Path, help="train ORION's and PreNeT's trees on all rows, and write them here")
    parser.add_argument("--markdown", type=Path, help="write the tables here too")
    parser.add_argument("--figures", type=Path, help="a folder for pictures (SVG)")
    return parser.parse_args(words)


def say(text):
    print(text, file=sys.stderr)


def measured_rows(args):
    options = measured.Options(args.data, args.python, args.old_timm, args.sample, args.captures)
    rows = []
    for name in args.table or (FORWARD_TABLES if args.forward else TABLES):
        found = [row for row in measured.TABLES[name](options) if (row.group == "infer" or row.table == "timm-infer") == args.forward]
        if not found:
            say(f"{name}: no rows in {args.data}")
        rows += found
    return rows


def judged_rows(args, left_out):
    rows = measured_rows(args)
    if not rows:
        raise SystemExit(f"evaluate.py: {args.data} has no measured steps; eval/steps/README.md says which files are read")
    gpucast = predict.jobs.find(args.gpucast)
    files, problems = predict.captures(gpucast, rows, args.captures, args.jobs)
    left_out += [f"{job}: {why}" for job, why in sorted(problems.items())]

    def options_of(table):
        constants = measured.CONSTANTS.get(table)
        return ["--cpu-speed", str(args.cpu_speed), *(["--constants", str(constants)] if constants else [])]

    return judging.judge(gpucast, rows, files, options_of, left_out.append)


def beside_own_rows(args, own):
    """gpucast's steps of the networks in ORION's published rows; [] if there are none."""
    options = measured.Options(args.data, args.python, args.old_timm, args.sample, args.captures)
    by_row = own_steps.job_rows(options, own)
    gpucast = predict.jobs.find(args.gpucast)
    files, problems = predict.captures(gpucast, [job for jobs in by_row.values() for job in jobs], args.captures, args.jobs)
    for job, why in sorted(problems.items()):
        say(f"left out: {job}: {why}")
    found = own_steps.beside(gpucast, by_row, files)
    return orion_tables.beside_part(found) if found else []


def all_predictions(rows, fits):
    """{(method, protocol): {row name: ms}}; a method that learns nothing has protocol ''."""
    out = {
        ("gpucast", ""): {row.name: row.gpucast_ms for row in rows},
        ("roofline", ""): {row.name: row.roofline_ms for row in rows},
    }
    for protocol in judging.PROTOCOLS:
        out["ORION", protocol] = fits.predictions("orion", rows, protocol)
        out["ORION on ms", protocol] = fits.predictions("orion", rows, protocol, logarithm=False)
        out["PreNeT", protocol] = fits.predictions("prenet", rows, protocol)
    return out


def need_lightgbm():
    try:
        import lightgbm  # noqa: F401
    except ImportError:
        raise SystemExit("evaluate.py: this Python has no LightGBM, which trains the trees: pip install lightgbm") from None


def main(words=None):
    args = parse_args(words)
    if not args.data.is_dir():
        raise SystemExit(f"evaluate.py: {args.data} is no folder; --data names one with the layout of eval/steps/README.md")
    if args.trees and not args.captures:
        raise SystemExit("evaluate.py: --trees needs steps to learn from: name a folder with --captures")
    left_out = []
    own, problems = published.rows(args.data)
    unseen, more = published.unseen(args.data)
    parts = orion_tables.published_part(own, unseen, problems + more)
    used = [f"{len(own)} published rows"]
    work = args.work or (args.captures / "fits" if args.captures else None)
    if work and any((args.data / "orion" / f"{family}.csv{end}").exists() for family in published.FAMILIES for end in ("", ".gz")):
        need_lightgbm()
        parts += orion_tables.own_part(args.data, args.own_rows, work, args.seed, say)
    if args.captures:
        need_lightgbm()
        rows, cards = judged_rows(args, left_out)
        if not rows:
            raise SystemExit("evaluate.py: no measured row has a capture:\n" + "\n".join(left_out[:20]))
        fits = judging.Fits(cards, work, seed=args.seed, progress=say)
        predictions = all_predictions(rows, fits)
        used.insert(0, f"{len(rows)} measured {'forward passes' if args.forward else 'training steps'}")
        parts = orion_tables.steps_part(rows, predictions, cards, left_out) + parts
        if args.figures:
            args.figures.mkdir(parents=True, exist_ok=True)
            (args.figures / "orion-errors.svg").write_text(pictures.errors(orion_tables.judged_of(rows), predictions))
        parts += [] if args.forward else beside_own_rows(args, own)
        if args.trees:
            judging.trees.write(args.trees, {name: fits.train(name, rows) for name in judging.features.METHODS})
    if args.figures and own:
        args.figures.mkdir(parents=True, exist_ok=True)
        (args.figures / "orion-published.svg").write_text(pictures.published_rows(own))
    text = "\n\n".join([page.opening((COMMAND, ", ".join(used))), *parts])
    print(text)
    if args.markdown:
        args.markdown.write_text(text + "\n")


if __name__ == "__main__":
    main()
