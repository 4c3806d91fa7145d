#!/usr/bin/env python3
"""The power of cards during trainings, as gpucast predicts it, compared with measured power: docs/results/power.md.

    python -m eval.power.evaluate --python ENV/bin/python --old-python OLD/bin/python --out OUT [--page docs/results/power.md] [--fit]

- an H200: 40 trainings of eval/truth/h200/steps.jsonl.gz. ENV should hold the measured releases.
- A40, V100, P100, Quadro RTX 6000: eval/power/measured.csv, trainings under power limits from Zeus's traces. The jobs are repeated by
  eval/power/zeus_job.py. OLD: a PyTorch that still has kernels for a V100 (2.6).
OUT keeps the captures and the answers; the same command started again goes on. `--data DIR` judges another measured.csv.

Each row is judged twice: with gpucast's own step time, and with the measured one, which shows the errors of the power alone.
"""

import argparse
import csv
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy

from eval import ROOT, jobs, page
from eval.tables import error, quantile, sizes
from eval.truth import measured_jobs

HERE = Path(__file__).resolve().parent
STEPS = ROOT / "eval/truth/h200/steps.jsonl.gz"
CONSTANTS = ROOT / "data/power.json"
# The samples of an epoch: ImageNet's images, SQuAD's windows of 384 tokens as Hugging Face's script cuts them, Sentiment140's texts.
EPOCH = {"resnet50": 1281167, "bert_squad": 88524, "bert_sentiment": 1600000}
CAPTURED_ON = {"a40": "a40"}  # other cards: a V100
LEAST_SHARE = 0.4  # lower limits were not measured well enough for `--gpu CARD@WATTS`
FIT_CARD, OLD_CARD = "a40", "p100-16-pcie"  # of the second, only ResNet-50's rows, for one number
LIMITS = {"h200": 700, "a40": 300, "v100-32-pcie": 250, "p100-16-pcie": 250, "quadro-rtx6000": 260}
STACKED = {"h200", "v100-32-pcie", "p100-16-pcie"}
NAMES = ("stacked", "busy", "tensor", "plain", "memory", "most")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--old-python", help="default: the same as --python")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=HERE, help="the folder with measured.csv")
    parser.add_argument("--page", type=Path, help="renew the tables of this page")
    parser.add_argument("--fit", action="store_true", help="print constants fitted on the rows of the fit, and their quantiles of errors")
    parser.add_argument("--captured", action="store_true", help="judge only jobs that OUT has a capture of")
    return parser.parse_args()


# --- Rows ----------------------------------------------------------------------------------------------------------------------------


def measured_w(row):
    """The mean of two readings: the energy of the window, whose counter is renewed ten times a second, and the power of its last second,
    which may begin before the window does."""
    return (min(row["energy_mj"] / 1e3 / row["window_s"], LIMITS["h200"]) + row["power_mw"] / 1e3) / 2


def h200_rows():
    """A row: the group, whether the fit may see it, its job, how to repeat it, and what was measured."""
    _, measured = measured_jobs.trainings(STEPS)
    return [
        {
            "card": "h200",
            "fitted": index % 2 == 0,
            "limit_w": LIMITS["h200"],
            "job": row["job"],
            "name": f"{row['job']['model'][:40]} {row['job']['batch']} {row['job']['precision']}",
            "capture": f"h200/{index:02}",
            "program": measured_jobs.TRAINING,
            "on": "h200",
            "step_s": row["wall_ms"] / 1e3,
            "power_w": measured_w(row),
            "busy": row["gpm"]["graphics_active"] / 100,
        }
        for index, row in enumerate(measured)
    ]


