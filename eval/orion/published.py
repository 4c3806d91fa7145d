"""The publications of ORION's authors: 30 predicted rows and 12 pairs of errors (files under --data), and the tables of the paper; and the checks
that are possible with these alone."""

import dataclasses
import math
import statistics

from eval.data_sets import read_csv

FAMILIES = {"MLP": ("Fig. 2", "Fig. 5", "A100"), "CNN": ("Fig. 3", "Fig. 6", "L40"), "Transformer": ("Fig. 4", "Fig. 7", "L40S")}

# Pourali and Khazaei, ICPE 2026, doi 10.1145/3777884.3797001. RMSE in ms.
# Table 2: multiprocessors, memory in GB, bandwidth in GB/s.
TABLE_2 = {
    "L4": (60, 24, 300),
    "H100 PCIe": (114, 80, 2040),
    "A100 80GB PCIe": (108, 80, 1940),
    "L40S": (142, 48, 864),
    "RTX 5090": (170, 32, 1790),
    "A40": (84, 48, 696),
    "RTX 4000 Ada Generation": (48, 20, 360),
    "L40": (142, 48, 864),
}

# Table 3: PreNeT, ORION, improvement in %, average step in ms.
TABLE_3 = {
    "AS-MLP": (72.25, 5.15, 92.87, 69.92),
    "MLP-Mixer": (69.90, 5.62, 91.97, 56.72),
    "ResMLP": (5.23, 3.61, 30.93, 25.40),
    "DenseNet-121": (10.34, 6.36, 38.43, 59.86),
    "ResNet-50": (5.09, 3.58, 29.66, 31.05),
    "VGG-16": (1.10, 0.78, 28.91, 47.27),
    "DeiT-Tiny": (9.15, 4.12, 54.95, 42.58),
    "DistilBERT": (4.46, 3.99, 10.46, 22.50),
    "ViT": (4.41, 2.99, 32.18, 58.83),
    "Transformer": (13.63, 9.10, 33.26, 151.77),
}
TABLE_3_AVERAGE = 44.36
# Table 4: ORION with 4, 8, 16 vCPUs.
TABLE_4 = {
    "AS-MLP": (3.77, 3.93, 5.58),
    "MLP-Mixer": (3.67, 3.95, 6.08),
    "ResMLP": (3.65, 3.25, 3.26),
    "DeiT-Tiny": (3.59, 3.64, 5.96),
    "DistilBERT": (3.81, 3.82, 3.91),
    "ViT": (3.23, 3.49, 3.68),
    "Transformer": (8.35, 9.80, 9.37),
    "ResNet-50": (3.51, 3.24, 3.66),
    "DenseNet-121": (5.86, 6.06, 6.31),
    "VGG-16": (0.69, 0.66, 0.59),
}
# Table 5: PreNeT and ORION on an SSD, PreNeT and ORION on NVMe.
TABLE_5 = {
    "AS-MLP": (68.15, 5.65, 61.21, 4.43),
    "MLP-Mixer": (66.68, 6.32, 58.98, 4.57),
    "ResMLP": (6.33, 3.82, 3.57, 3.39),
    "DeiT-Tiny": (11.53, 3.66, 5.80, 4.40),
    "ViT": (4.36, 2.42, 4.45, 3.47),
    "ResNet-50": (5.20, 3.69, 4.96, 3.47),
    "DenseNet-121": (10.64, 6.63, 10.02, 6.08),
    "VGG-16": (1.25, 0.87, 0.88, 0.65),
    "DistilBERT": (4.56, 4.13, 4.35, 3.85),
    "Transformer": (14.07, 8.98, 13.17, 9.17),
}


@dataclasses.dataclass(frozen=True)
class Row:
    family: str
    model: str
    batch: int
    measured_ms: float
    predicted_ms: float
    stated: float  # the error given with it, as a fraction


def number(text):
    """None for anything but a finite number from 0; a percentage stays a percentage."""
    try:
        value = float(str(text).strip().rstrip("%"))
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def rows(data):
    """(rows of Figures 5 to 7, left-out rows)."""
    found, left_out = [], []
    for family in FAMILIES:
        path = data / "orion" / f"{family}_ModelbyModel.csv"
        lines = read_csv(path)
        if not lines:
            left_out.append(f"{path.name}: not in {path.parent}, or without rows")
        for place, line in enumerate(lines, 2):
            if not any((value or "").strip() for value in line.values() if not isinstance(value, list)):
                continue  # the file ends with empty cells
            values = [number(line.get(name)) for name in ("Batch Size", "Actual (ms)", "Predicted (ms)", "Error")]
            if not line.get("Model") or not values[0] or not values[1] or values[2] is None or values[3] is None:
                left_out.append(f"{path.name}, line {place}: a cell is missing or no number")
                continue
            found.append(Row(family, line["Model"].strip(), int(values[0]), values[1], values[2], values[3] / 100))
    return found, left_out


