"""The two plots of the papers as SVG text: box plots of errors (figure 7) and the four quadrants (figure 8)."""

import math
from html import escape

from eval.papers import metrics

# The paper's colours, if it names one.
COLOURS = {"xMem": "#1f77b4", "DNNMem": "#d62728", "SchedTune": "#2ca02c", "LLMem": "#9467bd", "gpucast": "#111111"}
MORE_COLOURS = ("#ff7f0e", "#8c564b", "#17becf", "#bcbd22", "#e377c2", "#7f7f7f")
ERROR_TOP = 1.5  # higher errors are drawn as triangles, as in the paper
QUADRANT_NAMES = (("optimal", 0, 1), ("underestimation", 1, 1), ("overestimation", 0, 0), ("worst", 1, 0))


def colours(estimators):
    left = iter(MORE_COLOURS * (1 + len(estimators)))
    return {name: COLOURS.get(name) or next(left) for name in estimators}


def text(x, y, what, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(str(what))}</text>'


def line(x1, y1, x2, y2, colour="#ccc", more=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


def svg(width, height, title, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(title)}"'
    return "\n".join([f'{head} style="max-width:{width:.0f}px" font-family="sans-serif" font-size="11">', *parts, "</svg>"])


def legend_width(name):
    return 30 + 7 * len(name)


def legend(names, palette, x, y):
    parts = []
    for name in names:
        parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{palette[name]}"/>' + text(x + 14, y, name, "start"))
        x += legend_width(name)
    return parts


def box_plots(title, groups):
    """groups: {label: {estimator: [relative errors]}}. Box: quartiles; whiskers: lowest and highest."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    palette = colours(names)
    box, left, top, height = 12, 80, 40, 240
    slot = box * len(names) + 20
    width, bottom = left + max(slot * len(groups) + 20, sum(map(legend_width, names))), top + height
    highest = max((value for group in groups.values() for values in group.values() for value in values), default=0)
    limit = min(ERROR_TOP, max(1, math.ceil(highest * 10)) / 10)

    def y_of(value):
        return bottom - height * min(value, limit) / limit

    parts = [text(left, 16, title, "start", ' font-weight="bold"'), *legend(names, palette, left, 32)]
    for tick in range(6):
        value = limit * tick / 5
        parts += [line(left, y_of(value), width - 10, y_of(value)), text(left - 4, y_of(value) + 4, f"{100 * value:.0f} %", "end")]
    for at, (label, group) in enumerate(groups.items()):
        begin = left + slot * at + 10
        place = f"{begin + box * len(names) / 2:.1f},{bottom + 12:.1f}"
        x, y = place.split(",")
        parts.append(f'<text x="{x}" y="{y}" text-anchor="end" transform="rotate(-35 {place})">{escape(label)}</text>')
        for index, name in enumerate(names):
            values = group.get(name)
            if not values:
                continue
            low, first, middle, third, high = metrics.quartiles(values)
            x, centre, colour = begin + box * index, begin + box * (index + 0.5), palette[name]
            said = f"{label}, {name}: median {100 * middle:.2f} %, {100 * low:.2f} to {100 * high:.2f} %, {len(values)} rows"
            parts += [
                f"<g><title>{escape(said)}</title>",
                line(centre, y_of(low), centre, y_of(high), colour),
                f'<rect x="{x + 1:.1f}" y="{y_of(third):.1f}" width="{box - 2}" height="{max(1, y_of(first) - y_of(third)):.1f}" '
                f'fill="{colour}" fill-opacity="0.35" stroke="{colour}"/>',
                line(x + 1, y_of(middle), x + box - 1, y_of(middle), colour, ' stroke-width="2"'),
            ]
            if high > limit:
                parts.append(f'<path d="M{centre - 4:.1f} {top + 2} l8 0 l-4 -7 z" fill="{colour}"/>')
            parts.append("</g>")
    return svg(width, bottom + 90, title, parts)


def quadrants(title, points):
    """points: [(estimator, model, PEF, MRE)], parts of 1. Above an MRE of 1 a point lies on the upper edge."""
    names = list(dict.fromkeys(point[0] for point in points))
    palette = colours(names)
    left, top, side = 46, 44, 360

    def x_of(part):
        return left + side * part

    def y_of(part):
        return top + side * (1 - min(part, 1))

    parts = [text(left, 16, title, "start", ' font-weight="bold"'), *legend(names, palette, left, 34)]
    parts.append(f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="none" stroke="#888"/>')
    for tick in range(0, 101, 20):
        parts += [text(x_of(tick / 100), top + side + 14, f"{tick} %"), text(left - 4, y_of(tick / 100) + 4, f"{tick} %", "end")]
    at = metrics.THRESHOLD
    parts += [line(x_of(at), top, x_of(at), top + side, "#888", ' stroke-dasharray="4"')]
    parts += [line(left, y_of(at), left + side, y_of(at), "#888", ' stroke-dasharray="4"')]
    for name, right, low in QUADRANT_NAMES:
        x, y = x_of(0.98 if right else 0.01), y_of(0.01 if low else 0.95)
        parts.append(text(x, y, name, "end" if right else "start", ' fill="#999"'))
    for name, model, failure, error in points:
        said = f"{name}, {model}: PEF {100 * failure:.1f} %, MRE {100 * error:.2f} %"
        parts.append(
            f'<circle cx="{x_of(failure):.1f}" cy="{y_of(error):.1f}" r="4" fill="{palette[name]}" fill-opacity="0.7">'
            f"<title>{escape(said)}</title></circle>"
        )
    parts += [text(left + side / 2, top + side + 30, "PEF"), text(12, top + side / 2, "MRE")]
    return svg(left + side + 20, top + side + 40, title, parts)