def zeus_rows(folder):
    rows = []
    with (folder / "measured.csv").open() as file:
        for row in csv.DictReader(file):
            card, network, batch, limit_w = row["card"], row["network"], int(row["batch"]), float(row["limit_w"])
            if limit_w < LEAST_SHARE * LIMITS[card]:
                continue
            on = CAPTURED_ON.get(card, "v100-32")
            job = {"network": network, "batch": batch, "optimizer": row["optimizer"], **({"tf32": True} if on == "a40" else {})}
            rows.append(
                {
                    "card": card,
                    "fitted": card == FIT_CARD or (card == OLD_CARD and network == "resnet50"),
                    "limit_w": limit_w,
                    "job": job,
                    "name": f"{network} {batch}",
                    "capture": f"zeus_captures/{network}-{batch}-{on}",
                    "program": HERE / "zeus_job.py",
                    "on": on,
                    "step_s": float(row["epoch_s"]) / (EPOCH[network] / batch),
                    "power_w": float(row["power_w"]),
                }
            )
    return rows


def answers(args, rows):
    """The rows with gpucast's answer under `time`. Jobs that do not run are left out."""
    found = []
    for row in rows:
        capture = args.out / f"{row['capture']}.gpucast"
        capture.parent.mkdir(parents=True, exist_ok=True)
        if not capture.exists() and not args.captured:
            python = args.python if row["on"] in ("h200", "a40") else args.old_python or args.python
            words = [args.gpucast, "run", "--gpu", row["on"], "--steps", "3", "--force", "-o", str(capture), "--", python]
            subprocess.run([*words, str(row["program"]), json.dumps(row["job"])], stdout=subprocess.DEVNULL)
        if not capture.exists():
            continue
        card = row["card"] if row["limit_w"] >= LIMITS[row["card"]] else f"{row['card']}@{row['limit_w']:g}W"
        answer = capture.with_name(f"{capture.stem}.{card}.time.json")
        if not answer.exists() or answer.stat().st_mtime < Path(args.gpucast).stat().st_mtime:
            done = subprocess.run([args.gpucast, "time", str(capture), "--gpu", card, "--format", "json"], capture_output=True, text=True)
            if done.returncode:
                print(f"{capture.name}: {done.stderr.strip()}", file=sys.stderr)
                continue
            answer.write_text(done.stdout)
        time = json.loads(answer.read_text())
        found.append({**row, "time": time, "predicted_s": time["step"]["expected_ns"] / 1e9})
    return found


# --- The model, as src/time/power.cc has it -------------------------------------------------------------------------------------------


def constants():
    groups = json.loads(CONSTANTS.read_text())["power"]
    return {name: value for group in groups.values() for name, value in group.items() if name != "source"}


def shares(row, step_s):
    """(Busy, tensor, plain, memory) share of a step that lasts this long. On the H200 the first was measured."""
    use, factor = row["time"]["use"], row["predicted_s"] / step_s
    found = [min(1.0, use[f"{name}_share"] * factor) for name in ("busy", "tensor", "plain", "memory")]
    return [row["busy"], *found[1:]] if "busy" in row and step_s == row["step_s"] else found


def power_w(row, step_s, numbers):
    """(What the card would draw without a limit, what it draws)."""
    board_w = LIMITS[row["card"]]
    idle = numbers["stacked" if row["card"] in STACKED else "other"]
    work = sum(numbers[name] * share for name, share in zip(("busy", "tensor", "plain", "memory"), shares(row, step_s), strict=True))
    wanted_w = board_w * (idle + work * (numbers["before_volta"] if row["card"] == OLD_CARD else 1))
    return wanted_w, min(wanted_w, max(board_w * idle, numbers["most"] * row["limit_w"]))


def judged(row, numbers):
    wanted_w, expected_w = power_w(row, row["step_s"], numbers)
    own = row["time"]["power_w"]
    replayed = power_w(row, row["predicted_s"], numbers)[1]
    if abs(error(replayed, own["expected"])) > 0.01:
        raise SystemExit(f"{row['name']} on {row['card']}: the command says {own['expected']:.1f} W, the constants {replayed:.1f} W")
    energy, measured_j = row["time"]["energy_per_step_j"], row["power_w"] * row["step_s"]
    low_w = min(wanted_w * numbers["low"], expected_w * numbers["limited_low"])
    high_w = min(max(wanted_w * numbers["high"], expected_w), row["limit_w"])
    busy = row.get("busy") or shares(row, row["step_s"])[0]
    return {
        **row,
        "known": error(expected_w, row["power_w"]),
        "known_inside": low_w <= row["power_w"] <= high_w,
        "own": error(own["expected"], row["power_w"]),
        "own_inside": own["low"] <= row["power_w"] <= own["high"],
        "energy": error(energy["expected"], measured_j),
        "energy_inside": energy["low"] <= measured_j <= energy["high"],
        "tdp": error(row["limit_w"], row["power_w"]),
        "tdp_busy": error(row["limit_w"] * busy, row["power_w"]),
        "step": error(row["predicted_s"], row["step_s"]),
    }


