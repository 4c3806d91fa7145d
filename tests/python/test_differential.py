"""`gpucast replay` against PyTorch's own allocator on random sequences, event by event. tests/differential/README.md."""

import gzip
import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests/differential"))

import compare  # noqa: E402
import sequences  # noqa: E402

SEEDS = range(1000, 1060)


def torch_cuda():
    """The CUDA release of this Python's PyTorch, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    found = re.search(r"^cuda\b[^=]*= *'([^']+)'", (Path(spec.origin).parent / "version.py").read_text(), re.MULTILINE)
    return found.group(1) if found else None


needs_torch = pytest.mark.skipif(torch_cuda() is None, reason="this Python has no PyTorch built with CUDA")


@pytest.fixture
def binary(gpucast_bin, monkeypatch):
    monkeypatch.setenv("GPUCAST_BIN", gpucast_bin)


@pytest.fixture(scope="module")
def pytorch(gpucast_bin):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUCAST_BIN", gpucast_bin)
        one = compare.PyTorch(sys.executable)
    one = compare.PyTorch(sys.executable)
    yield one
    one.close()


def drive(pytorch, tmp_path, text):
    events, output = tmp_path / "in.events.txt", tmp_path / "out.jsonl"
    events.write_text(text)
    pytorch.run(events, output)
    return compare.read_records(output)


@needs_torch
def test_replay_does_what_pytorch_does(binary, tmp_path, capfd):
    keep = Path(os.environ.get("GPUCAST_DIFFERENTIAL_KEEP", tmp_path))
    work = [(f"seed-{seed}", lambda version, seed=seed: sequences.make(seed, version)) for seed in SEEDS]
    tally = compare.compare_all(sys.executable, None, work, keep, budget_s=5)
    assert tally.sequences == len(SEEDS)
    assert tally.events > 10000 and tally.ooms > 100, "the sequences show too little"
    assert (tally.different, tally.broken) == (0, 0), capfd.readouterr().out


@needs_torch
@pytest.mark.parametrize("case", ["replay_synth_100", "replay_synth_104", "replay_synth_109"])
def test_driver_gives_what_another_driver_gave(pytorch, tmp_path, case):
    folder = ROOT / "tests/cases" / case
    given = compare.read_records(folder / "expected.jsonl.gz")
    with gzip.open(folder / "input.events.txt.gz", "rt") as file:
        text = file.read()
    conf, capacity = {
        "replay_synth_100": ("", 80000),
        "replay_synth_104": ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", 80000),
        "replay_synth_109": ("expandable_segments:True,roundup_power2_divisions:8", 4096),
    }[case]
    assert drive(pytorch, tmp_path, f"# alloc_conf {conf}\n# capacity_mib {capacity}\n{text}") == given


@needs_torch
def test_driver_holds_streams(pytorch, tmp_path):
    records = drive(
        pytorch,
        tmp_path,
        """# capacity_mib 64
a 0 1048576 0
r 0 1
h 1
f 0
a 1 512 0
w 1
a 2 512 0
a 3 20971520 0
r 3 1
h 1
f 3
a 4 12582912 0
a 5 41943040 0
""",
    )
    actions = [[event[0] for event in record["events"]] for record in records if "events" in record]
    assert actions[3] == ["free_requested"]
    assert actions[4] == ["segment_alloc", "alloc"] or actions[4] == ["alloc"]
    assert actions[6][0] == "free_completed", "the work is done: the next allocation notices"
    assert "free_completed" not in actions[11]
    assert actions[12][0] == "free_completed", "out of memory: PyTorch waits for the stream"


@needs_torch
def test_driver_tells_what_pytorch_refuses(pytorch, tmp_path):
    with pytest.raises(compare.Broken, match="no_such_setting"):
        drive(pytorch, tmp_path, "# alloc_conf no_such_setting:1\na 0 512 0\n")
    assert drive(pytorch, tmp_path, "a 0 512 0\n")[0]["allocated"] == 512, "the next sequence is not disturbed"


# ---- the comparison itself, on records alone ----


def record(i, **fields):
    return {"i": i, "op": "a", "allocated": 512, "events": [["alloc", 4096, 512, 0]], **fields}


@pytest.mark.once
def test_comparison_finds_each_kind_of_change():
    given = [record(0), record(1), {"segments": [{"address": 4096}]}, {"summary": {"ooms": 0}}]
    assert compare.Result(given, json.loads(json.dumps(given)))
    changes = [
        lambda r: r[1].update(allocated=1024),
        lambda r: r[1]["events"][0].__setitem__(1, 8192),
        lambda r: r[1]["events"].append(["oom", 0, 512, 0]),
        lambda r: r[1].update(error="oom"),
        lambda r: r.pop(1),
        lambda r: r[2]["segments"][0].update(address=8192),
        lambda r: r[3]["summary"].update(ooms=1),
        lambda r: r.pop(),
    ]
    kinds = set()
    for at, change in zip((1, 1, 1, 1, 1, 2, 3, 3), changes):
        got = json.loads(json.dumps(given))
        change(got)
        result = compare.Result(given, got)
        assert result.at == at and not result
        assert "same" in result.describe(("left", "right"))
        kinds.add(result.kind())
    assert len(kinds) == len(changes)


@pytest.mark.once
def test_nothing_is_compared_after_an_error_of_pytorchs_own():
    result = compare.Result([record(0), {"stopped": "INTERNAL ASSERT FAILED"}], [record(0), record(1), record(2)])
    assert result and result.stopped == "INTERNAL ASSERT FAILED"
    assert not compare.Result([record(0, allocated=0), {"stopped": "x"}], [record(0), record(1)])


@pytest.mark.once
def test_minimising_keeps_what_matters():
    lines = ["# torch 2.6.0", *[f"a {i} 512 0" for i in range(50)], *[f"f {i}" for i in range(50)]]
    small = compare.minimise(lines, lambda attempt: "f 17" in attempt and "a 30 512 0" in attempt)
    assert small == ["# torch 2.6.0", "a 17 512 0", "a 30 512 0", "f 17"]


@pytest.mark.once
def test_repairing_leaves_only_what_can_be_done():
    lines = ["f 1", "a 1 512 0", "f 1", "f 1", "r 1 2", "pe 1", "pr 1", "pb 1", "pb 1", "pr 1", "pe 1", "pr 1", "pr 1", "pb 1"]
    assert compare.repaired(lines) == ["a 1 512 0", "f 1", "pb 1", "pe 1", "pr 1"]


@pytest.mark.once
def test_sequences_are_the_same_for_the_same_seed():
    assert sequences.make(7, "2.14.1") == sequences.make(7, "2.14.1")
    assert sequences.make(7, "2.14.1") != sequences.make(8, "2.14.1")
    texts = [line for seed in range(300) for line in sequences.make(seed, "2.14.1")]
    confs = " ".join(line for line in texts if line.startswith("# alloc_conf"))
    for name in (*sequences.SETTINGS, *sequences.NEWER_SETTINGS):
        assert name.replace("_list", ":[" if name.endswith("_list") else "") in confs
    assert {line.split()[0] for line in texts if not line.startswith("#")} == set("afrespkhw") | {"pb", "pe", "pr"}
    old = " ".join(line for seed in range(300) for line in sequences.make(seed, "2.6.0"))
    assert not any(name in old for name in sequences.NEWER_SETTINGS)