def unseen(data):
    """({family: {card: (ORION's RMSE, PreNeT's)}} of Figures 2 to 4, left-out rows)."""
    found, left_out = {}, []
    for family in FAMILIES:
        path = data / "orion" / f"{family}_Unseen.csv"
        lines = read_csv(path)
        if not lines:
            left_out.append(f"{path.name}: not in {path.parent}, or without rows")
        for place, line in enumerate(lines, 2):
            pair = number(line.get("ORION_RMSE")), number(line.get("PreNeT_RMSE"))
            if not line.get("GPU") or None in pair or not pair[1]:
                left_out.append(f"{path.name}, line {place}: a cell is missing or no number")
                continue
            found.setdefault(family, {})[line["GPU"].strip()] = pair
    return found, left_out


def rmse(pairs):
    """Of (predicted, measured)."""
    return math.sqrt(statistics.fmean((predicted - measured) ** 2 for predicted, measured in pairs))


def improvement(new, old):
    return 1 - new / old


@dataclasses.dataclass(frozen=True)
class Check:
    claim: str  # from the paper, with its place
    found: str


def check_table_3():
    offs = [abs(100 * improvement(orion, prenet) - stated) for prenet, orion, stated, _ in TABLE_3.values()]
    prenet, orion = (statistics.fmean(row[place] for row in TABLE_3.values()) for place in (0, 1))
    mean = statistics.fmean(row[2] for row in TABLE_3.values())
    # The two architectures with the largest part in it, then without them.
    rest = statistics.fmean(sorted(row[2] for row in TABLE_3.values())[:-2])
    relative = sorted(100 * row[1] / row[3] for row in TABLE_3.values())
    return [
        Check("Table 3: improvements follow from the two RMSE", f"yes, to {max(offs):.2f} points"),
        Check(
            f"Table 3: {TABLE_3_AVERAGE} % less error on average",
            f"the mean of ten percentages ({mean:.2f}). Of the two mean RMSE ({prenet:.2f}, {orion:.2f} ms) it is "
            f"{100 * improvement(orion, prenet):.1f} %; without the two best models {rest:.1f} %",
        ),
        Check("Table 3: ORION's RMSE over the average step", f"{relative[0]:.1f} to {relative[-1]:.1f} %"),
    ]


def check_tables_4_and_5():
    spread = {name: abs(values[-1] - values[0]) for name, values in TABLE_4.items()}
    over = sorted((name for name, value in spread.items() if value >= 1), key=lambda name: -spread[name])
    better = [name for name, (_, _, prenet, _) in TABLE_5.items() if prenet < TABLE_5[name][0]]
    inside = [name for name, row in TABLE_5.items() if min(row[1], row[3]) <= TABLE_3[name][1] <= max(row[1], row[3])]
    return [
        Check(
            "Section 5.4: from 4 to 16 vCPUs the RMSE changes by less than 1 ms",
            f"in {len(TABLE_4) - len(over)} of {len(TABLE_4)} rows of Table 4; not for "
            + ", ".join(f"{name} ({spread[name]:.2f})" for name in over),
        ),
        Check("Section 5.3: PreNeT is better on NVMe for nearly all models", f"{len(better)} of {len(TABLE_5)} rows of Table 5"),
        Check(
            "Tables 3 and 5 are of the same predictions",
            f"ORION's RMSE over all lies between the two tiers' RMSEs for {len(inside)} of {len(TABLE_5)} models",
        ),
    ]


def check_unseen(found):
    out = []
    for family, cards in found.items():
        gains = [100 * improvement(orion, prenet) for orion, prenet in cards.values()]
        if family == "MLP":
            errors = [orion for orion, _ in cards.values()]
            out.append(
                Check(
                    "Fig. 2: ORION's RMSE from 11.85 to 20.14 ms",
                    f"{min(errors):.2f} to {max(errors):.2f} ms; {min(gains):.0f} to {max(gains):.0f} % below PreNeT",
                )
            )
        else:
            held = sum(20 <= gain <= 60 for gain in gains)
            out.append(
                Check(
                    f"Section 5.5, {FAMILIES[family][0]}: 20 to 60 % below PreNeT on all unseen cards ({family})",
                    f"on {held} of {len(gains)}: " + ", ".join(f"{card} {gain:.1f} %" for card, gain in zip(cards, gains)),
                )
            )
    return out


LIMITS = {"MLP": (0.25, "below 25 %"), "CNN": (0.18, "below 18 % for most"), "Transformer": (0.30, "1 to 30 %")}


def check_rows(found):
    out = []
    for family, (limit, words) in LIMITS.items():
        mine = [row for row in found if row.family == family]
        if not mine:
            continue
        errors = [abs(row.predicted_ms / row.measured_ms - 1) for row in mine]
        wrong = sum(abs(error - row.stated) > 0.0006 for error, row in zip(errors, mine))
        below = sum(row.predicted_ms < row.measured_ms for row in mine)
        out.append(
            Check(
                f"{FAMILIES[family][1]}: errors {words}",
                f"{sum(error < limit for error in errors)} of {len(errors)}; median {100 * statistics.median(errors):.1f} %, "
                f"RMSE {rmse([(row.predicted_ms, row.measured_ms) for row in mine]):.2f} ms; {below} are too low"
                + (f"; {wrong} of the stated errors differ" if wrong else ""),
            )
        )
    return out
