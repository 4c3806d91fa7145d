"""`gpucast sweep`: its spec, its cases, its journal and its tables; and a sweep on this machine."""

import csv
import json
import shlex
import signal
import subprocess
import sys
import time
import tracemalloc

import pytest
from gpucast import Error
from gpucast.sweep import tables
from gpucast.sweep.cases import case_at, cases, job_of, run_line
from gpucast.sweep.conditions import BadCondition, parse_condition
from gpucast.sweep.journal import Journal
from gpucast.sweep.main import groups_of, rows_of
from gpucast.sweep.spec import read_spec
from gpucast.sweep.summary import summary_of

pytestmark = pytest.mark.once


def spec_of(folder, text, name="sweep.json"):
    path = folder / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return read_spec(str(path))


def small(**changes):
    return {"command": "python t.py", "gpus": ["rtx3060"], "vary": {"--batch": [8, 16]}, **changes}


# ---- the spec


def test_one_spec_in_three_languages(tmp_path):
    pytest.importorskip("yaml")
    as_json = small(vary={"--batch": {"from": 8, "to": 64, "times": 2}, "--lr": ["1e-4", 0.5], "--amp": [True, False]})
    yaml = """
command: python t.py   # what to run
gpus: [rtx3060]
vary:
  --batch: {from: 8, to: 64, times: 2}
  --lr: [1e-4, 0.5]
  --amp: [true, false]
"""
    specs = [spec_of(tmp_path, as_json), spec_of(tmp_path, yaml, "sweep.yaml")]
    if sys.version_info >= (3, 11):
        toml = 'command = "python t.py"\ngpus = ["rtx3060"]\n[vary]\n--batch = {from = 8, to = 64, times = 2}\n'
        specs.append(spec_of(tmp_path, toml + '--lr = ["1e-4", 0.5]\n--amp = [true, false]\n', "sweep.toml"))
    assert all(spec == specs[0] for spec in specs)
    assert len(list(cases(specs[0]))) == 16


@pytest.mark.parametrize(
    ("name", "text", "line", "message"),
    [
        ("s.yaml", "command: python t.py\nvary:\n  --batch: [8, 16\ngpus: a\n", "line 4, column 5", "not YAML"),
        ("s.yaml", "command: python t.py\nvari:\n  --batch: [8]\n", "line 2, column 1", 'there is no "vari" in a spec'),
        ("s.yaml", "command: python t.py\nvary:\n  --batch: {from: 8, too: 16, step: 1}\n", "line 3, column 22", 'there is no "too"'),
        ("s.yaml", "command: a\ncommand: b\n", "line 2, column 1", '"command" is there twice'),
        ("s.yaml", "command: a\nvary:\n  --b: [1, 1]\n", "line 3, column 12", "the value 1 twice"),
        (
            "s.yaml",
            "command: a\ngpus: a\nvary: {--b: [1, 2]}\nexclude:\n  - --c > 1\n",
            "line 5, column 5",
            "names --c, which does not vary",
        ),
        ("s.toml", 'command = "a\n', "line 1, column 13", "not TOML"),
        ("s.toml", 'command = "a"\n[vary]\n"--b" = []\n', "line 3, column 1", '"--b" has no values'),
        ("s.json", '{"command": "a",\n "vary": {"--b": [1]}\n "gpus": []}', "line 3, column 2", "not JSON"),
        ("s.json", '{"command": "a",\n "gpu": "rtx3060"}', "line 2, column 2", 'there is no "gpu" in a spec'),
    ],
)
def test_errors_have_line_and_column(tmp_path, name, text, line, message):
    if name.endswith("yaml"):
        pytest.importorskip("yaml")
    if name.endswith("toml") and sys.version_info < (3, 11):
        pytest.skip("no tomllib")
    with pytest.raises(Error) as error:
        spec_of(tmp_path, text, name)
    assert message in error.value.what and error.value.where == f"{name}, {line}" and error.value.to_do


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"command": None}, '"command" must be'),
        ({"vary": {"batch": [8]}}, "no word of the command has {batch} in it"),
        ({"vary": {"--b": {"from": 8, "to": 4, "step": 1}}}, "never goes from 8 to 4"),
        ({"vary": {"--b": {"from": 0, "to": 4, "times": 2}}}, "never goes from 0 to 4"),
        ({"gpus": []}, '"gpus" must name cards'),
        ({"list": [{"--batch": 1}]}, 'is in "list" and in "vary"'),
        ({"study": {"trials": 3, "maximise": "speed"}}, '"study" must have maximise or minimise'),
        ({"vary": {f"--{name}": list(range(100)) for name in "abcd"}}, "100,000,000 combinations are more"),
        ({"steps": "many"}, '"steps" must be'),
        ({"folder": "/no/such"}, '"folder" is no folder'),
    ],
)
def test_bad_specs_are_refused(tmp_path, changes, message):
    with pytest.raises(Error) as error:
        spec_of(tmp_path, small(**changes))
    assert message in error.value.what and error.value.where.startswith("sweep.json")


