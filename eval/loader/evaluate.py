#!/usr/bin/env python3
"""`gpucast time` on twelve real data pipelines, against the same loops before a card of known speed, with 0, 1, 2 and 4 workers.

    python eval/loader/evaluate.py --gpucast build/release/bin/gpucast            (a Python with torch, torchvision, Pillow, numpy)

Each pipeline is captured once with 0 workers. From the capture: a step with any number of workers, on a card so fast that it waits for
the loader, and on one that does not; the same with 4 workers where only 0 and 1 were measured; the slow disk's pipeline with a throttled
reader against --storage. Measured: the loop runs, the card is a clock (pipelines.Card). Other programs on the machine spoil that: a
measurement during which they had more than --quiet cores is repeated, at most --attempts times, and the calmest counts. `beside` is the
error of a prediction for as many cores as others left free (--cores)."""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from names import SYNC

PIPELINES = Path(__file__).with_name("pipelines.py")
WORKERS = (0, 1, 2, 4)
CARD = "a100-80"
CORES = len(os.sched_getaffinity(0))
DISKS = (4e6, 12e6)  # bytes a second
BARS = {"median": 0.05, "worst": 0.12, "extrapolated": 0.10, "storage": 0.10}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpucast", default=os.environ.get("GPUCAST_BIN", "gpucast"))
    parser.add_argument("--only", help="names, with commas between them")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "gpucast-loader-eval")
    parser.add_argument("--seconds", type=float, default=3, help="of each measurement")
    parser.add_argument("--quiet", type=float, default=0.15)
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument(
        "--nice", type=int, default=0, help="of the measurements; below 0, which is root's, where other programs are at work"
    )
    parser.add_argument("--out", type=Path, help="every row as JSON lines")
    return parser.parse_args()


class Evaluation:
    def __init__(self, args):
        self.args = args
        self.rows = []

    def run(self, words, enough=bool, nice=0):
        def before():
            if nice:  # of the whole session: the kernel shares the CPU out among sessions first
                Path("/proc/self/autogroup").write_text(str(nice), encoding="ascii")

        words = [str(word) for word in words]
        done = subprocess.run(words, capture_output=True, text=True, check=False, start_new_session=True, preexec_fn=before)
        if done.returncode not in (0, 1) and not enough():
            sys.exit(f"{' '.join(words)}\n{done.stderr[-2000:]}")
        return done.stdout

    def capture(self, name):
        path = self.args.folder / f"{name}.gpucast"
        script = [sys.executable, PIPELINES, name, "--folder", self.args.folder]
        self.run([self.args.gpucast, "run", "--gpu", CARD, "--measure-loader", "--force", "-o", path, "--", *script])
        return path

    def predict(self, capture, step_ms, *words):
        out = self.run(
            [
                self.args.gpucast,
                "time",
                capture,
                "--gpu",
                CARD,
                "--known",
                f"{CARD}={step_ms}ms",
                "--workers",
                "0,1,2,4",
                "--format",
                "json",
                *words,
            ]
        )
        return json.loads(out)

    def measure(self, name, workers, predicted, bytes_per_s=0):
        without_ms = predicted["loader"]["step_without"]["expected_ns"] / 1e6
        host_ms = predicted["host_ns"] / 1e6
        out = self.args.folder / "measured.json"
        # On the virtual GPU as well: pinned memory is there. It ends without a capture, since it never trains on it.
        words = [self.args.gpucast, "run", "--until-end", "--", sys.executable, PIPELINES, name, "--folder", self.args.folder]
        words += ["--workers", workers, "--step-ms", without_ms, "--host-ms", host_ms, "--seconds", self.args.seconds]
        words += ["--bytes-per-s", bytes_per_s, "--out", out]
        best = None
        for _ in range(self.args.attempts):
            begin, own = time.monotonic(), os.times()
            out.unlink(missing_ok=True)
            self.run(words, lambda: out.exists(), self.args.nice)
            found = json.loads(out.read_text())
            now = os.times()
            used = now.children_user + now.children_system - own.children_user - own.children_system
            found["others"] = max(0.0, found["busy_cores"] - used / (time.monotonic() - begin))
            if best is None or found["others"] < best["others"]:
                best = found
            if best["others"] <= self.args.quiet:
                break
        return best

    def compare(self, name, kind, workers, predicted, capture, disk=0):
        choice = next(one for one in predicted["loader"]["choices"] if one["workers"] == workers)
        found = self.measure(name, workers, predicted, disk)
        without_ms = predicted["loader"]["step_without"]["expected_ns"] / 1e6
        free = max(0.3, CORES - found["others"])
        words = ["--storage", f"{disk:.0f}"] if disk else []
        beside = self.predict(capture, without_ms, "--cores", f"{free:.3f}", *words)
        beside_ms = next(one for one in beside["loader"]["choices"] if one["workers"] == workers)["step"]["expected_ns"] / 1e6
        measured, expected = found["step_ms"], choice["step"]["expected_ns"] / 1e6
        # The loader is what a step waits for where it is slower than all else; where they are within a tenth, either name is right.
        added = measured if workers else (measured - without_ms if SYNC[name] == "item" else measured)
        row = {
            "pipeline": name,
            "kind": kind,
            "sync": SYNC[name],
            "workers": workers,
            "without_ms": without_ms,
            "predicted_ms": expected,
            "measured_ms": measured,
            "error": expected / measured - 1,
            "error_with_free_cores": beside_ms / measured - 1,
            "bound": choice["bound"],
            "measured_bound": "loader" if added > 1.05 * without_ms else "card",
            "tie": abs(added / without_ms - 1) < 0.1 and choice["batch"]["expected_ns"] / 1e6 > 0.85 * without_ms,
            "others": found["others"],
        }
        if workers == 4 and kind != "storage":
            alone = self.predict(with_runs(capture, (0, 1)), without_ms, "--cores", f"{free:.3f}")
            from_two = next(one for one in alone["loader"]["choices"] if one["workers"] == 4)["step"]["expected_ns"] / 1e6
            row["from_0_and_1"] = from_two / measured - 1
        self.rows.append(row)
        right = row["tie"] or (row["bound"] == "loader") == (row["measured_bound"] == "loader")
        print(
            f"{name:14}{kind:9}{row['sync']:6}{workers:3}{without_ms:9.1f}{expected:10.1f}{measured:10.1f}{row['error']:+8.1%}{row['error_with_free_cores']:+8.1%}"
            f"{row['bound']:>8}{'' if right else '  WRONG'}{row['others']:8.2f}",
            flush=True,
        )

    def pipeline(self, name):
        capture = self.capture(name)
        # Around what one worker gives: a card that waits, and one that does not.
        one = (
            next(choice for choice in self.predict(capture, 50)["loader"]["choices"] if choice["workers"] == 1)["batch"]["expected_ns"]
            / 1e6
        )
        for kind, step_ms in (("fast", 0.3 * one), ("slow", 1.5 * one)):
            predicted = self.predict(capture, round(step_ms, 3))
            for workers in WORKERS:
                self.compare(name, kind, workers, predicted, capture)
        if name == "slow-disk":
            for disk in DISKS:
                predicted = self.predict(capture, round(0.3 * one, 3), "--storage", f"{disk:.0f}")
                for workers in WORKERS:
                    self.compare(name, "storage", workers, predicted, capture, disk)


