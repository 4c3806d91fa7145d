"""The steps of action.yml, run as GitHub's runner does: bash with -eo pipefail, inputs as variables, and fakes of gpucast and gh."""

import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ACTION = (Path(__file__).resolve().parent.parent.parent / "action.yml").read_text()
FAKE = '#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done >> "$0.words"\n'


def script(name):
    (step,) = [step for step in re.split(r"\n    - name: ", ACTION) if step.startswith(name + "\n")]
    return textwrap.dedent(re.search(r"\n      run: (?:\|\n)?(.*?)(?:\n\n|\Z)", step, re.DOTALL).group(1))


class Runner:
    def __init__(self, folder):
        self.folder = folder
        (folder / "bin").mkdir()

    def fake(self, name, then):
        path = self.folder / "bin" / name
        path.write_text(FAKE + then)
        path.chmod(0o755)

    def words(self, name):
        path = self.folder / "bin" / f"{name}.words"
        return path.read_text().splitlines() if path.exists() else []

    def run(self, step, **variables):
        files = {name: str(self.folder / name.lower()) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        environment = {**os.environ, **files, **variables, "RUNNER_TEMP": str(self.folder)}
        environment["PATH"] = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script(step)]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=30)


@pytest.fixture
def runner(tmp_path):
    return Runner(tmp_path)


def test_a_check_with_all_inputs(runner):
    runner.fake("gpucast", f"echo '### broken' > {runner.folder}/gpucast-check.md\nexit 1\n")
    done = runner.run("Check", CONFIG="ci/gpucast.toml", JOBS="a, b c", SARIF="out.sarif", JUNIT="out.xml")
    assert done.returncode == 0, done.stderr
    report = f"markdown={runner.folder}/gpucast-check.md"
    options = ["--config", "ci/gpucast.toml", "--write", "sarif=out.sarif", "--write", "junit=out.xml", "--job", "a", "--job", "b c"]
    assert runner.words("gpucast") == ["check", "--force", "--write", report, *options]
    assert (runner.folder / "github_output").read_text() == "exit-code=1\n"
    assert (runner.folder / "github_step_summary").read_text() == "### broken\n"
    assert runner.run("Verdict", CODE="1").returncode == 1 and runner.run("Verdict", CODE="0").returncode == 0


def test_a_check_that_wrote_nothing(runner):
    (runner.folder / "gpucast-check.md").write_text("of an earlier step")
    runner.fake("gpucast", "exit 2\n")
    assert runner.run("Check", CONFIG="", JOBS="", SARIF="", JUNIT="").returncode == 0
    assert runner.words("gpucast")[-1].startswith("markdown=")
    assert (runner.folder / "github_output").read_text() == "exit-code=2\n"
    assert not (runner.folder / "github_step_summary").exists()


@pytest.mark.parametrize(("former", "wanted"), [("", ["POST", "issues/7/comments"]), ("41\n42", ["PATCH", "issues/comments/41"])])
def test_a_comment_is_made_once(runner, former, wanted):
    (runner.folder / "gpucast-check.md").write_text("### good\n")
    runner.fake("gh", f"case $* in *--paginate*) printf '{former}' ;; esac\n")
    done = runner.run("Comment", NUMBER="7", MARK="<!-- gpucast check  -->", GITHUB_REPOSITORY="me/it")
    assert done.returncode == 0, done.stderr
    body = f"body=@{runner.folder}/gpucast-comment.md"
    assert runner.words("gh")[-5:] == ["--method", wanted[0], f"repos/me/it/{wanted[1]}", "--field", body]
    assert (runner.folder / "gpucast-comment.md").read_text() == "<!-- gpucast check  -->\n### good\n"