def test_a_missing_package_names_the_line_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(Error, match="needs the package PyYAML") as error:
        spec_of(tmp_path, "command: a\n", "sweep.yaml")
    assert f"{sys.executable} -m pip install 'gpucast[sweep]'" in error.value.to_do


# ---- conditions


def test_conditions():
    values = {"--batch": 8, "--seq": "1e3", "--lr-end": 0.5, "tp": 2, "model": "vit", "train.b=": 4, "$OMP": 1}

    def holds(text):
        return parse_condition(text, list(values)).holds(values)

    assert holds("--batch * --seq <= 8000") and not holds("--batch*--seq > 8000")
    assert holds("--batch % tp == 0 and model != 'bert'") and not holds("model == 'bert'")
    assert holds("(--batch + 2) * tp - 1 == 19") and holds("train.b= == 4") and holds("$OMP == 1") and holds("--lr-end < 1")
    for text in (
        "--batch",
        "--batch >",
        "--batch > 1 2",
        "(--batch > 1",
        "__import__('os').system('x') == 0",
        "model > 3",
        "--bath > 1",
        "tp / 0 == 1",
    ):
        with pytest.raises(BadCondition):
            holds(text)


# ---- cases


def test_words_of_a_case(tmp_path):
    data = small(command="python t.py --model {model} 'a b'", environment={"DATA": "/data/{model}", "GONE": None})
    data["vary"] = {"--amp": [True, False], "--size": [[224, 224]], "opt.lr=": [0.1], "$OMP_NUM_THREADS": [2], "what_if": [None, "bf16"]}
    data["list"] = [{"model": "vit b", "--layers": 4}, {"model": "gpt"}]
    data["require"] = ["--layers > 3"]  # concerns the first entry alone
    spec = spec_of(tmp_path, data)
    jobs = [job_of(spec, case) for case in cases(spec)]
    assert len(jobs) == 8
    assert jobs[1] == {
        "command": ["python", "t.py", "--model", "vit b", "a b", "--layers", "4", "--amp", "--size", "224", "224", "opt.lr=0.1"],
        "environment": {"DATA": "/data/vit b", "GONE": None, "OMP_NUM_THREADS": "2"},
        "what_if": ["bf16"],
    }
    assert jobs[6]["command"] == ["python", "t.py", "--model", "gpt", "a b", "--size", "224", "224", "opt.lr=0.1"]
    line = run_line(jobs[1], "rtx3060")
    assert line.startswith("env -u GONE 'DATA=/data/vit b' OMP_NUM_THREADS=2 gpucast run --gpu rtx3060 --what-if bf16 -- python t.py")
    assert shlex.split(line)[-len(jobs[1]["command"]) :] == jobs[1]["command"]


def test_cases_are_named_by_their_values(tmp_path):
    spec = spec_of(tmp_path, small(vary={"--a": [1, 2, 3], "--b": [4, 5]}, exclude=["--a == 2"]))
    all_cases = list(cases(spec))
    assert [case.number for case in all_cases] == [0, 1, 4, 5]
    assert all(case_at(spec, case.number) == case for case in all_cases)
    other = spec_of(tmp_path, small(vary={"--b": [5, 6], "--a": [3]}))
    assert next(iter(cases(other))).id == all_cases[-1].id and len({case.id for case in all_cases}) == 4


