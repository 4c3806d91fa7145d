"""A long capture, made from a short real one by repeating its steady step: the input for measuring reports of a million events.

    gpucast run --steps 4 -o short.gpucast -- python examples/train_resnet50.py --batch 32
    python bench/make_capture.py short.gpucast long.gpucast --events 1000000

The step is repeated with its addresses, sizes, stacks and tensors; marks, counters and times continue. That is right only
if the same memory is in use before and after it: the first such pair of steps is used; if there is none, the script says so.
"""

import argparse
import gzip
import json
import sys

EVENTS = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom"}


def boundaries(lines):
    """The marks where a phase begins or ends: their line, the blocks in use, and their counters."""
    live, steps = {}, 0
    for number, line in enumerate(lines):
        if not isinstance(line, list):
            continue
        if line[0] == "alloc":
            live[line[1]] = line[2]
        elif line[0] == "free_requested":
            live.pop(line[1], None)
        elif line[0] == "mark" and line[5] in ("step", "phase_begin", "phase_end"):
            steps += line[5] == "step"
            kind = (line[5], "" if line[5] == "step" else line[6])
            counters = dict(zip(("sequence", "allocs", "frees", "time_us"), line[1:5]))
            yield {"line": number, "live": frozenset(live.items()), "kind": kind, "steps": steps, **counters}


def steady_steps(lines):
    """The last two moments, a step or more apart, with the same memory state."""
    all_of_them = list(boundaries(lines))
    for last in reversed(all_of_them):
        for first in reversed(all_of_them):
            if first["steps"] == 0 or first["steps"] >= last["steps"] or first["kind"] != last["kind"] or first["live"] != last["live"]:
                continue
            period = lines[first["line"] + 1 : last["line"] + 1]
            if not any(isinstance(line, list) and line[0].startswith("segment_") for line in period):
                return first, last
    sys.exit("no step of this capture ends with the memory state of its start: capture more steps (gpucast run --steps 8)")


def shifted(line, turn, by):
    """A line of the history, shifted by `turn` periods."""
    if not isinstance(line, list):
        return line
    line = list(line)
    if line[0] in EVENTS:
        line[5] += turn * by["time_us"]
    elif line[0] == "mark":
        for place, name in ((1, "sequence"), (2, "allocs"), (3, "frees"), (4, "time_us")):
            line[place] += turn * by[name]
        if line[5] == "step":
            line[6] += turn * by["steps"]
    elif line[0] in ("tensor", "vgpu_mark"):
        line[1] += turn * by["sequence"]
    return line


class Output:
    def __init__(self, file):
        self.file, self.lines = file, 0

    def add(self, line):
        self.file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self.lines += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("capture")
    parser.add_argument("output")
    parser.add_argument("--events", type=int, default=1_000_000, help="at least this number of events of the allocator")
    options = parser.parse_args()
    with gzip.open(options.capture, "rt") as file:
        lines = [json.loads(line) for line in file]

    first, last = steady_steps(lines)
    by = {name: last[name] - first[name] for name in ("sequence", "allocs", "frees", "time_us", "steps")}
    begin, end = first["line"] + 1, last["line"] + 1
    # The virtual GPU's section is cut at its marks of the same numbers.
    marks = {line[1]: number for number, line in enumerate(lines) if isinstance(line, list) and line[0] == "vgpu_mark"}
    log = [marks[first["sequence"]] + 1, marks[last["sequence"]] + 1] if last["sequence"] in marks and first["sequence"] in marks else None

    def events(part):
        return sum(isinstance(line, list) and line[0] in EVENTS for line in part)

    missing = options.events - events(lines)
    turns = max(0, -(-missing // events(lines[begin:end])))
    once = ("kernel_name",)
    # Each line of the period as text with its numbers shifted would be faster to write; this is fast enough.
    with gzip.open(options.output, "wt", compresslevel=1) as file:
        out = Output(file)
        kernels = 0
        for number, line in enumerate(lines):
            if isinstance(line, dict):
                record = line.get("record")
                if record == "eof":
                    out.add({"record": "eof", "lines": out.lines})
                    continue
                line = dict(line)
                if record == "header":
                    line["steps_requested"] = line["steps_requested"] + turns * by["steps"]
                elif record == "end":
                    line["optimizer_steps"] = line["optimizer_steps"] + turns * by["steps"]
                elif record == "vgpu_end":
                    line["kernels"] += turns * kernels
            behind = (end <= number and (log is None or number < log[0])) or (log is not None and number >= log[1])
            out.add(shifted(line, turns if behind else 0, by))
            if number + 1 == end:
                for turn in range(1, turns + 1):
                    for again in lines[begin:end]:
                        if isinstance(again, list):
                            out.add(shifted(again, turn, by))
            if log is not None and number + 1 == log[1]:
                period = [again for again in lines[log[0] : log[1]] if isinstance(again, list) and again[0] not in once]
                kernels = sum(again[0] == "kernel" for again in period)
                for turn in range(1, turns + 1):
                    for again in period:
                        out.add(shifted(again, turn, by))
    print(
        f"{events(lines) + turns * events(lines[begin:end])} events, {turns * by['steps']} more steps, {out.lines} lines", file=sys.stderr
    )


if __name__ == "__main__":
    main()
