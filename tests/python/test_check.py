"""`gpucast check` with real runs. Limits, growth and each report's parts are in src/check/*_test.cc; what it prints is in tests/cases/check_*."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

pytestmark = pytest.mark.once

# A table decides the peak; the argument is its MiB. PyTorch reserves 22 MiB for the rest.
TRAIN = """
import sys, torch
from torch import nn

class Net(nn.Module):
    def __init__(self, size_mib):
        super().__init__()
        self.register_buffer("table", torch.empty(size_mib << 18, device="cuda"))
        self.fc = nn.Linear(8, 8, device="cuda")

    def forward(self, x):
        return self.fc(x)

net = Net(int(sys.argv[1]))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    net(torch.ones(4, 8, device="cuda")).sum().backward()
    optimizer.step()
"""


def job(name, size_mib, more=""):
    return f'[[job]]\nname = "{name}"\ncommand = ["{sys.executable}", "train.py", "{size_mib}"]\n{more}\n'


class Project:
    def __init__(self, gpucast_bin, folder):
        self.gpucast_bin, self.folder, self.path = gpucast_bin, folder, folder / "gpucast.toml"
        (folder / "train.py").write_text(TRAIN)

    def config(self, *jobs):
        self.path.write_text('[defaults]\ngpu = ["rtx3090", "rtx3060"]\nlimits = { growth = "5%" }\n\n' + "\n".join(jobs))

    def check(self, *words, folder=None):
        command = [self.gpucast_bin, "check", *words]
        # Without pytest's variable, which is another in each test: a run in the cache is of the same environment.
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        return subprocess.run(
            command, cwd=folder or self.folder, env=environment, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL
        )

    @property
    def baseline(self):
        return (self.folder / "gpucast.baseline.json").read_text()


@pytest.fixture(scope="module")
def project(gpucast_bin, own_cache, tmp_path_factory):
    """Its baseline is written with jobs that reserve 1000 MiB; now one reserves 4 % more, one 6 % more, one raises, one is new."""
    project = Project(gpucast_bin, tmp_path_factory.mktemp("project"))
    project.config(job("four", 978), job("six", 978))
    project.written = project.check("--update-baseline")
    project.first_baseline = project.baseline
    project.config(
        job("four", 1018), job("six", 1038), job("raises", "a word"), job("new", 978, 'gpu = "rtx3090"\nlimits = { step_time = "10 s" }')
    )
    project.reports = tmp_path_factory.mktemp("reports")
    written = [f"--write={form}={project.reports / name}" for form, name in FORMS.items()]
    project.all = project.check(*written)
    return project


FORMS = {"json": "check.json", "sarif": "check.sarif", "junit": "check.xml", "markdown": "check.md"}


def test_a_baseline_is_written_whole(project):
    assert project.written.returncode == 0, project.written.stderr
    baseline = json.loads(project.first_baseline)
    assert sorted(baseline["jobs"]) == ["four", "six"]
    card = baseline["jobs"]["six"]["rtx3060"]
    sizes = [sum(value for value in module.values() if isinstance(value, int)) for module in card["modules"]]
    assert sum(sizes) == card["peak_allocated_bytes"] <= card["peak_reserved_bytes"]


def test_growth_of_six_percent_fails_and_of_four_passes(project):
    assert project.check("--job", "four").returncode == 0
    six = project.check("--job", "six")
    assert six.returncode == 1, six.stdout + six.stderr
    assert "Peak reserved grew by 60.00 MiB (+6.0 %), from 1000.00 to 1060.00 MiB" in six.stdout, six.stdout
    assert "(root) (Net): buffers +60.0 MiB" in six.stdout and "train.py:8" in six.stdout
    assert "kept from before" in six.stderr, "an earlier check made this run"


def test_a_failed_job_is_a_result_and_leaves_the_others(project):
    assert project.all.returncode == 2
    assert "FAILED raises" in project.all.stdout and "ValueError" in project.all.stdout
    report = json.loads((project.reports / "check.json").read_text())
    assert report["schema_version"] == 1 and report["failed_jobs"] == 1 and report["broken"] == 2
    jobs = {job["name"]: job for job in report["jobs"]}
    assert jobs["raises"]["error"]["code"] == "script_failed" and jobs["raises"]["cards"] == []
    outcomes = {limit["figure"]: limit["outcome"] for limit in jobs["new"]["cards"][0]["limits"]}
    assert outcomes == {"fits": "passed", "step_time": "passed", "growth": "unknown"}
    (grown,) = [module for module in jobs["six"]["cards"][0]["growth"]["modules"] if module["change_bytes"] > 2**20]
    assert (grown["type"], grown["change_bytes"], grown["file"], grown["line"]) == ("Net", 60 << 20, "train.py", 8)


def test_ci_systems_can_read_the_files(project):
    sarif = json.loads((project.reports / "check.sarif").read_text())
    results = sarif["runs"][0]["results"]
    assert [result["ruleId"] for result in results] == ["gpucast/growth", "gpucast/growth", "gpucast/job-failed"]
    assert results[0]["locations"][0]["physicalLocation"]["region"]["startLine"] == 3
    assert results[0]["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "train.py"
    root = ElementTree.parse(project.reports / "check.xml").getroot()
    assert (root.tag, root.get("tests"), root.get("failures"), root.get("errors")) == ("testsuites", "6", "2", "1")
    assert float(root.get("time")) > 0
    cases = {(case.get("classname"), case.get("name")): case for case in root.iter("testcase")}
    assert "buffers +60.0 MiB" in cases["six", "rtx3060"].find("failure").text
    assert cases["four", "rtx3090"].find("failure") is None and cases["four", "rtx3090"].find("system-out") is not None
    assert "ValueError" in cases["raises", "run"].find("system-out").text
    assert (project.reports / "check.md").read_text().startswith("### ❌ GPU check: 2 of ")


def test_a_failed_job_leaves_the_baseline(project):
    former = project.path.read_text()
    project.config(job("four", 1018), '[[job]]\nname = "gone"\ncommand = "no-such-program"\n')
    done = project.check("--update-baseline")
    project.path.write_text(former)
    assert done.returncode == 2 and "was not written" in done.stdout
    assert "no such command: 'no-such-program'" in done.stdout
    assert project.baseline == project.first_baseline
    assert sorted(path.name for path in project.folder.iterdir()) == ["gpucast.baseline.json", "gpucast.toml", "train.py"]


def test_an_update_of_one_job_keeps_the_others(project):
    done = project.check("--update-baseline", "--job", "six")
    assert done.returncode == 0, done.stdout
    before, after = json.loads(project.first_baseline), json.loads(project.baseline)
    assert after["jobs"]["four"] == before["jobs"]["four"] and after["jobs"]["six"] != before["jobs"]["six"]
    assert project.check("--job", "six").returncode == 0
    (project.folder / "gpucast.baseline.json").write_text(project.first_baseline)


def test_the_file_above_is_found(project):
    below = project.folder / "below"
    below.mkdir()
    done = project.check("--job", "four", folder=below)
    below.rmdir()
    assert done.returncode == 0 and "four" in done.stdout


@pytest.fixture
def empty(gpucast_bin, tmp_path):
    return Project(gpucast_bin, tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config", "none.toml"], "No such file"),
        (["--job", "fuor"], "did you mean 'four'?"),
        (["-o", "none/check.md"], "folder does not exist"),
        (["-o", "train.py"], "exists"),
        (["--write", "check.md"], "such as --write markdown=check.md"),
        (["--write", "html=check.html"], "such as --write markdown=check.md"),
        (["--format", "html"], "--format"),
    ],
)
def test_a_wrong_command_line(empty, words, message):
    empty.config(job("four", 1))
    done = empty.check(*words)
    assert done.returncode == 2 and not done.stdout
    assert message in done.stderr


def test_a_wrong_file_has_line_and_column(empty):
    assert "there is no gpucast.toml" in empty.check().stderr
    empty.config(job("four", 1, "gpu_ = 3"))
    done = empty.check()
    assert done.returncode == 2 and not done.stdout
    assert "gpucast.toml:8:1" in done.stderr and "did you mean 'gpu'?" in done.stderr
    empty.config(job("four", 1, 'folder = "gone"'))
    assert "gpucast.toml:5:1" in empty.check().stderr
    empty.path.write_text('[[job]\nname = "a"\n')
    assert "gpucast.toml:1:7" in empty.check().stderr


def test_a_baseline_that_cannot_be_used(empty):
    empty.config(job("four", 1))
    (empty.folder / "gpucast.baseline.json").write_text("<<<<<<< main\n")
    done = empty.check()
    assert done.returncode == 2 and "gpucast.baseline.json" in done.stderr and "--update-baseline" in done.stderr
    text = empty.path.read_text()
    empty.path.write_text('baseline = "none/base.json"\n' + text)
    assert empty.check("--update-baseline").returncode == 2