def with_runs(capture, workers):
    """The capture as if only these numbers of workers had been measured."""
    out = capture.with_suffix(".some.gpucast")
    with gzip.open(capture, "rt") as source, gzip.open(out, "wt") as file:
        for line in source:
            if line.startswith('{"record": "loader"'):
                record = json.loads(line)
                record["measured"] = [run for run in record["measured"] if run["workers"] in workers]
                line = json.dumps(record) + "\n"
            file.write(line)
    return out


def summary(rows):
    def line(what, errors, median, worst):
        errors = sorted(abs(error) for error in errors)
        if errors:
            bars = f"(bars {median:.0%}, {worst:.0%})" if median else f"(bar {worst:.0%})"
            print(f"{what:44}{len(errors):4} rows   median {statistics.median(errors):6.1%}   worst {errors[-1]:6.1%}   {bars}")

    plain = [row for row in rows if row["kind"] != "storage"]
    print()
    line("steps", [row["error"] for row in plain], BARS["median"], BARS["worst"])
    for workers in WORKERS:
        line(f"  with {workers} workers", [row["error"] for row in plain if row["workers"] == workers], BARS["median"], BARS["worst"])
    calm = [row for row in plain if row["others"] <= 0.15]
    line("  while others had at most 0.15 cores", [row["error"] for row in calm], BARS["median"], BARS["worst"])
    line("  with the cores that others left free", [row["error_with_free_cores"] for row in plain], BARS["median"], BARS["worst"])
    line("4 workers, of 0 and 1", [row["from_0_and_1"] for row in plain if "from_0_and_1" in row], 0, BARS["extrapolated"])
    line("storage, against a throttled reader", [row["error"] for row in rows if row["kind"] == "storage"], 0, BARS["storage"])
    right = [row["tie"] or (row["bound"] == "loader") == (row["measured_bound"] == "loader") for row in rows]
    print(f"{'bound named right':44}{sum(right):4} of {len(right)}, {sum(row['tie'] for row in rows)} of them within a tenth of a tie")


def main():
    args = parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    evaluation = Evaluation(args)
    print(
        f"{'pipeline':14}{'card':9}{'waits':6}{'n':>3}{'without':>9}{'predicted':>10}{'measured':>10}{'error':>8}{'beside':>8}{'bound':>8}{'others':>8}  ms"
    )
    for name in args.only.split(",") if args.only else SYNC:
        evaluation.pipeline(name)
    summary(evaluation.rows)
    if args.out:
        args.out.write_text("".join(json.dumps(row) + "\n" for row in evaluation.rows))


if __name__ == "__main__":
    main()
