"""The evaluation as a document: blocks that are written as Markdown or as one HTML page."""

from html import escape

from eval import tables
from eval.papers import charts, estimators, metrics
from eval.papers.truth import GPUCAST, REQUESTED
from eval.tables import percent

ALL = "all"
NO_CARD_RAN = (GPUCAST, REQUESTED, estimators.LLMEM, estimators.SCHEDTUNE)  # with these estimates as the limit


def gigabytes(value):
    return "-" if value is None else f"{value / 1e9:.2f}"


def between(interval, write):
    return "-" if interval is None else f"{write(interval[0])} to {write(interval[1])}"


def estimators_of(rows):
    """gpucast first, then xMem, then the others."""
    names = {name for row in rows for name in row.estimates}
    return sorted(names, key=lambda name: (not name.startswith(GPUCAST), not name.lower().startswith("xmem"), name))


def pairs_of(rows, estimator):
    return [(row, row.estimates[estimator]) for row in rows if estimator in row.estimates]


def group_by(rows, key):
    groups = {}
    for row in sorted(rows, key=lambda row: str(key(row))):
        groups.setdefault(key(row), []).append(row)
    return groups


# --- Tables: (header, lines) ---------------------------------------------------------------------------------------------------------


def summary(rows, seed, draws, without=()):
    """One line for each estimator and kind of model; MCP of the Monte Carlo rows only, as in the paper."""
    header = ["estimator", "rows", "median error %", "worst %", "MRE %", "95 %", "wrong OOM", "PEF %", "95 %", "MCP GB", "95 %"]
    lines = []
    for kind, group in {**group_by(rows, lambda row: row.kind), ALL: rows}.items():
        for name in estimators_of(rows):
            pairs = pairs_of(group, name)
            if not pairs or name in without:
                continue
            drawn = [pair for pair in pairs if pair[0].experiment == "montecarlo"]
            first = tables.known(metrics.first_error(*pair) for pair in pairs)
            lines.append(
                [
                    f"{kind}: {name}",
                    len(pairs),
                    percent(tables.median(first)),
                    percent(max(first, default=None)),
                    percent(metrics.mre(pairs)),
                    between(metrics.bootstrap(pairs, metrics.mre, seed, draws), percent),
                    sum(not metrics.is_right(*pair) for pair in pairs),
                    percent(metrics.pef(pairs), 1),
                    between(metrics.bootstrap(pairs, metrics.pef, seed, draws), lambda value: percent(value, 1)),
                    gigabytes(metrics.mcp(drawn)),
                    between(metrics.bootstrap(drawn, metrics.mcp, seed, draws), gigabytes),
                ]
            )
    return header, lines


def by_factor(rows, key, what):
    """MRE and PEF of every estimator by model, or by optimizer."""
    names = estimators_of(rows)
    header = [what, "rows", *(f"{name} {measure} %" for name in names for measure in ("MRE", "PEF"))]
    lines = []
    for level, group in group_by(rows, key).items():
        cells = []
        for name in names:
            pairs = pairs_of(group, name)
            cells += [percent(metrics.mre(pairs)), percent(metrics.pef(pairs), 1)]
        lines.append([level, len(group), *cells])
    return header, lines


def distributions(rows, key, what):
    """The box plots as figures."""
    header = [f"{what}: estimator", "rows", "lowest %", "first quartile %", "median %", "third quartile %", "highest %"]
    lines = []
    for level, group in error_groups(rows, key).items():
        for name, values in group.items():
            lines.append([f"{level}: {name}", len(values), *(percent(value) for value in metrics.quartiles(values))])
    return header, lines


def error_groups(rows, key):
    """{level: {estimator: [errors]}}, without levels that have none."""
    groups = {}
    for level, group in group_by(rows, key).items():
        errors = {name: tables.known(metrics.error_of(*pair) for pair in pairs_of(group, name)) for name in estimators_of(rows)}
        if any(errors.values()):
            groups[level] = {name: values for name, values in errors.items() if values}
    return groups


