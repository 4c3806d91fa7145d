"""pytest plugin: a test with a limit of GPU memory or step time runs on the virtual GPU, and fails above the limit.

    @pytest.mark.gpu_memory(limit="20 GiB", gpu="rtx4090")
    @pytest.mark.gpu_step_time(limit="120 ms", gpu="a100-80")

A marked test runs in a child: the parent's own pytest command with this test alone, as a job of `gpucast batch`. The child's reports
become the parent's, which then compares the capture with the limits. docs/howto/memory-limits-in-pytest.md describes the use.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import pytest

MARKS = ("gpu_memory", "gpu_step_time")
PROPERTY = "gpucast."  # "gpucast.rtx4090.device_bytes" is a user property of a test's report, so xdist and JUnit files carry it


def pytest_addoption(parser):
    parser.addini("gpucast_gpu", "the card of gpu_memory and gpu_step_time, for marks without gpu=")
    group = parser.getgroup("gpucast", "GPU memory and step time without a GPU")
    group.addoption("--gpucast-gpu", metavar="NAME", help="the card for marks without gpu=, as `gpucast gpus` names it")
    group.addoption("--gpucast-child", metavar="FILE", help=argparse.SUPPRESS)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_cmdline_main(config):
    if config.option.gpucast_child:
        _Child.prepare(config)
    yield


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu_memory(limit, gpu, of): run on the virtual GPU; fail above this memory ('20 GiB')")
    config.addinivalue_line("markers", "gpu_step_time(limit, gpu): run on the virtual GPU; fail if a step is longer ('120 ms')")
    session = _Child(config) if config.option.gpucast_child else _Parent(config)
    config.pluginmanager.register(session, "gpucast-session")


class _Child:
    """The pytest of one test on the virtual GPU. It writes the test's reports to a file, one a line."""

    # What would write the parent's files, start workers or wait for a terminal. No plugin has read its options yet.
    OPTIONS = {
        "numprocesses": 0,
        "dist": "no",
        "tx": [],
        "distload": False,
        "looponfail": False,
        "forked": False,
        "usepdb": False,
        "trace": False,
        "pyargs": False,
        "xmlpath": None,
        "htmlpath": None,
        "report_log": None,
        "json_report": False,
        "allure_report_dir": None,
        "pastebin": None,
    }

    def __init__(self, config):
        self._config = config
        asked = json.loads(Path(config.option.gpucast_child).read_text())
        self._nodeid, self._reports = asked["nodeid"], asked["reports"]

    @classmethod
    def prepare(cls, config):
        for name, value in cls.OPTIONS.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        asked = json.loads(Path(config.option.gpucast_child).read_text())
        config.option.basetemp = asked["basetemp"]  # pytest empties it: never the parent's
        # The command line is the parent's, so root folder, ini-file and conftests are the same. Only the test's file is collected.
        config.args = [asked["path"]]

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_collection_modifyitems(self, items):
        yield
        # In workers with --dist loadgroup the name ends with "@group".
        items[:] = [item for item in items if self._nodeid == item.nodeid or self._nodeid.startswith(item.nodeid + "@")][:1]

    def pytest_runtest_logreport(self, report):
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        with open(self._reports, "a", encoding="utf-8") as file:
            file.write(json.dumps(data, default=repr) + "\n")


