"""`gpucast replay`: event files compared with PyTorch's own allocator, its messages, and its advice tried on PyTorch."""

import gzip
import json
import subprocess
from pathlib import Path

import pytest
from conftest import train_script

ROOT = Path(__file__).resolve().parent.parent.parent
CASES = ROOT / "tests/cases"
SHARED = ROOT.parent / "shared/data/allocator"

# The order of two sequences' streams as CUDA names them, which is not in their files.
STREAM_HANDLES = {"synth-106": "# stream_handles 0 3 1 2\n", "synth-107": "# stream_handles 0 2 3 1\n"}


@pytest.fixture
def replay(gpucast_bin, tmp_path):
    """replay(arguments...): the finished process, in tmp_path."""

    def run(*arguments):
        return subprocess.run([gpucast_bin, "replay", *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True, timeout=120)

    return run


def read_text(path):
    return gzip.decompress(path.read_bytes()).decode()


def same_events(got, expected_path):
    expected = read_text(expected_path).splitlines()
    got = got.splitlines()
    for number, (ours, theirs) in enumerate(zip(got, expected), 1):
        assert json.loads(ours) == json.loads(theirs), f"line {number}"
    assert len(got) == len(expected)


# ---- every event as PyTorch's allocator --------------------------------------------------------------------------------


def shared_sequences():
    if not (SHARED / "manifest.json").exists():
        return []
    return json.loads((SHARED / "manifest.json").read_text())


def test_shared_sequences_are_there():
    if not shared_sequences():
        pytest.skip(f"{SHARED} is absent: the 52 sequences of PyTorch's own allocator are not compared")
    assert len(shared_sequences()) == 52


@pytest.mark.once
@pytest.mark.parametrize("sequence", shared_sequences(), ids=lambda sequence: sequence["name"])
def test_shared_sequence(sequence, replay, tmp_path):
    name = sequence["name"]
    text = read_text(SHARED / f"{name}.events.txt.gz")
    (tmp_path / "events.txt").write_text(STREAM_HANDLES.get(name, "") + text)
    done = replay(
        "events.txt", "--torch-version", "2.6.0", "--alloc-conf", sequence["alloc_conf"],
        "--capacity", f"{sequence['capacity_mib']}MiB", "--events", "-",
    )  # fmt: skip
    assert done.returncode == (1 if sequence["summary"]["ooms"] else 0), done.stderr
    same_events(done.stdout, SHARED / f"{name}.expected.jsonl.gz")


EVENT_CASES = sorted(case for case in CASES.iterdir() if (case / "expected.jsonl.gz").exists())


@pytest.mark.once
@pytest.mark.parametrize("case", EVENT_CASES, ids=lambda case: case.name)
def test_event_case(case, gpucast_bin, tmp_path):
    (tmp_path / "train.events.txt.gz").write_bytes((case / "input.events.txt.gz").read_bytes())
    command = [gpucast_bin, *(case / "command").read_text().split(), "--events", "events.jsonl"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    same_events((tmp_path / "events.jsonl").read_text(), case / "expected.jsonl.gz")
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert again.returncode == 2 and "--force" in again.stderr  # never overwritten unasked
    assert subprocess.run([*command, "--force"], cwd=tmp_path, capture_output=True, timeout=60).returncode != 2


# ---- captures of PyTorch on the virtual GPU ----------------------------------------------------------------------------


@pytest.mark.parametrize("alloc_conf", ["", "expandable_segments:True", "max_split_size_mb:64,roundup_power2_divisions:4"])
def test_a_capture_replays_to_its_own_segments(gpucast, replay, tmp_path, alloc_conf):
    run = gpucast(train_script(), environment={"PYTORCH_CUDA_ALLOC_CONF": alloc_conf} if alloc_conf else {})
    assert run.code == 0, run.err
    (capture,) = tmp_path.glob("*.gpucast")
    done = replay(capture, "--format", "json", "--alloc-conf", alloc_conf)
    report = json.loads(done.stdout)
    recorded, again = report["replays"]
    assert recorded["matches_recorded"] is True, recorded["first_difference"]
    assert recorded["alloc_conf"] == alloc_conf
    assert recorded["peak"]["reserved_bytes"] == run.report["peak"]["reserved_bytes"]
    assert recorded["peak"]["allocated_bytes"] == run.report["peak"]["allocated_bytes"]
    assert again["peak"]["allocated_bytes"] == recorded["peak"]["allocated_bytes"]  # the addresses may differ, the blocks do not


# Eleven segments of 1 GiB, each with 700 MiB in use: 3.5 GiB are unused, and no GiB of them hangs together.
FRAGMENTS = """
import torch

def tensors(count, mib):
    return [torch.empty(mib << 20, dtype=torch.uint8, device="cuda") for _ in range(count)]

first = tensors(11, 1024)
del first
kept = tensors(11, 700)
more = tensors(1, 1024)
print("done", flush=True)
"""


@pytest.mark.slow
def test_settings_that_would_save_a_run_do_save_it(gpucast, replay, tmp_path):
    def run(alloc_conf):
        return gpucast(
            FRAGMENTS, "--gpu", "rtx3060", "--enforce-capacity", environment={"PYTORCH_CUDA_ALLOC_CONF": alloc_conf}
        )  # fmt: skip

    failed = run("")
    assert failed.code == 1, failed.err
    (capture,) = tmp_path.glob("*.gpucast")
    report = json.loads(replay(capture, "--format", "json").stdout)
    oom = report["replays"][0]["oom"]
    assert oom["recorded"] is True
    assert oom["segment_bytes"] == 1 << 30
    assert oom["allocated_bytes"] == 11 * 700 << 20
    saved_by = [setting["alloc_conf"] for setting in oom["would_be_saved_by"]]
    assert "expandable_segments:True" in saved_by and "roundup_power2_divisions:2" not in saved_by
    for alloc_conf in saved_by[0], "max_split_size_mb:512":
        assert alloc_conf in saved_by
        assert "done" in run(alloc_conf).err
    assert run("roundup_power2_divisions:2").code == 1


# ---- the requests ------------------------------------------------------------------------------------------------------

EVENTS = "# torch 2.6.0\n" + "".join(f"a {i} 3145728 0\n" for i in range(12)) + "f 3\nf 4\ne\na 20 8388608 0\n"


@pytest.fixture
def events(tmp_path):
    (tmp_path / "train.events.txt").write_text(EVENTS)
    return "train.events.txt"


def rows(done):
    return [(row["alloc_conf"], row["capacity_bytes"]) for row in json.loads(done.stdout)["replays"]]


@pytest.mark.once
def test_every_setting_at_every_capacity(replay, events):
    done = replay(
        events, "--alloc-conf", "", "--alloc-conf", "expandable_segments:True", "--capacity", "0.5GiB", "--capacity", "41943040",
        "--format", "json",
    )  # fmt: skip
    assert rows(done) == [("", 1 << 29), ("", 40 << 20), ("expandable_segments:True", 1 << 29), ("expandable_segments:True", 40 << 20)]
    assert done.returncode == 0


@pytest.mark.once
def test_exit_code_is_that_of_the_first_row(replay, events):
    assert replay(events, "--capacity", "30MiB", "--capacity", "1GiB").returncode == 1
    assert replay(events, "--capacity", "1GiB", "--capacity", "30MiB").returncode == 0


@pytest.mark.once
def test_content_decides_not_the_name(replay, events, tmp_path):
    (tmp_path / "x.pickle").write_bytes(gzip.compress(EVENTS.encode()))
    assert json.loads(replay("x.pickle", "--format", "json").stdout)["source"] == "events"


@pytest.mark.once
def test_tables_fit_and_cut_nothing_short(replay, events):
    conf = (
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8],max_split_size_mb:64,garbage_collection_threshold:0.8,expandable_segments:True"
    )
    done = replay(events, "--alloc-conf", conf, "--alloc-conf", "", "--capacity", "40MiB", "--gpu", "a100-80", "--tune")
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert conf in done.stdout.replace("\n", "")


@pytest.mark.once
def test_tune_recommends_nothing_below_a_page(replay, tmp_path):
    (tmp_path / "one.txt").write_text("a 1 3145728 0\n")
    done = replay("one.txt", "--tune")
    assert "No change is worth it" in done.stdout and "export" not in done.stdout


@pytest.mark.once
def test_events_go_to_standard_output_alone(replay, events):
    done = replay(events, "--events", "-")
    assert all(json.loads(line) for line in done.stdout.splitlines())
    assert "peak" in done.stderr


BAD = {
    "no_such_file": (["nowhere.gpucast"], None, "cannot open nowhere.gpucast"),
    "empty": (["file"], "", "empty"),
    "wrong_format": (["file"], "hello\n", "not a gpucast capture"),
    "bad_line": (["file"], "a 1 512 0\n\na 2 many 0\n", "file:3"),
    "freed_twice": (["file"], "a 1 512 0\nf 1\nf 1\n", "file:3"),
    "misspelt_setting": (["file", "--alloc-conf", "expandable_segment:True"], EVENTS, "did you mean 'expandable_segments:True'?"),
    "equals": (["file", "--alloc-conf", "max_split_size_mb=64"], EVENTS, "did you mean 'max_split_size_mb:64'?"),
    "bad_size": (["file", "--capacity", "12GB"], EVENTS, "did you mean 12GiB?"),
    "no_size": (["file", "--capacity", "much"], EVENTS, "is no size"),
    "bad_gpu": (["file", "--gpu", "rtx306"], EVENTS, "rtx3060"),
    "bad_release": (["file", "--torch-version", "new"], EVENTS, "no release"),
    "two_rows": (["file", "--events", "x", "--capacity", "1GiB", "--capacity", "2GiB"], EVENTS, "--events writes one replay"),
    "no_folder": (["file", "--events", "no/x"], EVENTS, "cannot be written"),
}


@pytest.mark.once
@pytest.mark.parametrize("name", BAD)
def test_bad_input(name, replay, tmp_path):
    arguments, content, message = BAD[name]
    if content is not None:
        (tmp_path / "file").write_text(content)
    done = replay(*arguments)
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.startswith("gpucast: ")
    assert done.stdout == "" and not (tmp_path / "x").exists()


# ---- settings: we reject the same as PyTorch -----------------------------------------------------------------------------

SETTINGS = [
    "", "max_split_size_mb:20", "max_split_size_mb:21", "max_split_size_mb:0", "max_split_size_mb:many", "max_split_size_mb", "max_split_size_mb:",
    "max_split_size_mb:128,expandable_segments:True", "max_split_size_mb:64,", ",max_split_size_mb:64", "max_split_size_mb:64,,expandable_segments:True",
    "max_split_size_mb : 64 , expandable_segments : True", "max_split_size_mb=64", "max_split_size:64", "max_non_split_rounding_mb:20",
    "max_non_split_rounding_mb:21", "max_non_split_rounding_mb:5", "large_segment_size_mb:10", "large_segment_size_mb:11",
    "large_segment_size_mb:64,max_split_size_mb:32", "large_segment_size_mb:64,max_non_split_rounding_mb:32", "garbage_collection_threshold:0",
    "garbage_collection_threshold:0.8", "garbage_collection_threshold:1", "expandable_segments:true", "expandable_segments:False",
    "roundup_power2_divisions:0", "roundup_power2_divisions:1", "roundup_power2_divisions:3", "roundup_power2_divisions:[256:1,512:2,>:8]",
    "roundup_power2_divisions:[3:2]", "roundup_power2_divisions:[256:3]", "backend:native", "backend:other", "per_process_memory_fraction:0.5",
    "per_process_memory_fraction:2", "throw_on_cudamalloc_oom:True", "throw_on_cudamalloc_oom:1", "pinned_num_register_threads:4",
    "pinned_num_register_threads:3", "pinned_num_register_threads:256", "graph_capture_record_stream_reuse:True",
]  # fmt: skip

ASK_TORCH = """
import json, warnings
import torch

warnings.simplefilter("ignore")
answers = []
for setting in json.load(sys.stdin):
    try:
        torch.cuda.memory._set_allocator_settings(setting)
        answers.append(True)
    except Exception:
        answers.append(False)
torch.cuda.memory._set_allocator_settings("")
torch.empty(1, device="cuda")
print("ANSWERS", torch.__version__, json.dumps(answers))
"""


def test_settings_are_judged_as_pytorch_does(gpucast, replay, events):
    read_settings = ASK_TORCH.replace("json.load(sys.stdin)", repr(SETTINGS))
    run = gpucast(read_settings)
    (line,) = [line for line in run.err.splitlines() if line.startswith("ANSWERS")]
    _, version, answers = line.split(" ", 2)
    ours = [replay(events, "--torch-version", version, "--alloc-conf", setting).returncode == 0 for setting in SETTINGS]
    wrong = [setting for setting, theirs, we in zip(SETTINGS, json.loads(answers), ours) if theirs != we]
    assert wrong == []


# The second use of a segment leaves PyTorch without a stack for the segment's release.
EMPTY_CACHE = """
for megabytes in (60, 24):
    kept = torch.empty(megabytes * 2**20, dtype=torch.uint8, device="cuda")
    del kept
torch.cuda.empty_cache()
kept = torch.empty(24 * 2**20, dtype=torch.uint8, device="cuda")
"""


def test_cache_emptied_before_a_new_segment(gpucast, gpucast_bin):
    run = gpucast(train_script(after_step=EMPTY_CACHE))
    assert run.code == 0, run.err
    assert any(event[4] == -1 for event in run.capture.of("segment_free"))
    assert "replay_differs" not in {warning["code"] for warning in run.report["warnings"]}
    done = subprocess.run([gpucast_bin, "replay", run.capture_path, "--format", "json"], capture_output=True, text=True)
    assert json.loads(done.stdout)["replays"][0]["alloc_retries"] == 0
