#!/usr/bin/env python3
"""`gpucast time` on twelve real data pipelines, compared with the same loops under `gpucast run --real-time`, with 0, 1, 2 and 4 workers.

    python -m eval.loader.evaluate --gpucast build/release/bin/gpucast [--markdown docs/results/data-pipeline.md]
                                                                            (a Python with torch, torchvision, Pillow, numpy, datasets, tokenizers, webdataset)

Each pipeline is captured with 0 workers, for two loops: in one the card needs 0.3 times as long for a step as a worker for a batch
(fast), in the other 1.5 times (slow). Predicted from a capture: a step with any number of workers; a step with 4 workers if only 0 and 1 were
measured; the slow disk's pipeline by --storage, compared with a throttled reader. Measured: the loop runs in real time, by the events of the
card's clock.

Two things disturb the measurement. Other programs: a measurement during which they used more than --quiet cores is repeated, at most --attempts
times, and the calmest counts. And a virtual machine's cores: at times they need up to 1.6 times as long for the same work, for seconds or
minutes, without a visible reason. So each pipeline does a little work of known length between its samples (2 % of its time), and predictions are
made for the pace of their measurement: each of the capture's measurements is scaled to one pace, and --cpu-speed gives the other. `raw` is the
error without that."""

import argparse
import gzip
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from eval import page
from eval.jobs import add_gpucast_option
from eval.loader.names import SYNC
from eval.tables import markdown, percent, signed, sizes

COMMAND = "python -m eval.loader.evaluate"
PIPELINES = Path(__file__).with_name("pipelines.py")
WORKERS = (0, 1, 2, 4)
CARD = "a100-80"
ROWS = 512
PACE_S = 57e-6  # of the little work; captures are scaled to it
DISKS = (4e6, 12e6)  # bytes a second
BARS = {"median": 0.05, "worst": 0.12, "extrapolated": 0.10, "storage": 0.10}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_gpucast_option(parser)
    parser.add_argument("--only", help="names, with commas between them")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "gpucast-loader-eval")
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    parser.add_argument("--quiet", type=float, default=0.15)
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--out", type=Path, help="every row as JSON lines; a complete pipeline in it is not measured again")
    parser.add_argument("--markdown", type=Path, help="a page to write the tables into")
    return parser.parse_args()


