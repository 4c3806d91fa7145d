"""Golden cases: tests/cases/NAME holds a capture (as text), a command and its expected output.

    input.jsonl      the capture's lines; compressed to train.gpucast before the command runs
    input_of         instead: the case with the input
    second_input_of  optional: a case with a second input, named second instead of train
    input.events.txt.gz    instead: an event file; expected.jsonl.gz next to it is for test_replay.py
    input.pickle     instead: a memory snapshot, as train.pickle
    input.trace.json.gz    instead: a profiler trace, as train.json.gz (tests/cases/PROFILES.md says how each was made)
    input.jobs.csv, input.jobs.jsonl   instead: a table of jobs, as train.csv or train.jsonl
    command          the arguments of gpucast
    expected.txt     standard output with --format text, then standard error
    expected.json    standard output with --format json
    expected.csv, expected.md   optional: standard output with --format csv, --format markdown
    exit_code
    keep_bytes       optional: cut the compressed file after this number of bytes
    uncompressed     optional: leave the file as it is
    constants.json, machine.json, card.json, prices.json   optional: a file of constants, a machine, a card, prices, next to the capture
    gpucast.toml, gpucast.baseline.json   the same, for `gpucast check`

GPUCAST_UPDATE_CASES=1 writes the present output as the expected one: look at the difference before you commit it.
"""

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

CASES = Path(__file__).resolve().parent.parent / "cases"
UPDATE = os.environ.get("GPUCAST_UPDATE_CASES") == "1"


def prepare(case, folder, name="train"):
    source = CASES / (case / "input_of").read_text().strip() if (case / "input_of").exists() else case
    if (source / "input.pickle").exists():
        shutil.copy(source / "input.pickle", folder / f"{name}.pickle")
        return
    if (source / "input.events.txt.gz").exists():
        shutil.copy(source / "input.events.txt.gz", folder / f"{name}.events.txt.gz")
        return
    if (source / "input.trace.json.gz").exists():
        data = (source / "input.trace.json.gz").read_bytes()
        if (case / "keep_bytes").exists():
            data = gzip.decompress(data)[: int((case / "keep_bytes").read_text())]
        (folder / f"{name}.json{'' if (case / 'keep_bytes').exists() else '.gz'}").write_bytes(data)
        return
    for form in "csv", "jsonl":
        if (source / f"input.jobs.{form}").exists():
            shutil.copy(source / f"input.jobs.{form}", folder / f"{name}.{form}")
            return
    data = (source / "input.jsonl").read_bytes()
    if not (case / "uncompressed").exists():
        data = gzip.compress(data, compresslevel=0, mtime=0)  # stored, so that offsets in messages are the same everywhere
    if (case / "keep_bytes").exists():
        data = data[: int((case / "keep_bytes").read_text())]
    (folder / f"{name}.gpucast").write_bytes(data)


def expect(path, text):
    if UPDATE:
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("case", sorted(case for case in CASES.iterdir() if case.is_dir()), ids=lambda case: case.name)
def test_case(case, gpucast_bin, tmp_path):
    prepare(case, tmp_path)
    for beside in "constants.json", "machine.json", "card.json", "prices.json", "gpucast.toml", "gpucast.baseline.json":
        if (case / beside).exists():
            shutil.copy(case / beside, tmp_path)
    if (case / "second_input_of").exists():
        prepare(CASES / (case / "second_input_of").read_text().strip(), tmp_path, "second")
    arguments = (case / "command").read_text().split()
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    further = [form for form, suffix in (("csv", "csv"), ("markdown", "md")) if (case / f"expected.{suffix}").exists()]
    for form in "text", "json", *further:
        done = subprocess.run(
            [gpucast_bin, *arguments, "--format", form], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        if form == "text":
            expect(case / "expected.txt", done.stdout + done.stderr)
        elif done.stdout:
            expect(case / f"expected.{'md' if form == 'markdown' else form}", done.stdout)
        expect(case / "exit_code", f"{done.returncode}\n")
