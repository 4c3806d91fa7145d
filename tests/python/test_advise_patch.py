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
    print(patched.output.read_text())
    done = patched.run()
    assert history(done) == history(patched.under_what_ifs)
    assert peak(done.report) == peak(patched.under_what_ifs.report)
