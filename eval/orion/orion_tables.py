"""The evaluation in Markdown: plain functions of rows and predictions. A cell of errors is RMSE in ms / median error in %."""

import statistics

from eval.orion import full_rows, own_steps, published
from eval.orion import judged as judging
from eval.tables import markdown, percent

METHODS = (("gpucast", ""), ("roofline", ""), *((name, protocol) for protocol in ("model", "card") for name in ("ORION", "PreNeT")))


def title(method):
    name, protocol = method
    return f"{name}, {judging.PROTOCOLS[protocol]}" if protocol else name


def judged_of(rows):
    return [row for row in rows if not row.seen_by_gpucast]


def pairs(rows, found):
    """[(predicted, measured)] of rows that have one."""
    return [(found[row.name], row.measured_ms) for row in rows if row.name in found]


def cell(some):
    if not some:
        return "-"
    return f"{published.rmse(some):.1f} / {percent(statistics.median(abs(p / m - 1) for p, m in some), 1)}"


def common(rows, predictions, methods):
    """Rows that all methods have."""
    return [row for row in rows if all(row.name in predictions[method] for method in methods)]


def errors_table(what, groups, predictions, methods):
    """groups: {title: rows}."""
    lines = []
    for name, rows in groups.items():
        mine = common(rows, predictions, methods)
        if mine:
            mean = statistics.fmean(row.measured_ms for row in mine)
            cells = [cell(pairs(mine, predictions[method])) for method in methods]
            lines.append([name, len(mine), f"{mean:.1f}", *cells])
    if not lines:
        return "no row has a prediction of every method"
    return markdown([what, "n", "mean step, ms", *map(title, methods)], lines)


def grouped(rows, key):
    groups = {}
    for row in sorted(rows, key=key):
        groups.setdefault(key(row), []).append(row)
    return groups


def protocols_table(rows, predictions):
    lines = []
    for name in ("ORION", "ORION on ms", "PreNeT"):
        mine = [pairs(rows, predictions[name, protocol]) for protocol in judging.PROTOCOLS]
        lines.append([name, *map(cell, mine)])
    return markdown(["trees", *judging.PROTOCOLS.values()], lines)


def twins(rows):
    """Counts rows with a twin: another row that differs only in features of the card or the batch, and at most 10 % in time. A fold over rows sees it."""
    found = 0
    for row in rows:
        found += any(
            other.name != row.name
            and (other.model, other.card) == (row.model, row.card)
            and abs(other.measured_ms / row.measured_ms - 1) < 0.1
            for other in rows
        )
    return found


