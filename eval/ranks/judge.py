"""Predicted steps compared with measured ones: errors by size of the plan, order of the plans, the plan called fastest."""

import collections

import numpy

from eval import tables

WITHIN = 0.03  # of the fastest measured plan


def error_lines(rows, predicted_s, parts):
    """Lines of a table: all rows, then by each value of these fields."""
    groups = {"all": rows}
    for part in parts:
        for value in sorted({getattr(row, part) for row in rows}):
            groups[f"{part} {value}"] = [row for row in rows if getattr(row, part) == value]
    return [(name, *tables.error_cells([tables.error(predicted_s[row], row.step_s) for row in some])) for name, some in groups.items()]


def spearman(first, second):
    """Of two lists of equal length; ties share their mean rank."""
    return float(numpy.corrcoef(ranks(first), ranks(second))[0, 1])


def ranks(values):
    values = numpy.asarray(values)
    return numpy.array([(values < value).sum() + (values == value).sum() / 2 for value in values])


def groups_of(rows):
    """Rows that differ in the plan alone, together."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row.plan_group].append(row)
    return groups.values()


def choices(rows, predicted_s):
    """(cases, cases where the plan called fastest is within WITHIN of the fastest measured, the largest loss)."""
    lost = []
    for group in groups_of(rows):
        if len(group) > 1:
            lost.append(min(group, key=predicted_s.get).step_s / min(row.step_s for row in group) - 1)
    return len(lost), sum(one <= WITHIN for one in lost), max(lost, default=0.0)
