"""`gpucast run --cudnn`: the workspaces that the user's own cuDNN would choose, asked without a GPU (docs/reference/cudnn.md).

The helper's ways to fail are tested with a library of our own (fakes/cudnn.c). What the real one answers is tested where
GPUCAST_CUDNN names the folder that it was installed in (`make test-cudnn`).
"""

import itertools
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

MIB = 2**20
_numbers = itertools.count()
HERE = Path(__file__).resolve().parent

SCRIPT = """
import torch
deterministic = {deterministic}
torch.backends.cudnn.deterministic = deterministic
torch.backends.cudnn.benchmark = {benchmark}
model = torch.nn.Conv2d(16, 16, 3, padding=1, bias=False).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.zeros(8, 16, 32, 32, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler for the stand-in")
    path = tmp_path_factory.mktemp("cudnn") / "libcudnn.so.9"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wl,-soname,libcudnn.so.9", "-o", path, HERE / "fakes/cudnn.c", "-ldl"], check=True)
    return path


@pytest.fixture
def fake(library, own_cache, tmp_path):
    """The stand-in in a folder as pip leaves cuDNN's wheel in. Its version is its own, and so are the answers that are kept."""

    class Fake:
        folder = tmp_path / "target"
        version = f"9.8.{next(_numbers)}"
        answers = own_cache / "gpucast/cudnn" / version

        def behaves(self, how):
            (self.folder / "nvidia/cudnn/lib/behaviour").write_text(how)

    for name in ("lib", "include"):
        (Fake.folder / "nvidia/cudnn" / name).mkdir(parents=True)
    shutil.copy(library, Fake.folder / "nvidia/cudnn/lib")
    header = "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 8\n#define CUDNN_PATCHLEVEL " + Fake.version.rpartition(".")[2]
    (Fake.folder / "nvidia/cudnn/include/cudnn_version.h").write_text(header + "\n")
    return Fake()


@pytest.fixture
def asked(gpucast, fake):
    def run(behaviour="well", cudnn=None, deterministic=False, benchmark=False, **environment):
        fake.behaves(behaviour)
        script = SCRIPT.format(deterministic=deterministic, benchmark=benchmark)
        return gpucast(script, "--gpu", "rtx3060", "--cudnn", str(cudnn or fake.folder), environment=environment)

    return run


def plans(run):
    """(operation, engine, workspace bytes) of each convolution that ran."""
    calls = [call[3] for call in run.capture.of("call") if call[1:3] == ["cudnn", "cudnnBackendExecute"]]
    return [(call["operations"][0]["op"], call["engine"], call["workspace_bytes"], call.get("asked", "")) for call in calls]


def warnings(run):
    return [warning["code"] for warning in run.report["warnings"]]


def test_pytorch_chooses_from_the_ranked_list(asked, fake):
    """Engine 7 has no plan, 8 is next in cuDNN's order."""
    run = asked()
    assert plans(run) == 2 * [(op, 8, 32 * MIB, fake.version) for op in ("convolution_forward", "convolution_backward_filter")]
    sizes = [event[2] for event in run.capture.of("alloc")]
    assert sizes.count(32 * MIB) == 4
    line = next(line for line in run.report["ledger"] if line["what"] == "convolution workspaces")
    assert line["expected_bytes"] == 0 and line["source"].startswith(f"asked of cuDNN {fake.version}")


def test_notes_reach_pytorchs_own_filter(asked):
    assert {plan[1:3] for plan in plans(asked(deterministic=True))} == {(9, 48 * MIB)}


def test_benchmark_tries_them_and_keeps_the_first(asked):
    run = asked(benchmark=True)
    assert {plan[1] for plan in plans(run)} == {8, 9}
    assert plans(run)[-1][1] == 8


def test_off_and_missing(asked, tmp_path):
    run = asked(cudnn="off")
    assert {plan[3] for plan in plans(run)} == {""}
    (tmp_path / "empty").mkdir()
    missing = asked(cudnn=tmp_path / "empty")
    assert missing.code == 2 and f"there is no libcudnn.so.9 in {tmp_path}/empty" in missing.err and "pip install --no-deps" in missing.err
    nowhere = asked(cudnn=tmp_path / "nowhere")
    assert nowhere.code == 2 and "say auto, ask or off" in nowhere.err


