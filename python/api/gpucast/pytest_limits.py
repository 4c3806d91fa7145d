"""The limits of a marked test, whether its capture keeps them, and what is printed."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass

import pytest

from .command import Error, run_command

UNITS = {
    "gpu_memory": {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40},
    "gpu_step_time": {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9},
}
EXAMPLES = {"gpu_memory": "'20 GiB' or '512 MiB'", "gpu_step_time": "'120 ms' or '1.5 s'"}
MEMORY = {"device": "device memory", "reserved": "peak reserved", "allocated": "peak allocated"}


@dataclass(frozen=True)
class Limit:
    mark: str  # gpu_memory, gpu_step_time
    gpu: str
    amount: float | None  # bytes or ns; None: the card's own memory
    of: str = ""  # device, reserved, allocated

    def text(self):
        if self.amount is None:
            return "the card"
        return (size if self.mark == "gpu_memory" else duration)(self.amount)


def of_test(item) -> list[Limit]:
    """The limits of a test's marks. The closest mark for a card and a quantity replaces the marks of the class and module."""
    limits = {}
    for name in UNITS:
        for mark in item.iter_markers(name):
            limit = _limit(mark, item.config)
            limits.setdefault((limit.mark, limit.gpu, limit.of), limit)
    return list(limits.values())


def _limit(mark, config) -> Limit:
    is_memory = mark.name == "gpu_memory"
    given = {**dict(zip(("limit",), mark.args)), **mark.kwargs}
    known = ("limit", "gpu", "of") if is_memory else ("limit", "gpu")
    here = f"@pytest.mark.{mark.name}({', '.join([*map(repr, mark.args), *(f'{k}={v!r}' for k, v in mark.kwargs.items())])})"
    unknown = [*map(repr, mark.args[1:]), *(name for name in given if name not in known)]
    if unknown:
        raise Error(f"{mark.name} has no argument {unknown[0]}", here, f"it has {', '.join(known)}")
    gpu = given.get("gpu") or config.getoption("gpucast_gpu") or config.getini("gpucast_gpu")
    if not gpu:
        raise Error(f"{mark.name} names no card", here, "add gpu='rtx4090', or the ini option gpucast_gpu, or --gpucast-gpu rtx4090")
    of = given.get("of", "device" if is_memory else "")
    if is_memory and of not in MEMORY:
        raise Error(f"of={of!r} is no quantity of memory", here, f"choose one of {', '.join(map(repr, MEMORY))}")
    amount = given.get("limit")
    if amount is None and not is_memory:
        raise Error("gpu_step_time has no limit", here, f"add limit={EXAMPLES[mark.name]}")
    return Limit(mark.name, gpu, None if amount is None else _amount(mark.name, amount, here), of)


def _amount(mark: str, text, here: str) -> float:
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", text) if isinstance(text, str) else None
    units = {unit.lower(): factor for unit, factor in UNITS[mark].items()}
    if not match or match[2].lower() not in units:
        raise Error(
            f"the limit {text!r} is no {'memory' if mark == 'gpu_memory' else 'time'}",
            here,
            f"write {EXAMPLES[mark]}: {', '.join(UNITS[mark])}",
        )
    return float(match[1]) * units[match[2].lower()]


def judged(item, reports, row, limits, folder):
    """The child's reports; where the test passed, its call's report says whether the limits are kept."""
    if reports:  # the durations of all phases add up to the child's
        reports[0].duration += max(0, row["seconds"] - sum(report.duration for report in reports))
    call = next((i for i in reversed(range(len(reports))) if reports[i].when == "call"), None)
    ended = {report.when for report in reports if report.when != "call"}
    if call is None and (any(not report.passed for report in reports) or "teardown" in ended):
        return reports
    if call is None:
        return [*reports, failed(item, "call" if reports else "setup", _without_result(row, folder))]
    report = reports[call]
    unexpected = report.failed and str(report.longrepr).startswith("[XPASS(strict)]")
    if not (report.passed or unexpected):
        return reports
    problems, properties = _problems(item, row, limits, folder)
    if problems:
        reports[call] = failed(item, "call", "\n\n".join(problems), report)
        if unexpected or hasattr(report, "wasxfail"):  # an expected failure
            reports[call].outcome = "skipped"
            reports[call].wasxfail = getattr(report, "wasxfail", str(report.longrepr).partition("] ")[2])
    for later in reports[call:]:  # JUnit files take them from the last one
        later.user_properties = [*later.user_properties, *properties]
    return reports


