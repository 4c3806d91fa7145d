"""The command `gpucast sweep`: src/cli/sweep.cc starts it with options that are checked already."""

from __future__ import annotations

import argparse
import collections
import contextlib
import difflib
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..command import Error, run_command
from .cases import Case, case_at, cases, combination_count, job_of, run_line
from .child import run_in_child
from .engine import OpenBatch, close, cluster_lost, local_engine, ray_engine
from .journal import Journal
from .page import write_page
from .spec import COLUMNS, Spec, read_spec
from .study import run_study
from .summary import cards_text, duration_text, print_summary, summary_of
from .tables import write_csv, write_parquet

EXIT_YES, EXIT_NO, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 2, 130


def main(words: list[str]) -> int:
    options = _options(words)
    if options.engine == "local":
        return _run(options)
    code = run_in_child(lambda: _run(options))
    if code is None:
        print(f"gpucast: {cluster_lost(_folder(options))}", file=sys.stderr)
    return EXIT_FAILED if code is None else code


def _run(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        code = Sweep(options).run()
        sys.stdout.flush()
        return code
    except Error as error:
        print(f"gpucast: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("gpucast: interrupted; the same command goes on from here", file=sys.stderr)
        return EXIT_INTERRUPTED


def _interrupted(*_) -> None:
    raise KeyboardInterrupt


def _folder(options: argparse.Namespace) -> str:
    return os.path.abspath(options.output or os.path.splitext(os.path.basename(options.spec))[0] + ".sweep")


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpucast sweep")
    parser.add_argument("spec")
    parser.add_argument("--output")
    parser.add_argument("--engine", default="local", choices=["local", "ray"])
    parser.add_argument("--address")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--keep-captures")
    for flag in ("--fresh", "--retry-failed", "--dry-run"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--format", default="text", choices=["text", "json"])
    return parser.parse_args(words)


def groups_of(gpus: list[str], capabilities: dict[str, str]) -> list[list[str]]:
    """Cards of one compute capability share a capture."""
    groups: dict[str, list[str]] = {}
    for gpu in gpus:
        groups.setdefault(capabilities[gpu], []).append(gpu)
    return list(groups.values())


def known_capabilities() -> dict[str, str]:
    return {gpu["id"]: gpu["compute_capability"] for gpu in json.loads(run_command(["gpus", "--format", "json"]))["gpus"]}


def _check_gpus(spec: Spec, capabilities: dict[str, str]) -> None:
    for gpu in spec.gpus:
        if gpu not in capabilities:
            near = difflib.get_close_matches(gpu, capabilities, 1)
            to_do = f"did you mean {near[0]}? " if near else ""
            raise Error(f"no card is named {gpu!r}", '"gpus" in the spec', f"{to_do}`gpucast gpus` lists the cards")


def rows_of(spec: Spec, case: Case, gpus: list[str], result: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each card of a job's result."""
    job = job_of(spec, case)
    error = result.get("error") or {}
    rows = []
    for gpu in gpus:
        row = dict.fromkeys(COLUMNS)
        row.update(case=case.id, values=case.values, gpu=gpu, status="failed", seconds=result["seconds"], run=run_line(job, gpu))
        row.update(result["cards"].get(gpu, {}) if not error else {}, error_code=error.get("code"), error=_problem_of(result))
        row["capture"] = result.get("capture") if row["status"] != "failed" else None
        rows.append(row)
    return rows


def _problem_of(result: dict[str, Any]) -> str | None:
    """With the last line of what a script printed that failed: most often its exception."""
    error = result.get("error")
    if not error:
        return None
    lines = (result.get("printed") or "").strip().splitlines() if error["code"] == "script_failed" else []
    return f"{error['message']}: {lines[-1].strip()}" if lines else error["message"]


@dataclass
class Tally:
    total: int  # jobs
    kept: int = 0  # of an earlier start
    done: int = 0
    statuses: collections.Counter = field(default_factory=collections.Counter)
    begin: float = field(default_factory=time.monotonic)


class Sweep:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.spec = read_spec(options.spec)
        self.folder = _folder(options)
        capabilities = known_capabilities()
        _check_gpus(self.spec, capabilities)
        study = self.spec.study is not None  # a trial is of one card
        self.groups = [[gpu] for gpu in self.spec.gpus] if study else groups_of(self.spec.gpus, capabilities)
        self.capabilities = capabilities
        self.case_count = self.spec.study.trials if study else sum(1 for _ in cases(self.spec))
        if self.case_count == 0:
            raise Error("the conditions leave no case", options.spec, "change exclude or require")
        self.tally = Tally(self.case_count * (1 if study else len(self.groups)))
        self.journal: Journal | None = None

    def run(self) -> int:
        if self.options.dry_run:
            return self._show_plan()
        version = run_command(["--version"]).split()[-1]
        path = os.path.join(self.folder, "journal.jsonl")
        data = {**self.spec.data, "--keep-captures": self._kept_captures()}
        self.journal = Journal(path, data, version, self.options.fresh, self.options.retry_failed)
        self.tally.kept = len(self.journal.done)
        try:
            with contextlib.redirect_stdout(sys.stderr):  # Ray prints
                self._run_jobs()
        except Error as error:
            where, to_do = error.where, error.to_do or "the same command goes on from here"
            done = len(self.journal.done)
            what = f"{error.what} ({done:,} of {self.tally.total:,} runs have their rows)" if done else error.what
            raise Error(what, where or self.folder, to_do) from None
        finally:
            self._show_progress(at_end=True)
            self.journal.sync()
        files = self._write_results()
        return self._summary(files)

    def _run_jobs(self) -> None:
        engine = self._engine()
        try:
            self._run_study(engine) if self.spec.study else self._record(engine(self._jobs(self._open_jobs())))
        finally:
            close(engine)

    def _kept_captures(self) -> str | None:
        return os.path.abspath(self.options.keep_captures) if self.options.keep_captures else None

    # ---- jobs and rows

    def _open_jobs(self) -> Iterator[int]:
        for case in cases(self.spec):
            for group in range(len(self.groups)):
                job = case.number * len(self.groups) + group
                if job not in self.journal.done:
                    yield job

    def _jobs(self, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        for number in numbers:
            case, gpus = self._case_and_cards(number)
            job = {**job_of(self.spec, case), "name": str(number), "gpu": gpus[0]}
            if self.options.keep_captures:
                job["output"] = self._capture(case, gpus)
            yield job

    def _capture(self, case: Case, gpus: list[str]) -> str:
        name = f"{case.id}-sm{self.capabilities[gpus[0]].replace('.', '')}.gpucast"
        return os.path.join(self._kept_captures(), name)

    def _case_and_cards(self, number: int) -> tuple[Case, list[str]]:
        case_number, group = divmod(number, len(self.groups))
        return case_at(self.spec, case_number), self.groups[group]

    def _engine(self):
        if self.options.keep_captures:
            os.makedirs(self.options.keep_captures, exist_ok=True)
        if self.options.engine == "ray":
            return ray_engine(self.groups, self.options.jobs, self.tally.total - self.tally.kept, self.options.address)
        return OpenBatch(self.groups, self.options.jobs) if self.spec.study else local_engine(self.groups, self.options.jobs)

    def _record(self, results: Iterable[dict[str, Any]]) -> None:
        for result in results:
            number = int(result["name"])
            if number in self.journal.done:  # one that a lost node had done after all
                continue
            case, gpus = self._case_and_cards(number)
            if not self.options.keep_captures:  # it is gone
                result.pop("capture", None)
            result.setdefault("cards", {})
            rows = rows_of(self.spec, case, gpus, result)
            self.journal.append(number, rows)
            self.tally.done += 1
            self.tally.statuses.update(row["status"] for row in rows)
            self._show_progress()

    def _run_study(self, engine) -> None:
        def run_jobs(numbers: list[int]) -> None:
            self._record(engine(self._jobs(number for number in numbers if number not in self.journal.done)))

        run_study(self.spec, run_jobs, self.journal.rows_of)

    # ---- what the user sees

    def _show_plan(self) -> int:
        if self.spec.study:
            print(f"{self.case_count:,} trials on {cards_text(self.spec)}, out of {combination_count(self.spec):,} cases such as")
        else:
            print(f"{self.case_count:,} cases on {cards_text(self.spec)}: {self.tally.total:,} runs, one for each compute capability")
        shown = list(itertools.islice(cases(self.spec), 11))
        for case in shown[:10]:
            print("  " + run_line(job_of(self.spec, case), self.groups[0][0]))
        if len(shown) > 10:
            print("  ...")
        return EXIT_YES

    def _show_progress(self, at_end: bool = False) -> None:
        if not sys.stderr.isatty():
            return
        tally = self.tally
        left = max(tally.total - tally.kept - tally.done, 0)
        each_s = (time.monotonic() - tally.begin) / max(tally.done, 1)
        line = f"{tally.kept + tally.done} of {tally.total} runs, {tally.statuses['failed']} failed, {each_s:.2f} s each"
        line += f", {duration_text(each_s * left)} left" if left and tally.done else ""
        print(f"\r\033[K{'' if at_end else line}", end="", file=sys.stderr, flush=True)

    def _write_results(self) -> dict[str, str]:
        rows = self.journal.rows
        files = {name: os.path.join(self.folder, name) for name in ("index.html", "rows.csv", "rows.parquet")}
        write_csv(self.spec, rows(), files["rows.csv"])
        try:
            write_parquet(self.spec, rows(), files["rows.parquet"])
        except ImportError:
            del files["rows.parquet"]
            to_do = f"{sys.executable} -m pip install 'gpucast[sweep]' (or pyarrow)"
            print(f"gpucast: no rows.parquet is written: it needs the package pyarrow\n  to do: {to_do}", file=sys.stderr)
        title = os.path.basename(self.options.spec)
        if not write_page(self.spec, title, rows(), files["index.html"]):
            del files["index.html"]
            print("gpucast: no page is written: this gpucast was built without pages (GPUCAST_WEB=OFF)", file=sys.stderr)
        return files

    def _summary(self, files: dict[str, str]) -> int:
        summary = summary_of(self.spec, self.journal.rows())
        summary.update(cases=self.case_count, runs=len(self.journal.done), runs_now=self.tally.done)
        summary.update(seconds=round(time.monotonic() - self.tally.begin, 3), files=[*files.values(), self.journal.path])
        if self.options.format == "json":
            print(json.dumps({"schema_version": 1, **summary}, indent=2))
        else:
            print_summary(self.spec, summary, self.tally.kept)
        statuses = summary["statuses"]
        if statuses["fits"] + statuses["tight"]:
            return EXIT_YES
        return EXIT_NO if statuses["does_not_fit"] else EXIT_FAILED
