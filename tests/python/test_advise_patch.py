"""`gpucast advise --write-patch`: the patched script needs the same memory as the run under what-ifs, to the byte, or the report says what to
change by hand."""

import hashlib
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_run_what_if import BY_HAND, LANGUAGE, SCRIPT, edited, history, peak

pytestmark = pytest.mark.once

WRITE = Path(__file__).resolve().parent.parent.parent / "python/patch/write.py"


class Patched:
    """A script with a patch of its run under what-ifs."""

    def __init__(self, gpucast, script, *what_ifs, arguments=(), apply=("git", "apply")):
        self.under_what_ifs = gpucast(script, *(word for name in what_ifs for word in ("--what-if", name)), arguments=arguments)
        assert self.under_what_ifs.code == 0, self.under_what_ifs.err
        places = self.under_what_ifs.capture.one("process")["places"]
        self.folder = gpucast.job
        self.output = self.folder.parent / "out.patch"
        job = {
            "places": places,
            "what_ifs": what_ifs,
            "folder": str(self.folder),
            "output": str(self.output),
            "header": ["gpucast advise: it"],
        }
        (self.folder.parent / "job.json").write_text(json.dumps(job))
        done = subprocess.run([sys.executable, WRITE, self.folder.parent / "job.json"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        self.answer = json.loads(done.stdout)
        self.by_hand = {entry["what_if"]: entry["why"] for entry in self.answer.get("by_hand", ())}
        self.script = self._applied(script, apply) if self.answer.get("files") else None
        self._gpucast, self._arguments = gpucast, arguments

    def _applied(self, script, apply):
        copy = self.folder.parent / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        (copy / "train.py").write_text(script)
        subprocess.run([*apply, str(self.output)], cwd=copy, check=True, capture_output=True)
        assert (self.folder / "train.py").read_text() == script  # the user's own file stays
        return (copy / "train.py").read_text()

    def run(self, arguments=None):
        done = self._gpucast(self.script, arguments=self._arguments if arguments is None else arguments)
        assert done.code == 0, done.err + self.script
        return done


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*(name for name in BY_HAND if not name.startswith("batch:")), "bf16-weights", "foreach", "checkpoint:blocks.1"]
)
def test_each_change_as_a_patch(gpucast, name):
    script = SCRIPT.replace("AdamW(model.parameters())", "AdamW(model.parameters(), foreach=False)") if name == "foreach" else SCRIPT
    patched = Patched(gpucast, script, name)
    assert patched.by_hand == {}, patched.answer
    done = patched.run()
    assert history(done) == history(patched.under_what_ifs)
    assert peak(done.report) == peak(patched.under_what_ifs.report)


def test_several_changes_in_one_patch(gpucast):
    patched = Patched(gpucast, SCRIPT, "micro-batch:4", "checkpoint:Block=0-1,3", "bf16", "fused", "set-to-none")
    assert patched.by_hand == {}
    assert history(patched.run()) == history(patched.under_what_ifs)
    assert patched.answer["files"] == [{"name": "train.py", "added": 17, "removed": 6}]


def test_a_batch_option_and_another_optimizer(gpucast):
    what_ifs = ("micro-batch:2", "bf16-weights", "factored-optimizer", "checkpoint:Block")
    patched = Patched(gpucast, SCRIPT, *what_ifs, arguments=["--batch-size", "512"], apply=("patch", "-p1", "-i"))
    assert patched.by_hand == {}
    assert "batch_size=batch)" in patched.script
    assert history(patched.run(["--batch-size", "256"])) == history(patched.under_what_ifs)


LOOP = SCRIPT[SCRIPT.index("parser =") :]

IN_FUNCTIONS = SCRIPT.replace(
    LOOP,
    """
def build(width):
    return Net(width).cuda()


def make_optimizer(parameters):
    return torch.optim.AdamW(
        parameters,
        lr=1e-4,
    )


def train_epoch(model, loader, optimizer, scheduler, scaler):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(
            model(x),
            y,
        )
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()


def main():
    model = build(512)
    optimizer = make_optimizer(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loader = DataLoader(TensorDataset(torch.zeros(2048, 64), torch.zeros(2048, dtype=torch.long)), 512)
    for _ in range(3):
        train_epoch(model, loader, optimizer, scheduler, torch.amp.GradScaler())


if __name__ == "__main__":
    main()
""",
)