def failed(item, when, message, report=None):
    call = pytest.CallInfo.from_call(lambda: pytest.fail(message, pytrace=False), when)
    failed = pytest.TestReport.from_item_and_call(item, call)
    if report is not None:
        failed.sections, failed.duration, failed.user_properties = report.sections, report.duration, report.user_properties
    return failed


def _without_result(row, folder):
    """The child ended before the test did: a crash, an error while pytest collected the file."""
    log = folder / "log"
    printed = log.read_text("utf-8", "replace").rpartition("\ngpucast: ")[0].splitlines() if log.exists() else []
    printed = [line for line in printed if not re.search(r"site-packages/(_pytest|pluggy)/|^Extension modules: ", line)]
    message, *to_do = _error_lines(row)  # "what it printed is above"
    return "\n".join([message, *(["", *printed[-30:], ""] if printed else []), *to_do])


def _error_lines(row):
    error = row["error"] or {"message": "pytest did not run the test", "to_do": ""}
    return [f"gpucast: {error['message']}", *([f"  to do: {error['to_do']}"] if error["to_do"] else [])]


def _problems(item, row, limits, folder):
    """(what is wrong, one text each; the figures as user properties)"""
    if not row["report"]:
        return ["\n".join(["the test passed, and gpucast could not report on it", *_error_lines(row)])], []
    judged_ranks = [rank["capture"] for rank in row["report"].get("ranks", ()) if rank["judged"]]
    capture = judged_ranks[0] if judged_ranks else str(folder / "run.gpucast")
    problems, properties = [], []
    for gpu in dict.fromkeys(limit.gpu for limit in limits):
        of_card = [limit for limit in limits if limit.gpu == gpu]
        report = row["report"] if gpu == limits[0].gpu else json.loads(run_command(["analyze", capture, "--gpu", gpu, "--format", "json"]))
        step = _step(capture, gpu)
        figures = _figures(report, step)
        for limit in of_card:
            figures[f"{limit.of or 'step'}_limit"] = f"{limit.text()}{' ' + limit.of if limit.of not in ('', 'device') else ''}"
            problem = _memory_problem if limit.mark == "gpu_memory" else _time_problem
            problems += problem(item, limit, report, step, capture)
        properties += [(f"gpucast.{gpu}.{name}", value) for name, value in figures.items()]
    return problems, properties


def _step(capture, gpu):
    """`gpucast time`, or the Error that says why there is no step."""
    try:
        return json.loads(run_command(["time", capture, "--gpu", gpu, "--format", "json"]))
    except Error as error:
        return error


def _figures(report, step):
    figures = {
        "device_bytes": report["device"]["expected_bytes"],
        "reserved_bytes": report["peak"]["reserved_bytes"],
        "allocated_bytes": report["peak"]["allocated_bytes"],
    }
    if not isinstance(step, Error):
        figures["step_ns"] = step["step"]["expected_ns"]
    return figures


def _memory_problem(item, limit, report, step, capture):
    is_bytes = _figures(report, step)[f"{limit.of}_bytes"]
    if limit.amount is not None and is_bytes > limit.amount:
        title = f"{size(is_bytes)} {MEMORY[limit.of]} on {limit.gpu}, the limit is {limit.text()} (+{100 * (is_bytes / limit.amount - 1):.1f} %)"
    elif report["verdict"] == "does_not_fit":
        title = f"does not fit {limit.gpu}: {report['verdict_reason']}"
    else:
        return []
    at = report["peak"]["allocated_at"]
    place = [f"{at['phase']}, step {at['step']}", *([f"in {at['module']}"] if at["module"] else []), *_own_line(item, at["stack"])]
    breakdown = ["breakdown", capture, "--by", "module", "--gpu", limit.gpu]
    lines = [f"gpu_memory: {title}", f"  the peak: {', '.join(place)}", "", *run_command(breakdown).split("\n\n")[:2], ""]
    lines += _largest_modules(json.loads(run_command([*breakdown, "--format", "json"])))
    return ["\n".join([*lines, "", f"more: gpucast explain {capture} --gpu {limit.gpu}"])]