class Evaluation:
    def __init__(self, args):
        self.args = args
        self.rows = []
        self.paces = args.folder / "paces.txt"

    def run(self, words):
        words = [str(word) for word in words]
        self.paces.unlink(missing_ok=True)
        done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "PACE_FILE": str(self.paces)})
        if done.returncode not in (0, 1):
            sys.exit(f"{' '.join(words)}\n{done.stderr[-2000:]}")
        return done.stdout

    def pace_of_processes(self):
        """Seconds for the little work in each process that made samples, in the order of their start."""
        found = {}
        for line in self.paces.read_text(encoding="ascii").splitlines():
            process, seconds = line.split()
            found.setdefault(process, []).append(float(seconds))
        return [statistics.fmean(sorted(one)[: max(1, len(one) * 19 // 20)]) for one in found.values()]  # without a few interruptions

    def script(self, name, rows):
        return ["--", sys.executable, PIPELINES, name, "--folder", self.args.folder, "--rows", rows]

    def capture(self, name, rows):
        """The capture, and the same scaled to cores of the pace PACE_S."""
        path = self.args.folder / f"{name}-{rows}.gpucast"
        self.run([self.args.gpucast, "run", "--gpu", CARD, "--measure-loader", "--force", "-o", path, *self.script(name, rows)])
        paces = iter(self.pace_of_processes()[1:])  # after the script's own process
        factors = {}
        for workers in (0, 1, 2):  # each run has its own processes
            own = list(itertools.islice(paces, max(1, workers)))
            if own:
                factors[workers] = PACE_S / statistics.fmean(own)
        return path, paced(path, factors)

    def predict(self, capture, *words):
        command = [self.args.gpucast, "time", capture, "--gpu", CARD, "--workers", "0,1,2,4", "--format", "json", *words]
        return json.loads(self.run(command))

    def measure(self, name, rows, workers, bytes_per_s=0):
        words = [self.args.gpucast, "run", "--real-time", "--gpu", CARD, *self.script(name, rows)]
        words += ["--workers", workers, "--seconds", self.args.seconds, "--bytes-per-s", bytes_per_s]
        best = None
        for _ in range(self.args.attempts):
            found = json.loads(self.run(words).splitlines()[-1])
            paces = self.pace_of_processes()[-max(1, workers) :]  # the script ran before, to record its steps
            found["pace"] = statistics.fmean(paces) / PACE_S
            if best is None or found["others"] < best["others"]:
                best = found
            if best["others"] <= self.args.quiet:
                break
        return best

    def compare(self, name, kind, rows, workers, captured, disk=0):
        raw, capture = captured
        found = self.measure(name, rows, workers, disk)
        storage = ["--storage", f"{disk:.0f}B/s"] if disk else []
        words = ["--cpu-speed", f"{1 / found['pace']:.4f}", *storage]
        predicted = self.predict(capture, *words)
        choice = choice_of(predicted, workers)
        without_ms = predicted["loader"]["step_without"]["expected_ns"] / 1e6
        measured, expected = found["step_ms"], choice["step"]["expected_ns"] / 1e6
        # A step waits for the loader if the loader is slower than everything else; within a tenth, either name is right.
        added = measured - (without_ms if SYNC[name] == "item" and not workers else 0)
        row = {
            "pipeline": name,
            "kind": kind,
            "sync": SYNC[name],
            "workers": workers,
            "without_ms": without_ms,
            "predicted_ms": expected,
            "measured_ms": measured,
            "error": expected / measured - 1,
            "error_raw": step_ms(self.predict(raw, *storage), workers) / measured - 1,
            "pace": found["pace"],
            "inside": choice["step"]["low_ns"] / 1e6 <= measured <= choice["step"]["high_ns"] / 1e6,
            "bound": choice["bound"],
            "measured_bound": "loader" if added > 1.05 * without_ms else "card",
            "tie": abs(added / without_ms - 1) < 0.1 and choice["batch"]["expected_ns"] / 1e6 > 0.85 * without_ms,
            "others": found["others"],
        }
        if workers == 4 and not disk:
            row["from_0_and_1"] = step_ms(self.predict(with_runs(capture, (0, 1)), *words), 4) / measured - 1
        self.rows.append(row)
        print(
            f"{name:14}{kind:9}{row['sync']:6}{workers:3}{without_ms:9.1f}{expected:10.1f}{measured:10.1f}{row['error']:+8.1%}{row['error_raw']:+8.1%}"
            f"{row['pace']:6.2f}{row['bound']:>8}{'' if named_right(row) else '  WRONG'}{row['others']:8.2f}",
            flush=True,
        )
        if self.args.out:
            with self.args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def pipeline(self, name):
        first = self.predict(self.capture(name, ROWS)[1])
        one_ns = choice_of(first, 1)["batch"]["expected_ns"]
        for kind, share in (("fast", 0.3), ("slow", 1.5)):
            rows = max(1, round(ROWS * share * one_ns / first["gpu_ns"]))
            captured = self.capture(name, rows)
            for workers in WORKERS:
                self.compare(name, kind, rows, workers, captured)
            if name != "slow-disk" or kind != "fast":
                continue
            for disk in DISKS:
                for workers in WORKERS:
                    self.compare(name, "storage", rows, workers, captured, disk)


def choice_of(predicted, workers):
    return next(one for one in predicted["loader"]["choices"] if one["workers"] == workers)


def step_ms(predicted, workers):
    return choice_of(predicted, workers)["step"]["expected_ns"] / 1e6


def named_right(row):
    return row["tie"] or (row["bound"] == "loader") == (row["measured_bound"] == "loader")


def rewritten(capture, suffix, change):
    """A copy with `change` applied to its measured runs."""
    out = capture.with_suffix(suffix)
    with gzip.open(capture, "rt") as source, gzip.open(out, "wt") as file:
        for line in source:
            if line.startswith('{"record": "loader"'):
                record = json.loads(line)
                record["measured"] = change(record["measured"])
                line = json.dumps(record) + "\n"
            file.write(line)
    return out


def with_runs(capture, workers):
    """The capture as if only these numbers of workers had been measured."""
    return rewritten(capture, ".some.gpucast", lambda runs: [run for run in runs if run["workers"] in workers])


def paced(capture, factors):
    """Its measurements with each number of workers, scaled by a factor, except for the waiting time."""

    def one(run):
        factor = factors.get(run["workers"], 1)
        busy = min(1, run["cpu_ns"] / run["fetch_ns"]) if run.get("cpu_ns") and run.get("fetch_ns") else 1
        out = {**run, "batch_ns": [round(ns * (1 + busy * (factor - 1))) for ns in run.get("batch_ns", ())]}
        for name in ("period_ns", "fetch_ns"):
            if name in run:
                out[name] = run[name] * (1 + busy * (factor - 1))
        for name in ("cpu_ns", "main_cpu_ns", "copy_ns"):
            if name in run:
                out[name] = run[name] * factor
        return out

    return rewritten(capture, ".paced.gpucast", lambda runs: [one(run) for run in runs])


def table(rows):
    """Markdown: the summary, and the rows above the bars."""
    body = []

    def line(what, errors, median, worst):
        if errors:
            bars = f"{median:.0%}, {worst:.0%}" if median else f"{worst:.0%}"
            middle, _, *high = sizes(errors)
            body.append([what, len(errors), *(percent(size, 1) for size in (middle, *high)), bars])

    plain = [row for row in rows if row["kind"] != "storage"]
    line("all", [row["error"] for row in plain], BARS["median"], BARS["worst"])
    for workers in WORKERS:
        line(f"{workers} workers", [row["error"] for row in plain if row["workers"] == workers], BARS["median"], BARS["worst"])
    line("waiting for the loader", [row["error"] for row in plain if row["measured_bound"] == "loader"], BARS["median"], BARS["worst"])
    line("with the capture's pace", [row["error_raw"] for row in plain], BARS["median"], BARS["worst"])
    line("4 workers, from 0 and 1", [row["from_0_and_1"] for row in plain if "from_0_and_1" in row], 0, BARS["extrapolated"])
    line("a slow disk, by `--storage`", [row["error"] for row in rows if row["kind"] == "storage"], 0, BARS["storage"])
    right, ties = sum(map(named_right, rows)), sum(row["tie"] for row in rows)
    inside = sum(row["inside"] for row in rows)
    paces = [row["pace"] for row in rows]
    lines = [
        markdown(["steps", "rows", "median %", "90th %", "worst %", "bars"], body, words=(0, 5)),
        "",
        f"The bound is named right in {right} of {len(rows)}; {ties} of them are within a tenth of a tie. "
        f"Low and high hold {inside} of {len(rows)}. Other programs had {statistics.median(row['others'] for row in rows):.2f} cores in the median, "
        f"{max(row['others'] for row in rows):.2f} at most. For the little work a core took {max(paces) / min(paces):.2f} times as long at the slowest "
        "as at the fastest.",
    ]
    missed = sorted((row for row in rows if abs(row["error"]) > 0.1), key=lambda row: -abs(row["error"]))
    if missed:
        header = ["off by more than 10 %", "workers", "predicted ms", "measured ms", "off %", "others' cores"]
        body = []
        for row in missed:
            times = (f"{row[f'{which}_ms']:.1f}" for which in ("predicted", "measured"))
            body.append([f"{row['pipeline']}, {row['kind']}", row["workers"], *times, signed(row["error"], 1), f"{row['others']:.2f}"])
        lines += ["", markdown(header, body)]
    return "\n".join(lines)


def main():
    args = parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    evaluation = Evaluation(args)
    if args.out and args.out.exists():
        evaluation.rows = [json.loads(line) for line in args.out.read_text().splitlines()]
    done = {name for name in SYNC if sum(row["pipeline"] == name for row in evaluation.rows) >= rows_of(name)}
    evaluation.rows = [row for row in evaluation.rows if row["pipeline"] in done]
    if args.out:
        args.out.write_text("".join(json.dumps(row) + "\n" for row in evaluation.rows))
    print(
        f"{'pipeline':14}{'card':9}{'waits':6}{'n':>3}{'without':>9}{'predicted':>10}{'measured':>10}{'error':>8}{'raw':>8}{'pace':>6}{'bound':>8}{'others':>8}  ms"
    )
    for name in args.only.split(",") if args.only else SYNC:
        if name not in done:
            evaluation.pipeline(name)
    text = table(evaluation.rows)
    print("\n" + text)
    if args.markdown:
        pipelines = len({row["pipeline"] for row in evaluation.rows})
        page.write(args.markdown, COMMAND, f"{pipelines} pipelines, {len(evaluation.rows)} measured steps", {"loader": text})


def rows_of(name):
    return len(WORKERS) * (2 + len(DISKS) * (name == "slow-disk"))


if __name__ == "__main__":
    main()