def test_ten_thousand_cases_are_planned_in_constant_memory(tmp_path):
    def peak_bytes(count):
        spec = spec_of(tmp_path, small(vary={"--a": list(range(count // 100)), "--b": list(range(100))}, exclude=["--a == 7 and --b > 3"]))
        tracemalloc.start()
        planned = sum(len(run_line(job_of(spec, case), "rtx3060")) > 0 for case in cases(spec))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert planned == count - (96 if count > 700 else 0)
        return peak

    assert peak_bytes(10_000) < peak_bytes(100) + 20_000


def test_cards_of_one_capability_share_a_capture():
    assert groups_of(["a", "b", "c"], {"a": "8.6", "b": "8.0", "c": "8.6"}) == [["a", "c"], ["b"]]


# ---- the journal


def row(number, status="fits", code=None):
    return [{"case": str(number), "gpu": "rtx3060", "status": status, "error_code": code}]


def test_a_journal_goes_on_after_a_torn_line(tmp_path):
    path = str(tmp_path / "out/journal.jsonl")
    journal = Journal(path, {"command": ["a"]}, "1")
    for number in (3, 1, 2):
        journal.append(number, row(number))
    with pytest.raises(Error, match="another sweep writes to this journal"):
        Journal(path, {"command": ["a"]}, "1")
    journal.close()
    with open(path, "ab") as file:
        file.write(b'{"job":4,"rows":[{"ca')
    journal = Journal(path, {"command": ["a"]}, "1")
    assert sorted(journal.done) == [1, 2, 3]
    journal.append(4, row(4))
    assert [entry["case"] for entry in journal.rows()] == ["1", "2", "3", "4"]
    journal.close()
    with pytest.raises(Error, match="another spec: 'command' changed"):
        Journal(path, {"command": ["b"]}, "1")
    fresh = Journal(path, {"command": ["b"]}, "1", fresh=True)
    assert fresh.done == {}
    fresh.close()


def test_jobs_of_lost_nodes_run_again_and_failed_ones_when_asked(tmp_path):
    path = str(tmp_path / "journal.jsonl")
    journal = Journal(path, {}, "1")
    journal.append(0, row(0))
    journal.append(1, row(1, "failed", "node_died"))
    journal.append(2, row(2, "failed", "script_raised"))
    journal.close()
    journal = Journal(path, {}, "1")
    assert sorted(journal.done) == [0, 2]
    journal.close()
    journal = Journal(path, {}, "1", retry_failed=True)
    assert sorted(journal.done) == [0]
    journal.append(2, row(2))
    assert [entry["status"] for entry in journal.rows()] == ["fits", "fits"]
    journal.close()


@pytest.mark.parametrize("text", ["no rows\n", '{"schema_version":1,"spec":{}}\n17\n', "[]\n"])
def test_another_file_is_not_taken_for_a_journal(tmp_path, text):
    (tmp_path / "journal.jsonl").write_text(text)
    with pytest.raises(Error, match="something else than rows"):
        Journal(str(tmp_path / "journal.jsonl"), {}, "1")
    assert (tmp_path / "journal.jsonl").read_text() == text


# ---- tables


def figures():
    return {"status": "fits", "capacity_bytes": 2**33, "peak_reserved_bytes": 2**31, "step_ns": 10**9, "samples_per_s": 8.5}


def test_tables_have_a_row_for_each_card(tmp_path):
    spec = spec_of(tmp_path, small(vary={"--size": [[1, 2]], "--amp": [True, None]}, gpus=["rtx3060", "rtx3090"]))
    result = {"seconds": 0.5, "cards": {"rtx3060": figures(), "rtx3090": figures()}}
    rows = [row for case in cases(spec) for row in rows_of(spec, case, spec.gpus, result)]
    tables.write_csv(spec, rows, str(tmp_path / "rows.csv"))
    with open(tmp_path / "rows.csv", newline="") as file:
        read = list(csv.DictReader(file))
    assert [(row["--size"], row["--amp"], row["gpu"]) for row in read][::2] == [("1 2", "true", "rtx3060"), ("1 2", "null", "rtx3060")]
    assert read[0]["peak_reserved_bytes"] == str(2**31) and read[0]["error"] == "" and read[0]["samples_per_s"] == "8.5"
    assert not (tmp_path / "rows.csv.part").exists()


def test_a_failed_case_has_its_reason_and_no_figures(tmp_path):
    spec = spec_of(tmp_path, small())
    result = {
        "seconds": 1.0,
        "cards": {},
        "error": {"code": "script_failed", "message": "the command failed (exit code 1)"},
        "printed": "x\nValueError: no\n",
    }
    (row,) = rows_of(spec, case_at(spec, 0), ["rtx3060"], result)
    assert (row["status"], row["error_code"], row["error"]) == (
        "failed",
        "script_failed",
        "the command failed (exit code 1): ValueError: no",
    )
    assert row["peak_reserved_bytes"] is None and row["run"] == "gpucast run --gpu rtx3060 -- python t.py --batch 8"


# ---- the summary


def test_a_summary_names_the_fastest_rows_and_what_changes_nothing(tmp_path):
    spec = spec_of(tmp_path, small(vary={"--batch": [8, 16], "--lr": [0.1, 0.2], "--seed": [1]}))
    rows = []
    for case in cases(spec):
        memory = {"peak_reserved_bytes": case.values["--batch"] << 20, "peak_allocated_bytes": 1}
        result = {"seconds": 0.5, "cards": {"rtx3060": {**figures(), **memory, "samples_per_s": float(case.number + 1)}}}
        rows += rows_of(spec, case, spec.gpus, result)
    rows += rows_of(spec, case_at(spec, 3), spec.gpus, {"seconds": 1.0, "cards": {}, "error": {"code": "killed", "message": "signal 9"}})
    summary = summary_of(spec, rows)
    assert summary["statuses"] == {"fits": 4, "tight": 0, "does_not_fit": 0, "failed": 1}
    assert [row["values"]["--lr"] for row in summary["best"]] == [0.2] and summary["best"][0]["samples_per_s"] == 4
    assert summary["same_memory"] == ["--lr"]  # --seed has one value: nothing to compare
    assert summary["errors"] == [{"error": "killed: signal 9", "rows": 1, "run": rows[-1]["run"]}]


# ---- the command

SCRIPT = """
import sys, torch
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if words["--mib"] == "3":
    raise ValueError("three")
x = torch.zeros(int(words["--mib"]) << 20, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
for _ in range(3):
    (x[:8] * 2).sum().backward()
    optimizer.step()
"""


def sweep(gpucast_bin, folder, *options, **more):
    command = [gpucast_bin, "sweep", "sweep.json", "--python", sys.executable, *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, **more)


def test_a_sweep_is_resumed_after_a_kill(gpucast_bin, tmp_path):
    (tmp_path / "t.py").write_text(SCRIPT)
    spec = small(command=[sys.executable, "t.py"], vary={"--mib": [1, 2, 3, 1500]}, gpus=["rtx3060", "rtx3090"])
    (tmp_path / "sweep.json").write_text(json.dumps(spec))
    first = subprocess.Popen(
        [gpucast_bin, "sweep", "sweep.json", "--jobs", "1", "--python", sys.executable], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    journal = tmp_path / "sweep.sweep/journal.jsonl"
    begin = time.monotonic()
    while time.monotonic() - begin < 60 and not (journal.exists() and journal.read_bytes().count(b"\n") > 1):
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = journal.read_bytes()
    assert 1 < before.count(b"\n") < 5
    done = sweep(gpucast_bin, tmp_path, "--format", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["statuses"] == {"fits": 5, "tight": 0, "does_not_fit": 1, "failed": 2}
    assert result["runs_now"] == 4 - (before.count(b"\n") - 1) and journal.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    with open(tmp_path / "sweep.sweep/rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["--mib"], row["gpu"]) for row in rows] == [(str(m), gpu) for m in (1, 2, 3, 1500) for gpu in spec["gpus"]]
    errors = [row["error"] for row in rows if row["status"] == "failed"]
    assert len(errors) == 2 and all(error.endswith("on the GPU: ValueError: three") for error in errors)
    assert rows[6]["status"] == "does_not_fit" and rows[7]["status"] == "fits" and int(rows[0]["step_ns"]) > 0
    assert "<!--gpucast:cases-->" not in (tmp_path / "sweep.sweep/index.html").read_text()
    assert (tmp_path / "sweep.sweep/index.html").read_text().count('"gpu":"rtx3090"') == 4
    # The same again has nothing to do; a changed spec is refused.
    assert json.loads(sweep(gpucast_bin, tmp_path, "--format", "json").stdout)["runs_now"] == 0
    (tmp_path / "sweep.json").write_text(json.dumps({**spec, "steps": 5}))
    refused = sweep(gpucast_bin, tmp_path)
    assert refused.returncode == 2 and "'steps' changed" in refused.stderr and "--fresh" in refused.stderr


def test_messages_of_the_command(gpucast_bin, tmp_path):
    (tmp_path / "sweep.json").write_text(json.dumps(small(gpus=["rtx3061"])))
    unknown = sweep(gpucast_bin, tmp_path)
    assert unknown.returncode == 2 and "no card is named 'rtx3061'" in unknown.stderr and "did you mean rtx3060?" in unknown.stderr
    (tmp_path / "sweep.json").write_text(json.dumps(small(gpus=["rtx3060", "a100-80"])))
    plan = sweep(gpucast_bin, tmp_path, "--dry-run")
    assert plan.stdout.startswith("2 cases on 2 cards: 4 runs") and not (tmp_path / "sweep.sweep").exists()
    assert "gpucast run --gpu rtx3060 -- python t.py --batch 16" in plan.stdout
    (tmp_path / "sweep.json").write_text(json.dumps(small(exclude=["--batch > 0"])))
    assert "the conditions leave no case" in sweep(gpucast_bin, tmp_path).stderr
    none = subprocess.run([gpucast_bin, "sweep"], capture_output=True, text=True)
    assert none.returncode == 2 and "no spec is named" in none.stderr