def test_a_model_built_in_a_function_and_a_loop_in_another(gpucast):
    patched = Patched(gpucast, IN_FUNCTIONS, "micro-batch:2", "checkpoint:Block=1-2", "bf16", "no-foreach", "set-to-none")
    assert patched.by_hand == {}
    assert peak(patched.run().report) == peak(patched.under_what_ifs.report)
    assert "        lr=1e-4, foreach=False,\n" in patched.script
    assert "            scheduler.step()\n" in patched.script  # once for the batch, as the optimizer


IN_A_CLASS = SCRIPT.replace(
    LOOP,
    """
class Trainer:
    def __init__(self, model):
        self.model = model.cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def train_step(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def fit(self, loader):
        for x, y in loader:
            self.train_step(x.cuda(), y.cuda())


Trainer(Net(512)).fit(DataLoader(TensorDataset(torch.zeros(2048, 64), torch.zeros(2048, dtype=torch.long)), batch_size=512))
""",
)


def test_a_trainer_whose_loop_is_elsewhere(gpucast):
    patched = Patched(gpucast, IN_A_CLASS, "micro-batch:4", "checkpoint:Block", "bf16", "fused")
    assert patched.answer["placed"] == ["checkpoint:Block", "bf16", "fused"]
    (why,) = patched.by_hand.values()
    assert why == "the loop around line 40, loss.backward(), is in another function"
    assert "by hand: micro-batch:4: the loop around line 40" in patched.output.read_text()
    assert "512 // 4" not in patched.script  # nothing of a change that is made by hand
    without = gpucast(IN_A_CLASS, *(word for name in patched.answer["placed"] for word in ("--what-if", name)))
    assert history(patched.run()) == history(without)


LIBRARY = """
import torch
from torch.nn.functional import cross_entropy


def fit(model, loader):
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()
"""

WITH_A_LIBRARY = SCRIPT.replace(
    LOOP,
    """
import library

model = Net(512).cuda()
loader = DataLoader(TensorDataset(torch.zeros(2048, 64), torch.zeros(2048, dtype=torch.long)), batch_size=512)
library.fit(model, loader)
""",
)


def test_a_loop_in_a_library(gpucast):
    """Its lines are not the user's: only the model is."""
    folder = gpucast.job / "lib/site-packages"
    folder.mkdir(parents=True)
    (folder / "library.py").write_text(LIBRARY)
    script = WITH_A_LIBRARY.replace("import library", 'import sys\n\nsys.path.insert(0, "lib/site-packages")\nimport library')
    patched = Patched(gpucast, script, "checkpoint:Block=0", "micro-batch:2", "fused", "bf16", "optimizer-in-backward")
    assert patched.answer["placed"] == ["checkpoint:Block=0"]
    assert set(patched.by_hand) == {"micro-batch:2", "fused", "bf16", "optimizer-in-backward"}
    assert patched.by_hand["fused"].startswith("a library does it, from line")


AUTOCAST = [("    loss = model(ids, ids)\n", "    with torch.autocast('cuda', dtype=torch.bfloat16):\n        loss = model(ids, ids)\n")]


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [("logits = self.head(hidden)\n", "logits = self.head(hidden).float()\n")],
        [("logits.shape[-1]", "8000"), ("logits[..., :-1, :].", "logits[..., :-1, :].float().")],
        [
            ("        logits = self.head(hidden)\n", ""),
            ("logits[..., :-1, :].reshape(-1, logits.shape[-1])", "self.head(hidden)[..., :-1, :].reshape(-1, 8000)"),
        ],
    ],
)
def test_a_loss_in_chunks(gpucast, pairs):
    patched = Patched(gpucast, edited([*AUTOCAST, *pairs], LANGUAGE), "chunked-loss:4")
    if "self.head(hidden).float()" in str(pairs):
        assert patched.by_hand == {"chunked-loss:4": "line 15 has another form than logits = head(hidden)"}
        return
    assert patched.by_hand == {}
    assert peak(patched.run().report) == peak(patched.under_what_ifs.report)