def quadrant_points(rows):
    points = []
    for name in estimators_of(rows):
        for model, group in group_by(rows, lambda row: row.model).items():
            pairs = pairs_of(group, name)
            failure, error = metrics.pef(pairs), metrics.mre(pairs)
            if failure is not None and error is not None:
                points.append((name, model, failure, error))
    return points


def quadrant_counts(points):
    quadrants = ("optimal", "overestimation", "underestimation", "worst")
    found = {}
    for name, _, failure, error in points:
        found.setdefault(name, []).append(metrics.quadrant(failure, error))
    return ["models in the quadrant", *quadrants], [[name, *(seen.count(word) for word in quadrants)] for name, seen in found.items()]


def variance(rows, seed):
    """Does the error depend on the model, the optimizer, the card?"""
    header = ["error of", "factor", "rows", "F", "degrees of freedom", "eta squared", "p"]
    lines = []
    factors = {"model": lambda row: row.model, "optimizer": lambda row: row.optimizer, "card": lambda row: row.gpu}
    for name in estimators_of(rows):
        for what, key in factors.items():
            groups = {level: group.get(name, []) for level, group in error_groups(rows, key).items()}
            found = metrics.analysis_of_variance(groups, seed)
            if found:
                freedom = f"{found['between']}, {found['within']}"
                count = sum(map(len, groups.values()))
                lines.append([name, what, count, f"{found['f']:.2f}", freedom, f"{found['eta2']:.2f}", f"{found['p']:.3f}"])
    return header, lines


def second_rounds(rows, virtual):
    """`virtual`: {(row name, estimator): ran out of memory on the virtual GPU}; compared with the real cards."""
    header = [
        "second round of",
        "run on the virtual GPU",
        "out of memory",
        "also on a card",
        "the same",
        "only virtual OOM",
        "only real OOM",
    ]
    lines = []
    for name in estimators_of(rows):
        seen = [(row, virtual[row.name, name]) for row in rows if (row.name, name) in virtual]
        if not seen:
            continue
        real = [(row.estimates[name].second_oom, oom) for row, oom in seen]
        real = [pair for pair in real if pair[0] is not None] if name not in NO_CARD_RAN else []
        counts = [sum(a == b for a, b in real), sum(b and not a for a, b in real), sum(a and not b for a, b in real)]
        lines.append([name, len(seen), sum(oom for _, oom in seen), len(real) or "-", *(counts if real else "---")])
    return header, lines


def runtimes(rows):
    header = ["estimator", "rows", "mean s", "median s", "longest s"]
    lines = []
    for name in estimators_of(rows):
        pairs = pairs_of(rows, name)
        seconds = tables.known(estimate.runtime_s for _, estimate in pairs)
        if seconds:
            figures = metrics.runtime(pairs), tables.median(seconds), max(seconds)
            lines.append([name, len(seconds), *(f"{figure:.2f}" for figure in figures)])
    return header, lines


# --- The document --------------------------------------------------------------------------------------------------------------------


def blocks_of(sources, virtual, about, seed, draws):
    """Blocks: ("heading", level, text), ("text", text), ("table", header, lines), ("figures", header, lines) of the picture before,
    ("picture", svg). sources: {name: rows}."""
    blocks = [("heading", 1, "Evaluation by the papers' measures")]
    blocks.append(("table", ["", ""], [[key, value] for key, value in about.items()]))
    blocks.append(
        (
            "text",
            "MRE is the median relative error, of the second round if an estimator had one. PEF is the share of rows with a wrong "
            "out-of-memory verdict or a failed second round (with the estimate as the limit). MCP is the mean memory left over in the "
            "Monte Carlo rows; a failure costs the whole card. 95 % intervals: the same number of rows drawn with replacement. No real "
            "card ran with the estimates of gpucast or of the rewritten estimators as its limit: such a second round counts as failed if it fails on the virtual GPU or if "
            "the measured need is above the limit. gpucast's requests were calibrated on all xMem rows, so its figures on them are no "
            "prediction: docs/results/upper-bound.md has figures on rows left out. 'SchedTune, anew' and 'LLMem, anew' are written here from their "
            "descriptions (eval/papers/estimators.py); 'SchedTune' and 'LLMem' are the paper's authors' results with the originals. SchedTune "
            "anew has learned from the rows of all models except the judged one, on these cards; the original from other networks on other cards.",
        )
    )
    for source, rows in sources.items():
        blocks += source_blocks(source, rows, virtual, seed, draws)
    return blocks


