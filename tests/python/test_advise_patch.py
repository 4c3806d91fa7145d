"""`gpucast advise --write-patch`: the patched script needs the same memory as the run under what-ifs, to the byte, or the report says what to
change by hand."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_run_what_if import BY_HAND, SCRIPT, edited, history, peak

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
        job = {"places": places, "what_ifs": what_ifs, "folder": str(self.folder), "output": str(self.output), "header": ["gpucast advise: it"]}
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
@pytest.mark.parametrize("name", [*(name for name in BY_HAND if not name.startswith("batch:")), "bf16-weights", "foreach", "checkpoint:blocks.1"])
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


def test_a_batch_option_and_an_optimizer_for_each_parameter(gpucast):
    what_ifs = ("micro-batch:2", "bf16-weights", "offload-optimizer", "checkpoint:Block")
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
    assert patched.by_hand["fused"].startswith("a library calls it, from line")