def test_a_script_that_is_no_file(gpucast):
    what_ifs = ("checkpoint:Block", "fused")
    words = [word for name in what_ifs for word in ("--what-if", name)]
    done = gpucast("", *words, command=[sys.executable, "-c", SCRIPT])
    assert done.code == 0, done.err
    places = done.capture.one("process")["places"]
    job = {"places": places, "what_ifs": what_ifs, "folder": str(gpucast.job), "output": str(gpucast.job / "out.patch"), "header": []}
    assert written(job) == {"placed": [], "by_hand": [{"what_if": name, "why": "the script is no file"} for name in what_ifs], "files": []}
    assert not (gpucast.job / "out.patch").exists()


def written(job):
    path = Path(job["folder"]) / "job.json"
    path.write_text(json.dumps(job))
    return json.loads(subprocess.run([sys.executable, WRITE, path], capture_output=True, text=True, timeout=60, check=True).stdout)


def job_of(path, line, kind="fused"):
    """As a run records an optimizer that is made in this line, without columns: Python before 3.11."""
    site = {"file": str(path), "function": "<module>", "first_line": 1, "line": line, "names": []}
    note = {"kind": kind, "direct": True, "count": 1, "about": 0, "called": "AdamW", "sites": [site]}
    files = {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}
    places = {"python": sys.executable, "main": str(path), "is_complete": True, "files": files, "notes": [note], "what_ifs": {}}
    return {"places": places, "what_ifs": [kind], "folder": str(path.parent), "output": str(path.parent / "out.patch"), "header": ["first"]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("o = torch.optim.AdamW(parameters_of(p))", "o = torch.optim.AdamW(parameters_of(p), fused=True)"),
        ("o = AdamW(p, foreach=True,)  # all", "o = AdamW(p, foreach=None, fused=True,)  # all"),
        ("o = AdamW(q for q in p)", "o = AdamW((q for q in p), fused=True)"),
        ("o = AdamW(p, lr=(1e-4))", "o = AdamW(p, lr=(1e-4), fused=True)"),
        ("o = AdamW(p, fused=x and 'é')", "o = AdamW(p, fused=True)"),
        ("o = AdamW(params=p); x = 1", "o = AdamW(params=p, fused=True); x = 1"),
        ("o = AdamW(p, **settings)", "line 1 hands over arguments with *"),
        ("o = AdamW(AdamW(p))", "line 1 has no single call that could be meant"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_calls_as_people_write_them(tmp_path, before, after, end):
    script = tmp_path / "train.py"
    script.write_bytes(f"{before}{end}".encode())
    job = job_of(script, 1)
    answer = written(job)
    if after.startswith("line"):
        assert answer["by_hand"] == [{"what_if": "fused", "why": after}]
        return
    assert answer["placed"] == ["fused"], answer
    subprocess.run(["git", "apply", "out.patch"], cwd=tmp_path, check=True)
    assert script.read_bytes() == f"{after}{end}".encode()


def test_a_script_that_was_changed_since(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("o = AdamW(p)\n")
    job = job_of(script, 1)
    script.write_text("o = AdamW(p, 1)\n")
    assert written(job) == {
        "problem": "the file was changed since the run",
        "where": str(script),
        "to_do": "ask again: runs of a changed script are made anew",
    }


def test_an_output_that_cannot_be_written(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("o = AdamW(p)\n")
    (tmp_path / "folder").mkdir()
    answer = written({**job_of(script, 1), "output": str(tmp_path / "folder")})
    assert answer["problem"] == "the patch cannot be written: Is a directory"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("missing/out.patch", "the patch cannot be written: no file that we may write to"),
        ("train.py", "the file is there, and it is no patch of gpucast advise"),
        ("train.py/", "the patches cannot be written: no folder that we may write to"),
    ],
)
def test_wrong_outputs_are_said_before_the_search(gpucast_bin, tmp_path, path, said):
    (tmp_path / "train.py").write_text("raise SystemExit('it ran')\n")
    words = [gpucast_bin, "advise", "--gpu", "rtx3060", "--write-patch", path, "--", sys.executable, "train.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert said in done.stderr and path in done.stderr and "it ran" not in done.stderr
    assert (tmp_path / "train.py").read_text() == "raise SystemExit('it ran')\n"


@pytest.fixture
def advise(gpucast_bin, tmp_path):
    def run(script, *words, arguments=()):
        (tmp_path / "train.py").write_text(script)
        command = [gpucast_bin, "advise", "--gpu", "rtx3060", *words, "--format", "json", "--", sys.executable, "train.py", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "train.py").read_text() == script
        return json.loads(done.stdout)

    return run


def needs_what_the_point_says(gpucast_bin, folder, patch, point):
    subprocess.run(["git", "apply", patch["path"]], cwd=folder, check=True)
    words = [gpucast_bin, "run", "--gpu", "rtx3060", "--format", "json", "--", *patch["command"]]
    report = json.loads(subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=240).stdout)
    assert report["peak"]["reserved_bytes"] == point["peak_reserved_bytes"]
    assert report["device"]["expected_bytes"] == point["device_expected_bytes"]
    assert report["what_if"] == []


@pytest.mark.slow
def test_the_best_as_a_patch(advise, gpucast_bin, tmp_path):
    script = SCRIPT.replace("torch.zeros(4 * batch, 64)", "torch.zeros(4 * batch, 2048, 64)").replace("model(x)", "model(x).mean(1)")
    advice = advise(script, "--runs", "4", "--write-patch", "out.patch", arguments=["--batch-size", "64"])
    (patch,) = advice["patches"]
    point = advice["points"][patch["point"]]
    assert patch["point"] == advice["best"] and patch["path"] == "out.patch" and patch["by_hand"] == []
    first, figures, _, run, *_ = (tmp_path / "out.patch").read_text().splitlines()
    assert first == f"gpucast advise: {', '.join(point['what_ifs'])}, on rtx3060"
    assert figures.endswith(f"{point['samples_per_s']:.4g} samples/s") and run == f"run it as: {shlex.join(patch['command'])}"
    needs_what_the_point_says(gpucast_bin, tmp_path, patch, point)


@pytest.mark.slow
def test_a_patch_for_each_point_of_the_front(advise, gpucast_bin, tmp_path):
    advice = advise(SCRIPT, "--runs", "2", "--write-patch", "patches/", arguments=["--batch-size", "1024"])
    front = [place for place, point in enumerate(advice["points"]) if point["on_front"] and point["what_ifs"]]
    assert [patch["point"] for patch in advice["patches"]] == front
    (patch,) = [patch for patch in advice["patches"] if patch["path"] == "patches/micro-batch-2.patch"]
    assert patch["placed"] == ["micro-batch:2"] and patch["command"][-1] == "512"
    assert patch["files"] == [{"name": "train.py", "added_lines": 7, "removed_lines": 3}]
    needs_what_the_point_says(gpucast_bin, tmp_path, patch, advice["points"][patch["point"]])


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("micro-batch:2", "fused", "bf16")])
def test_a_compiled_model(gpucast, more):
    """Under the what-if, as a patch, and written by hand."""
    patched = Patched(gpucast, SCRIPT, "compile", *more)
    assert patched.answer["placed"] == ["compile", *more], patched.answer
    assert "model = Net(512).cuda()\nmodel.compile()\n" in patched.script
    by_what_if, by_patch = patched.under_what_ifs, patched.run()
    assert by_what_if.report["what_if"][0] == {"name": "compile", "acted": True, "did": "Net compiled by torch.compile"}
    assert peak(by_patch.report) == peak(by_what_if.report)
    if not more:
        wrapped = gpucast(SCRIPT.replace("optimizer = ", "model = torch.compile(model)\noptimizer = "))
        assert peak(wrapped.report) == peak(by_what_if.report) != peak(gpucast(SCRIPT).report)
        again = gpucast(patched.script, "--what-if", "compile")
        assert again.report["what_if"][0] == {"name": "compile", "acted": False, "did": "the script compiles its model already"}