# --- The fit -------------------------------------------------------------------------------------------------------------------------


def fit(rows, begin):
    """Least mean size of the errors' logarithms, each card with the same weight; by steps in random directions. `idle.other` is chosen."""
    random = numpy.random.default_rng(0)

    def least(those, names, numbers, steps):
        groups = defaultdict(list)
        for row in those:
            groups[row["card"]].append(row)

        def loss(tried):
            away = lambda row: abs(numpy.log(power_w(row, row["step_s"], tried)[1] / row["power_w"]))  # noqa: E731
            return numpy.mean([numpy.mean([away(row) for row in group]) for group in groups.values()])

        best, width = loss(numbers), 0.2
        for _ in range(steps):
            tried = {
                name: value * numpy.exp(width * random.normal() * (name in names and random.random() < 0.4))
                for name, value in numbers.items()
            }
            tried["most"] = min(tried["most"], 1.0)
            if (found := loss(tried)) < best:
                best, numbers = found, tried
            width = max(0.01, width * 0.999)
        return numbers

    numbers = least([row for row in rows if row["card"] != OLD_CARD], NAMES, begin, 4000)
    return least([row for row in rows if row["card"] == OLD_CARD], ("before_volta",), numbers, 200)


def print_fit(rows, begin):
    numbers = fit([row for row in rows if row["fitted"]], begin)
    print({name: round(float(value), 3) for name, value in numbers.items()})
    ratios = defaultdict(list)
    for row in rows:
        wanted_w, expected_w = power_w(row, row["step_s"], numbers)
        if row["fitted"]:
            ratios[row["card"], wanted_w > expected_w].append(row["power_w"] / expected_w)
    for (card, limited), those in ratios.items():
        found = [round(q, 3) for q in quantile(those, [0.05, 0.5, 0.95])]
        print(
            f"{card}{', at its limit' if limited else ''}: {len(those)} rows, measured / expected at the 5th, 50th, 95th percentile {found}"
        )


# --- Tables --------------------------------------------------------------------------------------------------------------------------

CARDS = {
    "h200": "H200",
    "a40": "A40",
    "v100-32-pcie": "V100",
    "p100-16-pcie": "P100",
    "quadro-rtx6000": "Quadro RTX 6000",
}


def cells(errors):
    middle, _, p90, worst = sizes(errors)
    return f"{100 * middle:.1f} | {100 * p90:.1f} | {100 * worst:.1f} | {100 * quantile(errors, 0.5):+.1f}"


def parts_of(rows):
    """(Title, rows): by card, its own limit apart from lower ones, which say more of the limit than of the work."""
    for fitted, words in ((False, ""), (True, ", fitted")):
        those = [row for row in rows if row["fitted"] == fitted]
        for card, name in CARDS.items():
            own = [row for row in those if row["card"] == card and row["limit_w"] >= LIMITS[card]]
            lower = [row for row in those if row["card"] == card and row["limit_w"] < LIMITS[card]]
            yield from ((title, part) for title, part in ((f"{name}{words}", own), (f"{name}, lower limits{words}", lower)) if part)
        if not fitted:
            yield "all not fitted, own limit", [row for row in those if row["limit_w"] >= LIMITS[row["card"]]]
            yield "all not fitted", those