class _Parent:
    def __init__(self, config):
        self._config = config
        self._batch = None  # opened by the first marked test
        self._properties = []  # (test, name, value)
        given = getattr(config, "workerinput", {}).get("gpucast")  # from xdist's controller: a worker has no command line
        self._arguments = given["arguments"] if given else list(map(str, config.invocation_params.args))
        self._folder = given["folder"] if given else str(config.invocation_params.dir)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node):
        node.workerinput["gpucast"] = {"arguments": self._arguments, "folder": self._folder}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        if not any(item.get_closest_marker(name) for name in MARKS):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = []
        # The parent's setup fails: a wrong mark, no gpucast command, a time limit of pytest-timeout.
        setup = pytest.CallInfo.from_call(lambda: reports.extend(self._run(item)), "setup", (pytest.exit.Exception, KeyboardInterrupt))
        if setup.excinfo:
            reports = [pytest.TestReport.from_item_and_call(item, setup)]
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        # Fixtures that earlier tests of this process share end here, as if this test had used them.
        next_one = None if item.session.shouldfail or item.session.shouldstop else nextitem
        teardown = pytest.CallInfo.from_call(lambda: item.session._setupstate.teardown_exact(next_one), "teardown")
        if teardown.excinfo:
            item.ihook.pytest_runtest_logreport(report=pytest.TestReport.from_item_and_call(item, teardown))
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _run(self, item):
        """The reports of a marked test."""
        from . import pytest_limits
        from .command import Error

        try:
            limits = pytest_limits.of_test(item)
            folder = self._config._tmp_path_factory.mktemp("gpucast-" + re.sub(r"\W", "_", item.name)[:30])
            row = self._in_child(item, folder, limits[0].gpu)
            return pytest_limits.judged(item, self._read_reports(item, folder), row, limits, folder)
        except Error as error:
            problem = f"gpucast: {error}"
        except pytest.fail.Exception as error:  # of pytest-timeout
            problem = f"{error}\n  it ran on the virtual GPU; the child's output is in {folder / 'log'}"
        return [pytest_limits.failed(item, "setup", problem)]

    def _in_child(self, item, folder, gpu):
        """The row of `gpucast batch` for this test."""
        asked = {"nodeid": item.nodeid, "path": item.path, "reports": folder / "reports.jsonl", "basetemp": folder / "tmp"}
        (folder / "child.json").write_text(json.dumps(asked, default=str))
        options = [f"--gpucast-child={folder / 'child.json'}", "-o", f"cache_dir={folder / 'cache'}"]
        options += ["--no-cov"] if hasattr(self._config.option, "no_cov") else []  # pytest-cov starts before `prepare`
        if self._batch is None:
            from .local import OpenBatch

            self._batch = OpenBatch(["--jobs", "1"])
        job = {
            "name": folder.name,
            "command": [sys.executable, "-m", "pytest", *options, *self._arguments],
            "folder": self._folder,
            "gpu": gpu,
            "steps": "until-end",
            "output": folder / "run.gpucast",
            "log": folder / "log",
        }
        try:
            return self._batch.run(job)
        except BaseException:
            self.pytest_unconfigure()  # interrupted, or timed out: the next test opens another batch
            raise

    def _read_reports(self, item, folder):
        file = folder / "reports.jsonl"
        reports = []
        for line in file.read_text("utf-8").splitlines() if file.exists() else ():
            data = json.loads(line)
            data.update(nodeid=item.nodeid, location=item.location)
            if isinstance(data["longrepr"], list):  # of a skip; JSON has no tuples
                data["longrepr"] = tuple(data["longrepr"])
            data["user_properties"] = [tuple(pair) for pair in data["user_properties"]]
            reports.append(self._config.hook.pytest_report_from_serializable(config=self._config, data=data))
        return reports

    def pytest_runtest_logreport(self, report):
        if report.when == "call":
            self._properties += [(report.nodeid, *pair) for pair in report.user_properties if str(pair[0]).startswith(PROPERTY)]

    def pytest_terminal_summary(self, terminalreporter):
        rows = {}
        for nodeid, name, value in self._properties:
            card, _, figure = name[len(PROPERTY) :].partition(".")
            rows.setdefault((nodeid, card), {})[figure] = value
        if rows:
            from .pytest_limits import table

            terminalreporter.section("GPU memory, from gpucast")
            for line in table(rows):
                terminalreporter.line(line)

    def pytest_unconfigure(self):
        if self._batch is not None:
            self._batch.close()
            self._batch = None