def source_blocks(source, rows, virtual, seed, draws):
    judged = any(row.total_bytes for row in rows)
    blocks = [("heading", 2, f"{source}: {len(rows)} rows, {sum(row.oom for row in rows)} out of memory")]
    blocks.append(("table", *summary(rows, seed, draws)))
    unseen = [row for row in rows if not row.fitted]
    if len(unseen) < len(rows):
        blocks.append(("heading", 3, f"The {len(unseen)} rows that were not used for any constant of gpucast"))
        blocks.append(("table", *summary(unseen, seed, draws, without=[REQUESTED])))
    model, optimizer = (lambda row: row.model), (lambda row: row.optimizer)
    for kind, group in group_by(rows, lambda row: row.kind).items():
        blocks.append(("heading", 3, f"{source}, {kind}: errors by model"))
        blocks.append(("picture", charts.box_plots(f"{source}, {kind}: relative error by model", error_groups(group, model))))
        blocks.append(("table", *by_factor(group, model, "model")))
        blocks.append(("figures", *distributions(group, model, "model")))
    blocks.append(("heading", 3, f"{source}: errors by optimizer"))
    blocks.append(("picture", charts.box_plots(f"{source}: relative error by optimizer", error_groups(rows, optimizer))))
    blocks.append(("table", *by_factor(rows, optimizer, "optimizer")))
    blocks.append(("figures", *distributions(rows, optimizer, "optimizer")))
    for experiment, group in group_by(rows, lambda row: row.experiment).items() if judged else ():
        points = quadrant_points(group)
        blocks.append(("heading", 3, f"{source}, {experiment}: quadrants"))
        blocks.append(("picture", charts.quadrants(f"{source}, {experiment}: a point is a model", points)))
        blocks.append(("table", *quadrant_counts(points)))
    blocks.append(("heading", 3, f"{source}: analysis of variance"))
    blocks.append(("table", *variance(rows, seed)))
    if any((row.name, name) in virtual for row in rows for name in row.estimates):
        blocks.append(("heading", 3, f"{source}: second round on the virtual GPU"))
        blocks.append(("table", *second_rounds(rows, virtual)))
    blocks.append(("heading", 3, f"{source}: runtime"))
    blocks.append(("table", *runtimes(rows)))
    return blocks


def markdown(blocks):
    """Without pictures: the tables have their figures."""
    parts = []
    for kind, *content in blocks:
        if kind == "heading":
            parts.append("#" * content[0] + " " + content[1])
        elif kind == "text":
            parts.append(content[0])
        elif kind in ("table", "figures"):
            header, *lines = ([str(cell).replace("|", "\\|") for cell in line] for line in [content[0], *content[1]])
            parts.append(tables.markdown(header, lines))
    return "\n\n".join(parts) + "\n"


STYLE = """body { font: 15px/1.5 sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #111; background: #fff }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px; display: block; overflow-x: auto }
td, th { padding: 2px 8px; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap } td:first-child, th:first-child { text-align: left }
svg { display: block; width: 100%; height: auto; margin: 1em 0 }"""


def html(blocks):
    title = next(content[1] for kind, *content in blocks if kind == "heading")
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style></head><body>'
    ]
    for kind, *content in blocks:
        if kind == "heading":
            parts.append(f"<h{content[0]}>{escape(content[1])}</h{content[0]}>")
        elif kind == "text":
            parts.append(f"<p>{escape(content[0])}</p>")
        elif kind in ("table", "figures"):
            header, lines = content
            head = "".join(f"<th>{escape(str(cell))}</th>" for cell in header)
            body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in lines)
            table = f"<table><tr>{head}</tr>{body}</table>"
            parts.append(table if kind == "table" else f"<details><summary>The plot's figures</summary>{table}</details>")
        else:
            parts.append(content[0])
    return "\n".join([*parts, "</body></html>"]) + "\n"
