"""Figures of errors, and the tables that show them: in Markdown, or as text for a terminal."""

import statistics

import numpy

# --- Figures -------------------------------------------------------------------------------------------------------------------------


def quantile(values, part):
    """Interpolated between the two nearest; several quantiles if `part` is a list."""
    found = numpy.quantile(list(values), part)
    return found.tolist() if isinstance(part, (list, tuple)) else float(found)


def known(values):
    return [value for value in values if value is not None]


def median(values):
    """Of the known values; None if there are none."""
    values = known(values)
    return statistics.median(values) if values else None


def mean(values):
    values = known(values)
    return statistics.fmean(values) if values else None


def error(predicted, measured):
    """Signed, relative to the measurement."""
    return predicted / measured - 1


def sizes(errors):
    """(median, mean, 90th percentile, worst) of errors without their signs."""
    found = numpy.abs(numpy.asarray(errors, float))
    return float(numpy.median(found)), float(found.mean()), float(numpy.quantile(found, 0.9)), float(found.max())


# --- Cells ---------------------------------------------------------------------------------------------------------------------------


def percent(value, digits=2):
    return "-" if value is None else f"{100 * value:.{digits}f}"


def signed(value, digits=2):
    return "-" if value is None else f"{100 * value:+.{digits}f}"


def error_cells(errors):
    """Their number, median, 90th percentile, worst and signed median, in percent; as ERROR_HEAD."""
    away = [abs(one) for one in errors]
    return [
        *(len(errors), percent(median(away), 1), percent(quantile(away, 0.9), 1)),
        *(signed(max(errors, key=abs), 1), signed(median(errors), 1)),
    ]


ERROR_HEAD = ("n", "median", "90th", "worst", "signed median")

# --- Tables --------------------------------------------------------------------------------------------------------------------------


def markdown_row(cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def markdown_head(header, words=1, tight=False):
    """The header and the rule under it. Left-aligned columns of text: the first `words`, or those that it lists."""
    words = range(words) if isinstance(words, int) else words
    rule = ["---" if i in words else "---:" for i in range(len(header))]
    return markdown_row(header) + "\n" + ("|" + "|".join(rule) + "|" if tight else markdown_row(rule))


def markdown(header, lines, words=1, tight=False):
    return "\n".join([markdown_head(header, words, tight), *map(markdown_row, lines)])


def text(header, lines):
    """First column left, others right."""
    body = [[str(cell) for cell in line] for line in [header, *lines]]
    widths = [max(map(len, column)) for column in zip(*body)]
    cells = [[cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths))] for line in body]
    return "\n".join("  ".join(line).rstrip() for line in cells)


def table(header, lines, as_markdown):
    return markdown(header, lines) if as_markdown else text(header, lines)