def _largest_modules(breakdown):
    """Lines: the modules with the most memory at the peak. Siblings of one type share a line; so do a module and its only child."""
    modules = breakdown["by"]["module"]
    alike = {}
    for index, module in enumerate(modules):
        if not module["itself"] and module["peak"]["total_bytes"]:
            alike.setdefault((module["parent"], module["type"]), []).append(index)
    totals = {key: sum(modules[i]["peak"]["total_bytes"] for i in same) for key, same in alike.items()}
    of_children = {(parent, total) for (parent, _), total in totals.items()}
    yield f"{'By module':<59}  MiB"
    shown = [key for key in alike if len(alike[key]) > 1 or (alike[key][0], totals[key]) not in of_children]
    for key in sorted(shown, key=lambda key: -totals[key])[:8]:
        (parent, kind), same = key, alike[key]
        name = modules[same[0]]["name"] if len(same) == 1 else f"{modules[parent]['name']}.*"
        kind = f"{len(same)} x {kind}" if len(same) > 1 else kind
        categories = Counter()
        for i in same:
            categories.update({category: part["bytes"] for category, part in modules[i]["peak"]["categories"].items()})
        parts = ", ".join(f"{category.replace('_', ' ')} {part / 2**20:.0f}" for category, part in categories.most_common(2))
        yield f"  {f'{name} ({kind})'.strip() if kind else '(outside of modules)':<50.50} {totals[key] / 2**20:10.2f}   {parts}"


def _own_line(item, stack):
    """The line of the user's own code that a stack goes through."""
    own = [frame for frame in stack if frame.startswith(str(item.config.rootpath) + os.sep) and "site-packages" not in frame]
    return [f"at {os.path.relpath(own[0], item.config.rootpath)}"] if own else []


def _time_problem(item, limit, report, step, capture):
    more = f"more: gpucast time {capture} --gpu {limit.gpu}"
    if isinstance(step, Error):
        return [f"gpu_step_time: the step's time is not known\n  {step}\n{more}"]
    expected_ns = step["step"]["expected_ns"]
    if expected_ns <= limit.amount:
        return []
    low, high = (duration(step["step"][end]) for end in ("low_ns", "high_ns"))
    lines = [
        f"gpu_step_time: {duration(expected_ns)} a step on {limit.gpu}, the limit is {limit.text()} (+{100 * (expected_ns / limit.amount - 1):.1f} %)",
        f"  90 % within {low} to {high}; {step['bound']}-bound: the GPU works {duration(step['gpu_ns'])}, the host {duration(step['host_ns'])}",
    ]
    for title, rows in (("phase", step["by_phase"]), ("module", step["by_module"]), ("kernel", step["kernels"])):
        largest = sorted(rows, key=lambda part: -part["gpu_ns"])[:5]
        lines += ["", f"By {title:<46} GPU time    share"]
        lines += [
            f"  {part['name'] or '(no module)':<46.46} {duration(part['gpu_ns']):>10}  {100 * part['share']:5.1f} %" for part in largest
        ]
    return ["\n".join([*lines, "", more])]


def table(rows):
    """Lines: one a test and card, the largest first."""
    head = ("test", "card", "peak reserved", "device", "a step", "limit")
    lines = []
    for (nodeid, card), figures in sorted(rows.items(), key=lambda row: -row[1]["device_bytes"]):
        step = duration(figures["step_ns"]) if "step_ns" in figures else "-"
        limits = ", ".join(str(value) for name, value in figures.items() if name.endswith("_limit"))
        lines.append((_shortened(nodeid, 50), card, size(figures["reserved_bytes"]), size(figures["device_bytes"]), step, limits))
    widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
    for line in (head, *lines):
        cells = [text.rjust(width) if 2 <= i <= 4 else text.ljust(width) for i, (text, width) in enumerate(zip(line, widths))]
        yield "  ".join(cells).rstrip()


def _shortened(text, length):
    return text if len(text) <= length else "..." + text[3 - length :]


def size(amount_bytes):
    unit, factor = ("GiB", 2**30) if amount_bytes >= 2**30 else ("MiB", 2**20)
    return f"{amount_bytes / factor:.2f} {unit}"


def duration(amount_ns):
    unit, factor = next(((unit, factor) for unit, factor in (("s", 1e9), ("ms", 1e6)) if amount_ns >= factor), ("us", 1e3))
    amount = amount_ns / factor
    return f"{amount:.3g} {unit}" if amount < 999.5 else f"{amount:.0f} {unit}"