def kappa_table(rows):
    lines = []
    for family, mine in grouped([row for row in rows if row.step.trains and row.step.all_flops], lambda row: row.family).items():
        ratios = sorted(whole / forward for forward, whole in {(row.step.forward_flops, row.step.all_flops) for row in mine})
        low, high = ratios[len(ratios) // 20], ratios[-1 - len(ratios) // 20]
        lines.append([family, len(ratios), f"{statistics.median(ratios):.3f}", f"{low:.3f} to {high:.3f}"])
    return markdown(["family", "steps", "median", "from the 5th to the 95th percentile"], lines)


def batches_table(rows, predictions):
    """Figures 5 to 7 on our rows: one model on one card at several batches."""
    groups = grouped(rows, lambda row: (row.family, row.model, row.card, row.group, row.table, row.size))
    lines = []
    for (family, model, card, group, _, _), mine in groups.items():
        by_batch = {row.step.samples: row for row in mine}
        for batch, row in sorted(by_batch.items()) if len(by_batch) > 1 else ():
            guesses = [predictions[method].get(row.name) for method in (("ORION", "model"), ("gpucast", ""))]
            shown = [
                text for ms in guesses for text in (("-", "-") if ms is None else (f"{ms:.1f}", f"{100 * (ms / row.measured_ms - 1):+.1f}"))
            ]
            lines.append([family, model, f"{card}, {group}", batch, f"{row.measured_ms:.1f}", *shown])
    if not lines:
        return "no model was measured on one card at several batches"
    return markdown(["family", "model", "card", "batch", "measured ms", "ORION, by model", "off %", "gpucast", "off %"], lines, 3)


def steps_part(rows, predictions, cards, left_out):
    mine = judged_of(rows)
    seen = len(rows) - len(mine)
    counts = {table: len(group) for table, group in grouped(rows, lambda row: row.table).items()}
    parts = [
        "## On the same rows",
        f"{len(rows)} measured steps, of {len({row.model for row in rows})} models on {len({row.card for row in rows})} cards: "
        + ", ".join(f"{table} {count}" for table, count in counts.items())
        + f". Trees learn from all rows that are not held out; the tables show the {len(mine)} rows on which nothing of gpucast was fitted"
        + (f" (the other {seen} are of the half of timm's models that were)" if seen else "")
        + ". Cells: RMSE in ms / median error in %.",
        errors_table("rows", {**grouped(mine, lambda row: row.table), "all": mine}, predictions, METHODS),
        "### What is held out",
        f"Rows of the same model and card within 10 % of each other's time: {twins(mine)} of {len(mine)}. Folds over rows have one of them in training.",
        protocols_table(mine, predictions),
        "### By family (Table 3), five-fold over rows",
        errors_table("family", grouped(mine, lambda row: row.family), predictions, family_methods("row")),
        "### By family, models held out",
        errors_table("family", grouped(mine, lambda row: row.family), predictions, family_methods("model")),
        "### Each chip held out (Figures 2 to 4)",
        errors_table("chip", grouped(mine, lambda row: row.chip), predictions, (*METHODS[:2], ("ORION", "card"), ("PreNeT", "card"))),
        "### Several batches (Figures 5 to 7)",
        batches_table(mine, predictions),
    ]
    if any(row.step.trains for row in rows):
        parts += ["### FLOPs of a step over its forward pass (kappa)", kappa_table(rows)]
    if left_out:
        parts += [f"### Left out: {len(left_out)}", "\n".join(f"- {line}" for line in left_out)]
    return parts


def family_methods(protocol):
    return ("gpucast", ""), ("roofline", ""), ("ORION", protocol), ("PreNeT", protocol)


def beside_part(found):
    return [
        f"### gpucast compared with Figure 6's rows ({own_steps.CARD}, for an L40)",
        markdown(own_steps.HEADER, own_steps.lines(found)),
    ]


def published_part(rows, unseen, problems):
    parts = ["## ORION's own figures"]
    if rows:
        lines = []
        for family, mine in grouped(rows, lambda row: row.family).items():
            some = [(row.predicted_ms, row.measured_ms) for row in mine]
            card = published.FAMILIES[family][2]
            lines.append([f"{family} ({card})", len(mine), f"{statistics.fmean(row.measured_ms for row in mine):.1f}", cell(some)])
        every = [(row.predicted_ms, row.measured_ms) for row in rows]
        lines.append(["all", len(rows), f"{statistics.fmean(row.measured_ms for row in rows):.1f}", cell(every)])
        parts.append(markdown(["published rows", "n", "mean step, ms", "ORION as published"], lines))
    checks = published.check_table_3() + published.check_tables_4_and_5() + published.check_unseen(unseen) + published.check_rows(rows)
    parts.append(markdown(["the paper's claim", "according to its figures"], [[check.claim, check.found] for check in checks], 2))
    if problems:
        parts += ["### Not read", "\n".join(f"- {line}" for line in problems)]
    return parts


# --- ORION's own rows --------------------------------------------------------------------------------------------------------------------


def beside(values, places=None):
    """The paper's figures of a line, in brackets."""
    if values is None:
        return "-"
    return " / ".join(f"{values[place]:.2f}" for place in (places or range(len(values))))


def rmse_pair(pair):
    return "-" if pair is None else f"{pair[1]:.2f} / {pair[0]:.2f}"


def own_part(data, most, folder, seed, progress):
    """The paper's tables and figures on its own rows, if they are in DIR/orion; otherwise []."""
    parts, left_out = [], []
    for family in published.FAMILIES:
        rows, problems = full_rows.rows(data, family, most, seed)
        left_out += problems
        if rows:
            parts += own_family(family, rows, folder, seed, progress)
    if left_out:
        parts += ["### ORION's own rows, left out", "\n".join(f"- {line}" for line in left_out)]
    return ["## ORION's own rows", "RMSE in ms of PreNeT / ORION, next to the paper's."] + parts if parts else []


def own_family(family, rows, folder, seed, progress):
    by_protocol = {
        name: full_rows.predictions(rows, full_rows.by_fold(rows, value, seed), folder, seed, progress)
        for name, value in full_rows.PROTOCOLS.items()
    }
    first = next(iter(by_protocol.values()))
    models = grouped(rows, lambda row: row.model)

    def lines_of(key):
        """RMSE of each model in columns of key(row), over the first protocol."""
        values = sorted({key(row) for row in rows})
        lines = []
        for model, mine in models.items():
            lines.append([model, *(rmse_pair(full_rows.errors([row for row in mine if key(row) == value], first)) for value in values)])
        return values, lines

    table_3 = []
    for model, mine in models.items():
        pairs_of = [full_rows.errors(mine, predicted) for predicted in by_protocol.values()]
        gain = "-" if pairs_of[0] is None else f"{100 * published.improvement(*pairs_of[0]):.1f}"
        paper = full_rows.table_of(published.TABLE_3, model)
        mean = statistics.fmean(row.step_ms for row in mine)
        table_3.append([model, len(mine), f"{mean:.2f}", *map(rmse_pair, pairs_of), gain, beside(paper, (0, 1)), beside(paper, (2,))])
    vcpus, table_4 = lines_of(lambda row: row.vcpus)
    for line in table_4:
        line.append(beside(full_rows.table_of(published.TABLE_4, line[0])))
    tiers, table_5 = lines_of(lambda row: row.storage)
    for line in table_5:
        paper = full_rows.table_of(published.TABLE_5, line[0])
        line += [beside(paper, (2, 3)), beside(paper, (0, 1))]
    unseen = full_rows.predictions(rows, lambda row: row.card, folder, seed, progress)
    logo = [[card, len(mine), rmse_pair(full_rows.errors(mine, unseen))] for card, mine in grouped(rows, lambda row: row.card).items()]
    return [
        f"### {family}: Table 3",
        markdown(["model", "n", "mean step, ms", *by_protocol, "improvement %", "paper", "paper's improvement"], table_3),
        f"### {family}: Table 4, vCPUs",
        markdown(["model", *vcpus, "paper, ORION with 4 / 8 / 16"], table_4),
        f"### {family}: Table 5, storage",
        markdown(["model", *tiers, "paper, NVMe", "paper, SSD"], table_5),
        f"### {family}: {published.FAMILIES[family][0]}, each card held out",
        markdown(["card", "n", "PreNeT / ORION"], logo),
        f"### {family}: {published.FAMILIES[family][1]}, each card held out; means over configurations, and the median error of single rows",
        markdown(["model", "card", "batch", "measured ms", "ORION ms", "off %", "single rows, median %"], own_batches(rows, unseen), 2),
    ]


def own_batches(rows, predicted):
    lines = []
    for (model, card, batch), mine in grouped(rows, lambda row: (row.model, row.card, row.batch)).items():
        mine = [row for row in mine if row.number in predicted]
        if mine:
            measured, guess = full_rows.means(mine, predicted)
            off = f"{100 * (guess / measured - 1):+.1f}"
            lines.append([model, card, batch, f"{measured:.2f}", f"{guess:.2f}", off, percent(full_rows.relative(mine, predicted), 1)])
    return lines
