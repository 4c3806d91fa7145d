"""The Chrome trace of `export --to perfetto`: the rules of Perfetto's importer and of the format, and the same figures as the report."""

import gzip
import json
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

CASES = Path(__file__).resolve().parent.parent / "cases"
INPUTS = [
    "real_mlp_torch26/input.jsonl",
    "real_mlp_torch214/input.jsonl",
    "expandable_segments/input.jsonl",
    "out_of_memory/input.jsonl",
    "script_raised/input.jsonl",
    "profile_mlp_torch26/input.trace.json.gz",
    "snapshot_whole/input.pickle",
    "snapshot_ring_buffer/input.pickle",
]


@pytest.fixture
def export(gpucast_bin, tmp_path):
    """export(file, name) -> the parsed trace; the file's bytes are in tmp_path / name"""

    def run(file, name="out.json"):
        subprocess.run(
            [gpucast_bin, "export", str(file), "--to", "perfetto", "-o", name], cwd=tmp_path, capture_output=True, check=True, timeout=60
        )
        data = (tmp_path / name).read_bytes()
        return json.loads(gzip.decompress(data) if name.endswith(".gz") else data)

    return run


def report(gpucast_bin, file):
    done = subprocess.run([gpucast_bin, "analyze", str(file), "--format", "json"], capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)


def slices(events):
    """{(pid, tid): [(begin_ns, end_ns, depth, name, args)]}, in order; fails where slices do not nest."""
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = round(event["ts"] * 1000)
            tracks[event["pid"], event["tid"]].append((begin, begin + round(event["dur"] * 1000), event["name"], event["args"]))
    out = defaultdict(list)
    for track, found in tracks.items():
        assert len({begin for begin, _, _, _ in found}) == len(found), "nesting must not depend on how a reader sorts equal times"
        open_ = []
        for begin, end, name, args in sorted(found, key=lambda slice_: slice_[0]):
            assert end > begin
            while open_ and open_[-1] < begin:
                open_.pop()
            assert not open_ or end < open_[-1], "a slice ends before the one around it"
            out[track].append((begin, end, len(open_), name, args))
            open_.append(end)
    return out


