"""Compares allocators event by event on random sequences, and minimises the sequences on which they differ.

    python tests/differential/compare.py --torch ENV/bin/python --seeds 1000                gpucast replay and PyTorch's own
    python tests/differential/compare.py --torch OLD/bin/python --against NEW/bin/python    one PyTorch release and another
    python tests/differential/compare.py --torch ENV/bin/python CASE.events.txt ...         given sequences instead of random ones

A failing sequence is minimised and kept in --keep (default build/differential). Exit code: 0 all equal, 1 not, 2 something broke.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import sequences  # noqa: E402


class Broken(Exception):
    """No difference: one side gave no answer."""


def gpucast_bin():
    return os.environ.get("GPUCAST_BIN", str(ROOT / "build/release/bin/gpucast"))


def header_of(lines):
    said = (line[2:].split(" ", 1) for line in lines if line.startswith("# "))
    return {words[0]: words[1] if len(words) > 1 else "" for words in said}


def read_records(path):
    with gzip.open(path, "rt") if str(path).endswith(".gz") else open(path) as file:
        return [json.loads(line) for line in file]


class PyTorch:
    """PyTorch's own allocator, in a Python that may be another one: drive.py --serve."""

    def __init__(self, python):
        self.process = subprocess.Popen(
            [python, str(HERE / "drive.py"), "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.version = self._answer()["torch"]
        self.name = f"PyTorch {self.version}"

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise Broken(f"drive.py ended with code {self.process.wait()}; its message is above")
        return json.loads(line)

    def run(self, events, output):
        self.process.stdin.write(json.dumps({"events": str(events), "output": str(output)}) + "\n")
        problem = self._answer().get("error")
        if problem:
            raise Broken(problem)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Replay:
    """`gpucast replay`, one process per sequence."""

    name = "gpucast replay"

    def run(self, events, output):
        with open(events) as file:
            header = header_of(line.rstrip("\n") for line in file)
        command = [gpucast_bin(), "replay", str(events), "--events", str(output), "--force", "--format", "json"]
        command += ["--capacity", f"{header.get('capacity_mib', 80000)}MiB"]
        command += ["--addresses", header.get("addresses", "ascending"), "--alloc-conf", header.get("alloc_conf", "")]
        if "torch" in header:
            command += ["--torch-version", header["torch"]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode not in (0, 1):
            raise Broken(f"{' '.join(command)}\nended with code {done.returncode}: {done.stderr.strip()}")

    def close(self):
        pass


def first_difference(expected, got):
    """The index of the first record that differs, or None. Lines after a bug of PyTorch's own are not compared."""
    for i in range(max(len(expected), len(got))):
        left = expected[i] if i < len(expected) else None
        right = got[i] if i < len(got) else None
        if any(side is not None and "stopped" in side for side in (left, right)):
            return None
        if left is None or right is None or without_op(left) != without_op(right):
            return i
    return None


def without_op(record):
    """The operation is the request, not the action, and gpucast writes `w` for `s`."""
    return {key: value for key, value in record.items() if key != "op"}


def relative(records):
    """With addresses counted from the first one: the start of a driver's addresses does not matter to PyTorch."""
    first = next((event[1] for record in records for event in record.get("events", []) if event[0] != "oom"), 0)
    for record in records:
        if "addr" in record:
            record["addr"] -= first
        for event in record.get("events", []):
            if event[0] != "oom":
                event[1] -= first
        for segment in record.get("segments", []):
            segment["address"] -= first
            for block in segment["blocks"]:
                block[0] -= first
    return records


def stopped(records):
    return next((record["stopped"] for record in records if "stopped" in record), None)


class Result:
    """The result of two allocators on one sequence."""

    def __init__(self, expected, got):
        self.expected, self.got = expected, got
        self.at = first_difference(expected, got)
        self.stopped = stopped(expected) or stopped(got)
        self.events = sum("op" in record for record in expected)

    def __bool__(self):
        return self.at is None

    def sides(self):
        """The two records that differ, and the fields in which they do."""
        sides = [records[self.at] if self.at < len(records) else {} for records in (self.expected, self.got)]
        return (*sides, [key for key in {**sides[0], **sides[1]} if sides[0].get(key) != sides[1].get(key)])

    def kind(self):
        """Differences of one kind most often have one cause."""
        left, right, keys = self.sides()
        made = [left.get("op", "end"), *keys]
        if "events" in keys:
            pairs = zip(left.get("events", []) + [["nothing"]], right.get("events", []) + [["nothing"]])
            made += next(([one[0], other[0]] for one, other in pairs if one != other), [])
        if "summary" in keys and left and right:
            made += [key for key, value in left["summary"].items() if value != right["summary"].get(key)]
        return " ".join(made)

    def describe(self, names, context=5):
        """The first difference, the events before it, and the fields that differ."""

        def short(record):
            text = json.dumps(record, separators=(",", ":"))
            return text if len(text) <= 600 else text[:600] + f"... ({len(text)} characters)"

        lines = [f"  same      {short(record)}" for record in self.expected[max(0, self.at - context) : self.at]]
        *sides, keys = self.sides()
        lines += [f"  {name}: {short(side) if side else 'no such line'}" for name, side in zip(names, sides)]
        for key in keys:
            left, right = (side.get(key) for side in sides)
            if isinstance(left, list) and isinstance(right, list):
                at = next((i for i, (x, y) in enumerate(zip(left, right)) if x != y), min(len(left), len(right)))
                left, right = (short(side[at]) if at < len(side) else "nothing" for side in (left, right))
                key = f"{key}[{at}]"
            lines.append(f"  {key}: {left} / {right}")
        return "\n".join(lines)


class Pair:
    def __init__(self, left, right):
        self.left, self.right = left, right
        self.folder = tempfile.TemporaryDirectory(prefix="gpucast-differential-")

    def compare(self, lines):
        folder = Path(self.folder.name)
        events = folder / "sequence.events.txt"
        events.write_text("\n".join(lines) + "\n")
        outputs = [folder / "left.jsonl", folder / "right.jsonl"]
        for side, output in zip((self.left, self.right), outputs):
            side.run(events, output)
        records = [read_records(output) for output in outputs]
        if header_of(lines).get("addresses") == "linux":
            records = [relative(one) for one in records]
        return Result(*records)

    def close(self):
        self.left.close()
        self.right.close()
        self.folder.cleanup()


def repaired(lines):
    """Without the leftovers of removed lines: frees of nothing, ends of pools that were not begun, ..."""
    kept, live, uses, begun, gone = [], set(), {}, set(), set()
    for line in lines:
        words = line.split()
        op = words[0] if words else "#"
        if op == "a":
            live.add(words[1])
        elif op == "f":
            if words[1] not in live:
                continue
            live.discard(words[1])
        elif op == "r" and words[1] not in live:
            continue
        elif op == "pb":
            if words[1] in begun or words[1] in gone:
                continue
            begun.add(words[1])
            uses[words[1]] = uses.get(words[1], 0) + 1
        elif op == "pe":
            if words[1] not in begun:
                continue
            begun.discard(words[1])
        elif op == "pr":
            if uses.get(words[1], 0) == 0 or words[1] in begun:
                continue
            uses[words[1]] -= 1
            if uses[words[1]] == 0:
                gone.add(words[1])
        kept.append(line)
    return kept


def minimise(lines, differs, budget_s=60):
    """Removes chunks of lines, ever smaller ones, while `differs` holds. Comments stay."""
    until = time.monotonic() + budget_s
    header = [line for line in lines if line.startswith("#")]
    events = [line for line in lines if not line.startswith("#")]
    chunk = max(1, len(events) // 2)
    while True:
        at, shrunk = 0, False
        while at < len(events) and time.monotonic() < until:
            attempt = repaired(events[:at] + events[at + chunk :])
            if attempt and differs(header + attempt):
                events, shrunk = attempt, True
            else:
                at += chunk
        if time.monotonic() >= until or (chunk == 1 and not shrunk):
            return header + events
        chunk = max(1, chunk // 2)


def minimise_difference(pair, lines, result, budget_s=60):
    def differs(attempt):
        try:
            now = pair.compare(attempt)
        except Broken:
            return False
        return not now and now.kind() == result.kind()

    header = [line for line in lines if line.startswith("#")]
    events = [line for line in lines if not line.startswith("#")]
    upto = header + events[: result.at + 1]
    return minimise(upto if differs(upto) else lines, differs, budget_s)


class Tally:
    def __init__(self, pair_names, keep, limit, budget_s):
        self.names, self.keep, self.limit, self.budget_s = pair_names, keep, limit, budget_s
        self.sequences = self.events = self.ooms = self.different = self.broken = 0
        self.stopped = {}  # PyTorch's own error -> sequences
        self.kinds = {}  # kind of difference -> sequences

    def add(self, label, lines, pair):
        self.sequences += 1
        try:
            result = pair.compare(lines)
        except Broken as problem:
            self.broken += 1
            path = self.save(label, "broken", lines)
            print(f"{label}: no answer, see {path}\n  {str(problem).strip()}", flush=True)
            return
        self.events += result.events
        self.ooms += sum(record.get("error") == "oom" for record in result.expected)
        if result.stopped:
            self.stopped[result.stopped] = self.stopped.get(result.stopped, 0) + 1
        if result:
            return
        self.different += 1
        kind = result.kind()
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if self.kinds[kind] > self.limit:
            return
        print(
            f"{label}: differs at line {result.at} ({header_of(lines).get('alloc_conf', '')!r})\n{result.describe(self.names)}", flush=True
        )
        if self.budget_s > 0:
            small = minimise_difference(pair, lines, result, self.budget_s)
            print(f"  minimised: {self.save(label, 'minimal', small)}", flush=True)
        else:
            print(f"  kept: {self.save(label, 'different', lines)}", flush=True)

    def save(self, label, kind, lines):
        self.keep.mkdir(parents=True, exist_ok=True)
        path = self.keep / f"{label}.{kind}.events.txt"
        path.write_text("\n".join(lines) + "\n")
        return path

    def summary(self, seconds):
        ends = [f"  {count} ended at an error of PyTorch's own: {text}" for text, count in self.stopped.items()]
        told = (
            f"{self.names[1]} against {self.names[0]}: {self.sequences} sequences, {self.events} events, {self.ooms} out of memory, "
            f"{self.different} different, {self.broken} without an answer, {seconds:.0f} s"
        )
        kinds = [f"  {count} differ in: {kind}" for kind, count in sorted(self.kinds.items())]
        return "\n".join([told, *kinds, *ends])


def compare_all(python, against, work, keep, limit=1, budget_s=60, jobs=1):
    """`work`: (label, function from the release's version to lines). Returns the Tally."""

    def pair():
        left = PyTorch(python)
        return Pair(left, PyTorch(against) if against else Replay())

    pairs = [pair() for _ in range(jobs)]
    tally = Tally((pairs[0].left.name, pairs[0].right.name), keep, limit, budget_s)
    started = time.monotonic()

    def share(number):
        for label, make in work[number::jobs]:
            tally.add(label, make(pairs[number].left.version), pairs[number])

    try:
        with ThreadPoolExecutor(jobs) as pool:
            for future in [pool.submit(share, number) for number in range(jobs)]:
                future.result()
    finally:
        for one in pairs:
            one.close()
    print(tally.summary(time.monotonic() - started), flush=True)
    return tally


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--torch", required=True, metavar="PYTHON", help="the Python with the reference PyTorch")
    parser.add_argument("--against", metavar="PYTHON", help="compare with that Python's PyTorch instead of gpucast replay")
    parser.add_argument("--seeds", type=int, default=100, help="number of random sequences (default 100)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--settings-of", metavar="RELEASE", help="only settings that this PyTorch release knows; default: the reference's")
    parser.add_argument("--alloc-conf", help="these settings in every random sequence")
    parser.add_argument("--keep", type=Path, default=ROOT / "build/differential", help="folder for sequences that fail")
    parser.add_argument("--show", type=int, default=1, metavar="N", help="differences of each kind to show and keep (default 1)")
    parser.add_argument("--drop", default="", metavar="OPS", help="leave these operations out of random sequences, e.g. pb,pe,pr")
    parser.add_argument("--minimise-s", type=float, default=60, help="seconds to minimise one; 0: do not")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("files", nargs="*", type=Path, help="event files instead of random sequences")
    arguments = parser.parse_args()
    if arguments.files:
        work = [(path.name.split(".")[0], lambda version, path=path: path.read_text().splitlines()) for path in arguments.files]
    else:
        dropped = set(arguments.drop.split(","))

        def make(seed, version):
            lines = sequences.make(seed, arguments.settings_of or version, arguments.alloc_conf)
            return repaired(line for line in lines if line.split()[0] not in dropped)

        work = [
            (f"seed-{seed}", lambda version, seed=seed: make(seed, version))
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds)
        ]
    try:
        tally = compare_all(arguments.torch, arguments.against, work, arguments.keep, arguments.show, arguments.minimise_s, arguments.jobs)
    except Broken as problem:
        sys.stderr.write(f"compare.py: {problem}\n")
        sys.exit(2)
    sys.exit(1 if tally.different else 2 if tally.broken else 0)


if __name__ == "__main__":
    main()
