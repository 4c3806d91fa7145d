#!/usr/bin/env python3
"""The law of power limits in data/power_limit.json, from measured runs: docs/results/cards.md.

    git clone https://github.com/ml-energy/zeus
    python -m eval.cards.power_limits --zeus zeus/examples/research_reproducibility/zeus_nsdi23/trace

Zeus's traces hold the time of an epoch of several trainings under power limits on four cards. A run counts that draws at least 60 % of the
card's limit when it is not limited: the limit does not slow others. Speeds between two limits are interpolated.
"""

import argparse
import csv
import json
import statistics
from collections import defaultdict
from pathlib import Path

LAW = Path(__file__).resolve().parents[2] / "data/power_limit.json"
FULL_W = {"a40": 300, "v100": 250, "p100": 250, "rtx6000": 260}
LEAST_DRAW = 0.6
MEASURED_NOISE = 1.03  # runs are up to this much faster than the same run at the full limit


def speeds_of_runs(folder):
    """(card, {share of the limit: speed}) of each training."""
    out = []
    for card, full_w in FULL_W.items():
        runs = defaultdict(dict)
        with (folder / f"summary_power_{card}.csv").open() as file:
            for row in csv.DictReader(file):
                run = row["dataset"], row["network"], row["batch_size"], row["optimizer"]
                runs[run][int(row["power_limit"])] = float(row["time_per_epoch"]), float(row["average_power"])
        for limits in runs.values():
            if full_w in limits and limits[full_w][1] >= LEAST_DRAW * full_w:
                out.append((card, {watts / full_w: limits[full_w][0] / seconds for watts, (seconds, _) in limits.items()}))
    return out


def speed_at(share, speeds):
    points = sorted(speeds.items())
    for (low, slow), (high, fast) in zip(points, points[1:], strict=False):
        if low - 0.005 <= share <= high:
            return slow + (fast - slow) * (share - low) / (high - low)
    return None


def law_of(runs, shares):
    law = {}
    for share in shares:
        speeds = sorted(speed for _, run in runs if (speed := speed_at(share, run)) is not None)
        law[share] = {
            "slowest": speeds[0],
            "speed": statistics.median(speeds),
            "fastest": min(1, statistics.quantiles(speeds, n=20, method="inclusive")[-1]),
        }
    return law


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zeus", type=Path, required=True, help="the folder with summary_power_*.csv")
    options = parser.parse_args()
    built_in = {point["share"]: point for point in json.loads(LAW.read_text())["points"] if point["share"] < 1}
    runs = speeds_of_runs(options.zeus)
    print(f"{len(runs)} runs\nshare  slowest  speed  fastest   built in")
    for share, row in law_of(runs, built_in).items():
        kept = built_in[share]
        print(
            f"{share:5.1f}  {row['slowest']:7.3f}  {row['speed']:5.3f}  {row['fastest']:7.3f}   "
            f"{kept['slowest']:g} {kept['speed']:g} {kept['fastest']:g}"
        )
    print("each card by the law of the other three: error of the speed, share of the speeds within slowest and fastest")
    for card in FULL_W:
        law = law_of([run for run in runs if run[0] != card], built_in)
        rows = [(law[share], speed) for name, run in runs if name == card for share in law if (speed := speed_at(share, run)) is not None]
        errors = sorted(abs(row["speed"] / speed - 1) for row, speed in rows)
        within = sum(row["slowest"] <= speed <= row["fastest"] * MEASURED_NOISE for row, speed in rows) / len(rows)
        print(
            f"  {card:<8} {len(rows):4} speeds  median {100 * statistics.median(errors):.1f} %  "
            f"90th {100 * errors[int(0.9 * len(errors))]:.1f} %  within {100 * within:.0f} %"
        )


if __name__ == "__main__":
    main()