def table(rows, what, inside):
    lines = ["| rows | n | median % | 90th | worst | signed median | inside the interval |", "|---|---:|---:|---:|---:|---:|---:|"]
    for title, those in parts_of(rows):
        covered = sum(row[inside] for row in those)
        lines.append(f"| {title} | {len(those)} | {cells([row[what] for row in those])} | {covered} ({100 * covered / len(those):.0f} %) |")
    return "\n".join(lines)


def plain_table(rows):
    own = [row for row in rows if row["limit_w"] >= LIMITS[row["card"]]]
    sets = (
        ("H200", [row for row in own if row["card"] == "h200"]),
        ("other cards, own limit", [row for row in own if row["card"] != "h200"]),
        ("lower limits", [row for row in rows if row["limit_w"] < LIMITS[row["card"]]]),
    )
    guesses = (
        ("gpucast", "own"),
        ("gpucast, the step's time known", "known"),
        ("the power limit", "tdp"),
        ("the power limit x the share of the time that a kernel runs", "tdp_busy"),
    )
    lines = ["| rows not fitted | prediction | n | median % | 90th | worst | signed median |", "|---|---|---:|---:|---:|---:|---:|"]
    for title, those in sets:
        lines += [f"| {title} | {guess} | {len(those)} | {cells([row[what] for row in those])} |" for guess, what in guesses if those]
    return "\n".join(lines)


def worst_table(rows):
    lines = ["| card | job | limit W | measured W | gpucast | % | step % |", "|---|---|---:|---:|---:|---:|---:|"]
    for row in sorted(rows, key=lambda row: -abs(row["own"]))[:12]:
        lines.append(
            f"| {CARDS[row['card']]} | {row['name']} | {row['limit_w']:.0f} | {row['power_w']:.0f} | {row['time']['power_w']['expected']:.0f} | {100 * row['own']:+.0f} | {100 * row['step']:+.0f} |"
        )
    return "\n".join(lines)


def idle_table(numbers):
    """Zeus's trainings of a small network wait for their host nearly always: the least power of a card that is held."""
    least = {"a40": 83, "v100-32-pcie": 36, "p100-16-pcie": 33, "quadro-rtx6000": 55}
    lines = ["| card | least measured W | `idle_power_w` |", "|---|---:|---:|"]
    for card, measured in least.items():
        share = numbers["stacked" if card in STACKED else "other"]
        lines.append(f"| {CARDS[card]}{' (chosen from it)' if card == FIT_CARD else ''} | {measured} | {share * LIMITS[card]:.0f} |")
    return "\n".join(lines)


def jobs_table(rows):
    lines = ["| card | job | measured W | gpucast | step known | step % |", "|---|---|---:|---:|---:|---:|"]
    for row in rows:
        if row["limit_w"] >= LIMITS[row["card"]]:
            known_w = row["power_w"] * (1 + row["known"])
            lines.append(
                f"| {CARDS[row['card']]} | {row['name']}{' (fitted)' if row['fitted'] else ''} | {row['power_w']:.0f} | {row['time']['power_w']['expected']:.0f} | {known_w:.0f} | {100 * row['step']:+.0f} |"
            )
    return "\n".join(lines)


def main():
    args = parse_args()
    args.gpucast = jobs.find(args.gpucast)
    rows = answers(args, h200_rows() + zeus_rows(args.data))
    if args.fit:
        print_fit(rows, constants())
        return
    numbers = constants()
    rows = [judged(row, numbers) for row in rows]
    unfitted = [row for row in rows if not row["fitted"]]
    tables = {
        "power": table(rows, "own", "own_inside"),
        "known": table(rows, "known", "known_inside"),
        "idle": idle_table(numbers),
        "energy": table(rows, "energy", "energy_inside"),
        "plain": plain_table(unfitted),
        "worst": worst_table(unfitted),
        "jobs": jobs_table(rows),
    }
    for name, text in tables.items():
        print(f"{name}\n{text}\n")
    if args.page:
        command = "python -m eval.power.evaluate --python PYTHON --old-python OLD --out OUT"
        page.write(args.page, command, f"{len(rows)}: {len(unfitted)} not fitted", tables)


if __name__ == "__main__":
    main()
