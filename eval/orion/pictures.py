"""Two pictures as SVG: how far off the methods are, and ORION's published rows (Figures 5 to 7)."""

import re

from eval.orion import orion_tables
from eval.papers import charts

MEASURED, PREDICTED = "#555555", "#1f77b4"
BACKGROUND = '<rect width="100%" height="100%" fill="#fff"/>'


def alone(drawn):
    """As a separate file: a browser needs a size, and a dark page a background."""
    width, height = re.search(r'viewBox="0 0 (\d+) (\d+)"', drawn).groups()
    first, _, rest = drawn.partition(">")
    return f'{first} width="{width}" height="{height}">\n{BACKGROUND}{rest}\n'


def errors(rows, predictions):
    groups = {}
    for table, mine in {**orion_tables.grouped(rows, lambda row: row.table), "all": rows}.items():
        mine = orion_tables.common(mine, predictions, orion_tables.METHODS)
        if mine:
            groups[f"{table} ({len(mine)})"] = {
                orion_tables.title(method): [abs(p / m - 1) for p, m in orion_tables.pairs(mine, predictions[method])]
                for method in orion_tables.METHODS
            }
    return alone(charts.box_plots("Error of a training step: quartiles, lowest and highest", groups))


def published_rows(rows):
    """A pair of bars per row: measured, and predicted with its error above."""
    bar, gap, left, top, height = 11, 10, 50, 44, 220
    highest = max(max(row.measured_ms, row.predicted_ms) for row in rows)
    bottom, x = top + height, left + gap
    parts = [charts.text(left, 16, "ORION's published rows: measured and predicted, ms", "start", ' font-weight="bold"')]
    parts += charts.legend(("measured", "predicted"), {"measured": MEASURED, "predicted": PREDICTED}, left, 34)
    groups = {}
    for row in rows:
        groups.setdefault((row.family, row.model), []).append(row)
    bars = []
    for (_, model), mine in groups.items():
        begin = x
        for row in sorted(mine, key=lambda row: row.batch):
            off = row.predicted_ms / row.measured_ms - 1
            said = (
                f"{model}, batch {row.batch}: measured {row.measured_ms:.2f} ms, predicted {row.predicted_ms:.2f} ms ({100 * off:+.1f} %)"
            )
            bars.append(f"<g><title>{charts.escape(said)}</title>")
            for place, (ms, colour) in enumerate(((row.measured_ms, MEASURED), (row.predicted_ms, PREDICTED))):
                size = height * ms / highest
                bars.append(f'<rect x="{x + bar * place}" y="{bottom - size:.1f}" width="{bar - 1}" height="{size:.1f}" fill="{colour}"/>')
            tallest = bottom - height * max(row.measured_ms, row.predicted_ms) / highest
            bars.append(charts.text(x + bar, tallest - 3, f"{100 * off:+.0f}", more=' font-size="8"') + "</g>")
            bars.append(charts.text(x + bar, bottom + 11, row.batch, more=' font-size="9"'))
            x += 2 * bar + 3
        bars.append(charts.text((begin + x) / 2, bottom + 26, model))
        x += gap
    for tick in range(5):
        y = bottom - height * tick / 4
        parts += [charts.line(left, y, x, y), charts.text(left - 4, y + 4, f"{highest * tick / 4:.0f}", "end")]
    parts += [*bars, charts.text(left - 4, bottom + 11, "batch", "end", ' font-size="9"')]
    return alone(charts.svg(x + gap, bottom + 40, "ORION's published rows", parts))