@pytest.mark.once
@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        ("crash", "it crashed while it looked for engines"),
        ("crash_at_start", "it crashed while cuDNN was loaded"),
        ("old", "this release (90100) answers only on a GPU"),
    ],
)
def test_the_run_goes_on_without_it(asked, behaviour, why):
    run = asked(behaviour)
    assert run.code == 0
    assert {plan[3] for plan in plans(run)} == {""}
    warning = next(warning for warning in run.report["warnings"] if warning["code"] == "cudnn_not_asked")
    assert why in warning["message"]
    same = asked(cudnn="off")
    assert run.report["peak"] == same.report["peak"]


@pytest.mark.once
def test_a_hanging_helper_is_left_behind(asked, fake):
    start = time.monotonic()
    run = asked("hang", GPUCAST_CUDNN_TIMEOUT_S="0.5")
    assert run.code == 0 and time.monotonic() - start < 60
    warning = next(warning for warning in run.report["warnings"] if warning["code"] == "cudnn_not_asked")
    assert "it hung while it looked for engines" in warning["message"]
    assert not helpers(fake)


@pytest.mark.once
def test_what_it_cannot_say_is_as_without_it(asked):
    run = asked("silent")
    assert run.code == 0 and {plan[3] for plan in plans(run)} == {""}
    line = next(line for line in run.report["ledger"] if line["what"] == "convolution workspaces")
    assert line["source"].startswith("not modelled")


@pytest.mark.once
def test_answers_are_kept(asked, fake):
    first = asked()
    (kept,) = fake.answers.glob("*.txt")
    assert len(kept.read_text().split("\n")) == 3  # each begins with a new line
    again = asked("crash")  # without effect: cuDNN is not asked
    assert again.code == 0 and plans(again) == plans(first) and "cudnn_not_asked" not in warnings(again)
    # A damaged file is no answer.
    lines = kept.read_text().split("\n")[1:]
    kept.write_text(lines[0][:-3] + "\nnonsense\n" + lines[1] + "\n" + lines[1][:40])
    damaged = asked()
    assert plans(damaged) == plans(first)
    assert len(kept.read_text().splitlines()) == 5


@pytest.mark.once
def test_a_failure_is_not_kept(asked, fake):
    """It may be of this moment, as without memory."""
    failed = asked("fail")
    assert failed.code == 0 and {plan[3] for plan in plans(failed)} == {""}
    assert not list(fake.answers.glob("*.txt"))
    assert {plan[3] for plan in plans(asked())} == {fake.version}


@pytest.mark.once
def test_nothing_of_it_is_left(asked, fake):
    asked()
    assert not helpers(fake)


def helpers(fake):
    """Processes of this test's helper that still run, after a moment."""
    for _ in range(50):
        found = []
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = process.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "cudnn_helper" in words[0] and words[1].startswith(f"{fake.folder}/"):
                found.append(words)
        if not found:
            return []
        time.sleep(0.1)
    return found


# ---- the real one ------------------------------------------------------------------------------------------------------------------

REAL = os.environ.get("GPUCAST_CUDNN", "")
real = pytest.mark.skipif(not REAL, reason="GPUCAST_CUDNN names no folder with cuDNN 9.8 or newer")


@real
def test_real_answers_replay_and_repeat(gpucast, gpucast_bin):
    """ResNet-50's first layers and others: the allocator's replay gives the same history, and kept answers do, too."""
    script = (HERE.parent.parent / "examples/train_resnet50.py").read_text()
    runs = []
    for _ in range(2):
        run = gpucast(script, "--gpu", "rtx3060", "--cudnn", REAL, arguments=("--batch", "8"), fresh=True)
        assert run.code == 0 and "cudnn_not_asked" not in warnings(run)
        asked_plans = [plan for plan in plans(run) if plan[3]]
        assert len(asked_plans) == len(plans(run)) > 300
        assert any(plan[2] > MIB for plan in asked_plans)
        runs.append(run)
    assert runs[0].capture.allocator() == runs[1].capture.allocator()
    replayed = subprocess.run([gpucast_bin, "replay", runs[0].capture_path, "--format", "json"], capture_output=True, text=True)
    assert replayed.returncode == 0, replayed.stderr
    warned = {warning["code"] for warning in runs[0].report["warnings"]}
    assert "replay_differs" not in warned