@pytest.mark.parametrize("input_", INPUTS)
def test_what_the_format_asks_for_and_the_reports_figures(export, gpucast_bin, input_):
    trace = export(CASES / input_)
    assert list(trace)[0] == "traceEvents", "Perfetto's importer stops at top-level keys that it does not know"
    events = trace["traceEvents"]
    expected = report(gpucast_bin, CASES / input_)
    for event in events:
        assert event["ph"] in ("M", "C", "X", "i")
        assert event["pid"] > 0 and event.get("tid", 1) > 0
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["name"]
    threads = {event["tid"]: event["pid"] for event in events if event["ph"] in "Xi"}
    assert all(threads[event["tid"]] == event["pid"] for event in events if event["ph"] in "Xi"), "a thread's number is unique"
    names = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event["ph"] == "M" and event["name"] == "thread_name"
    }

    # Counters: whole bytes; their highest values are the report's peaks.
    counters = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            assert all(type(value) is int for value in event["args"].values())
            counters[event["name"]].append((event["ts"], event["args"]))
    assert max(args["bytes"] for _, args in counters["allocated"]) == expected["peak"]["allocated_bytes"]
    assert max(args["bytes"] for _, args in counters["reserved"]) == expected["peak"]["reserved_bytes"]
    assert [(time, sum(args.values())) for time, args in counters["category"]] == [
        (time, args["bytes"]) for time, args in counters["allocated"]
    ]
    assert len({tuple(args) for _, args in counters["category"]}) == 1, "every sample has every category, or chrome://tracing shows 0"
    at_peak = max(counters["category"], key=lambda sample: sum(sample[1].values()))[1]
    assert {line["name"]: line["bytes"] for line in expected["categories"] if line["bytes"]} == {k: v for k, v in at_peak.items() if v}

    peaks = [event for event in events if event["ph"] == "i" and event["name"].startswith("peak allocated")]
    assert [event["args"]["event"] for event in peaks] == [expected["peak"]["allocated_at"]["event"]]
    assert peaks[0]["args"]["allocated_bytes"] == expected["peak"]["allocated_bytes"]
    ooms = [event for event in events if event["ph"] == "i" and event["name"].startswith("out of memory")]
    assert len(ooms) == (expected["oom"]["count"] if expected["oom"] else 0)

    tracks = slices(events)
    assert all(track in names for track in tracks), "every track has a name"
    by_name = defaultdict(list)
    for track, found in tracks.items():
        by_name[names[track]] += found
    if expected["source"] == "snapshot":
        assert not by_name["steps"] and not by_name["phases"]
    else:
        shown = {int(name.split()[1]): args for _, _, _, name, args in by_name["steps"] if name.startswith("step ")}
        peaks = {peak["step"]: peak["allocated_bytes"] for peak in expected["step_peaks"] if peak["step"] in shown}
        assert list(shown) == list(range(1, len(shown) + 1)) and len(shown) >= expected["steps"]
        assert {step: args["highest_allocated_bytes"] for step, args in shown.items()} == peaks
        assert {name for _, _, _, name, _ in by_name["phases"]} == {peak["phase"] for peak in expected["phase_peaks"]}
        # Phases tile the steps.
        for begin, end, _, _, _ in by_name["phases"]:
            assert sum(b <= begin and end <= e for b, e, _, _, _ in by_name["steps"]) == 1

    # Blocks one by one: at any time not more than is allocated; all live blocks at the peak, except the smallest.
    blocks = by_name["lane"]
    assert blocks and not any(depth for _, _, depth, _, _ in blocks), "the blocks of one lane follow each other"
    peak_ns = round(max(counters["allocated"], key=lambda sample: sample[1]["bytes"])[0] * 1000)
    alive = [args["size_bytes"] for begin, end, _, _, args in blocks if begin <= peak_ns < end]
    assert sum(alive) <= expected["peak"]["allocated_bytes"]
    assert sum(alive) > 0.5 * expected["peak"]["allocated_bytes"]


def test_modules_of_a_real_run(export):
    events = export(CASES / "real_mlp_torch26/input.jsonl", "out.json.gz")["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M" and event["name"] == "thread_name"}
    tracks = {names[track[1]]: found for track, found in slices(events).items()}
    for name in "modules, forward", "modules, backward":
        depths = {depth for _, _, depth, _, _ in tracks[name]}
        assert {0, 1} <= depths, "modules nest"
        for begin, end, depth, label, args in tracks[name]:
            inside = [slice_ for slice_ in tracks[name] if slice_[2] == depth - 1 and slice_[0] <= begin and end <= slice_[1]]
            assert depth == 0 or len(inside) == 1, label
            assert args["change_bytes"] == args["allocated_after_bytes"] - args["allocated_before_bytes"]
    # What a module's forward leaves allocated: the output of a layer without a bias in place.
    linear = [args for _, _, _, _, args in tracks["modules, forward"] if args["class"] == "Linear"]
    assert linear and all(args["change_bytes"] > 0 for args in linear)


def test_a_times_in_disorder_the_axis_counts_events(export, tmp_path):
    source = (CASES / "real_mlp_torch26/input.jsonl").read_text().splitlines()
    allocs = [i for i, line in enumerate(source) if line.startswith('["alloc"')]
    first = json.loads(source[allocs[0]])
    first[-1] += 10**12
    source[allocs[0]] = json.dumps(first)
    (tmp_path / "late.jsonl").write_text("\n".join(source) + "\n")
    trace = export(tmp_path / "late.jsonl")
    assert trace["otherData"]["time_axis"].startswith("allocator events")
    assert "first_event_time_us" not in trace["otherData"]
    (peak,) = (event for event in trace["traceEvents"] if event["ph"] == "i" and event["name"].startswith("peak allocated"))
    assert peak["ts"] == 1000 * (peak["args"]["event"] + 1)
    plain = export(CASES / "real_mlp_torch26/input.jsonl", "plain.json")
    assert plain["otherData"]["time_axis"].startswith("clock of the host; the virtual GPU computes nothing")
