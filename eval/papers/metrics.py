"""The measures of the xMem paper (section 4.1.5), and statistics on them. Equation numbers are the paper's."""

import math
import random
import statistics

from eval.memory import xmem_rows
from eval.tables import known, mean, median, quantile

THRESHOLD = 0.2  # of the quadrants, on both axes


def is_right(row, estimate):
    """C1, equation 4: does it say out of memory exactly when the real run did?"""
    return estimate.says_oom == row.oom


def passes(row, estimate):
    """C2, equation 5: right, and the job ran with the estimate as its limit (or could not run at all)."""
    return is_right(row, estimate) and (row.oom or estimate.second_oom is False)


def error_of(row, estimate):
    """Relative error for MRE, equation 3: of the second round if it ran. None: the real run had no peak."""
    if row.oom:
        return None
    if estimate.second_oom is False and estimate.second_error is not None:
        return estimate.second_error
    return estimate.error


def first_error(row, estimate):
    """Equation 2, of the first round."""
    return None if row.oom else estimate.error


def saved_bytes(row, estimate):
    return xmem_rows.saved_bytes(is_right(row, estimate), row.oom, passes(row, estimate), estimate.bytes, row.total_bytes)


def mre(pairs):
    return median(error_of(*pair) for pair in pairs)


def pef(pairs):
    """Equation 6: the share of rows that do not pass. None if there was no card to run out of memory on."""
    return mean(None if row.total_bytes == 0 else float(not passes(row, estimate)) for row, estimate in pairs)


def mcp(pairs):
    """Equation 8: bytes saved in the mean."""
    return mean(None if row.total_bytes == 0 else saved_bytes(row, estimate) for row, estimate in pairs)


def runtime(pairs):
    return mean(estimate.runtime_s for _, estimate in pairs)


def quartiles(values):
    """(lowest, first quartile, median, third quartile, highest); None for an empty list."""
    values = known(values)
    return tuple(quantile(values, [0, 0.25, 0.5, 0.75, 1])) if values else None


def quadrant(failure, error):
    """Figure 8: its four quadrants."""
    if failure <= THRESHOLD:
        return "optimal" if error <= THRESHOLD else "overestimation"
    return "underestimation" if error <= THRESHOLD else "worst"


def bootstrap(pairs, statistic, seed, draws=1000, coverage=0.95):
    """Monte Carlo: the interval of a statistic over the same number of rows, drawn with replacement. None if it is not defined."""
    chance = random.Random(seed)
    pairs = list(pairs)
    found = sorted(known(statistic(chance.choices(pairs, k=len(pairs))) for _ in range(draws))) if pairs else []
    if not found:
        return None
    cut = (1 - coverage) / 2
    return found[math.floor(cut * (len(found) - 1))], found[math.ceil((1 - cut) * (len(found) - 1))]


def analysis_of_variance(groups, seed, draws=999):
    """One factor, {level: [values]}: F, its degrees of freedom, eta squared (the part of the variance between levels), and p.

    p is the share of random reassignments of the values to levels with this F or a higher one: errors are far from normal,
    and a permutation test needs no distribution. None: fewer than two levels, or nothing varies.
    """
    groups = [list(values) for values in groups.values() if values]
    values = [value for group in groups for value in group]
    between, within = len(groups) - 1, len(values) - len(groups)
    if between < 1 or within < 1:
        return None
    middle = statistics.fmean(values)
    total = sum((value - middle) ** 2 for value in values)
    if total == 0:
        return None
    sizes = [len(group) for group in groups]

    def explained(ordered):
        begin, found = 0, 0.0
        for size in sizes:
            found += sum(value - middle for value in ordered[begin : begin + size]) ** 2 / size
            begin += size
        return found

    seen = explained(values)
    left = total - seen
    f = math.inf if left <= 1e-12 * total else (seen / between) / (left / within)
    chance, shuffled, as_high = random.Random(seed), list(values), 0
    for _ in range(draws):
        chance.shuffle(shuffled)
        as_high += explained(shuffled) >= seen * (1 - 1e-12)
    return {"f": f, "between": between, "within": within, "eta2": seen / total, "p": (1 + as_high) / (1 + draws)}
