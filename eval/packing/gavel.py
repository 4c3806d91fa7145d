#!/usr/bin/env python3
"""The slowdown of two jobs that share a card: `gpucast pack` with captures only, compared with pairs that Gavel measured (OSDI '20).

    python -m eval.packing.gavel_jobs.capture --python .venv/torch-2.6.0/bin/python --out build/gavel     (once)
    python -m eval.packing.gavel --data DIR --captures build/gavel --gpucast build/release/bin/gpucast --markdown docs/results/packing.md
    python -m eval.packing.gavel --data DIR --captures build/gavel --fit        (needs numpy, scipy)

DIR/gavel, from the repository stanford-futuredata/gavel: scheduler/simulation_throughputs.json (2020) and, if it exists,
scheduler/notebooks/figures/motivation/oracle_throughputs.json (2019), plain or gzip: steps per second of 26 jobs alone and of all pairs. A
job's figures are from our capture of the same model. From the measurement we use only the time of a step alone, which is known after a run; the
rows `capture alone` do not use it either. --fit fits `mps` and `slices_until_pascal` of data/pack.json again, and shows the errors for pairs with a
model, or a card, left out of the fit.

Under time slices the card's share of a step matters. PyTorch and cuDNN then had slower kernels than the captures' PyTorch 2.6: the factor is the
ratio of the P100's steps alone to our kernels, in the median of the seven models' largest batches (2.0). A K80 runs
no PyTorch 2: its jobs are the P100's captures, its host needs the same time for a step as the P100's, and the card has the rest of a step."""

import argparse
import gzip
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from eval import ROOT, page
from eval.jobs import add_gpucast_option
from eval.packing.gavel_jobs.capture import CARDS, SWEPT, capture_of, jobs
from eval.tables import markdown, markdown_head, markdown_row, percent, quantile

COMMAND = "python -m eval.packing.gavel --data DIR --captures build/gavel"
SLOW = 1.25  # same as in interference.py
PROCESSES = {"A3C": 4}  # each of its workers uses the card separately
VIEWERS = 116677  # size of ML-20M's training data: in 2019 the Recommendation job counted passes over it, not steps
FILES = {"2019": "oracle_throughputs.json", "2020": "simulation_throughputs.json"}
# From the repository (worker.py of May 2020: MPS if the card is a V100) and, for 2019, from the figures.
SHARED_BY = {
    ("2019", "v100"): "mps",
    ("2019", "p100"): "mps",
    ("2019", "k80"): "timeslice",
    ("2020", "v100"): "mps",
    ("2020", "p100"): "timeslice",
    ("2020", "k80"): "timeslice",
}
CAPTURED_ON = {"k80": "p100"}
MEMORY = {"v100": 16928342016, "p100": 17066622976, "k80": 11996954624}
TURN_NS = json.loads((Path(__file__).resolve().parents[2] / "data/pack.json").read_text())["pack"]["mps"]["launches_ns"]
LARGE = 0.25
CUT = (
    1 / 3
)  # if a job has exactly its speed alone in this share of pairs, it was faster in them and the value was cut: its speed alone is too low
FITTED = {"mps": [("2019", "v100"), ("2019", "p100")], "timeslice": [("2020", "p100"), ("2020", "k80")]}
JUDGED_TOO = {"mps": [], "timeslice": [("2019", "k80")]}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data")
    parser.add_argument("--captures", type=Path, required=True)
    add_gpucast_option(parser)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args()


def short(name):
    return name.replace(" (batch size ", "-").replace(")", "")


def family(name):
    return name.split(" (")[0]


def throughputs(data, year):
    """{card: {job: {neighbour or None: steps per second, or both jobs' steps}}}; None: the file is missing."""
    for path in (data / "gavel" / FILES[year], data / "gavel" / (FILES[year] + ".gz")):
        if path.exists():
            break
    else:
        return None
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        found = json.load(file)

    def plain(name):  # "('LM (batch size 5)', 1)" is on one card
        if name == "null":
            return None
        return name[2:-5] if name.startswith("('") else name

    return {
        card: {
            plain(name): {plain(other): value for other, value in row.items()}
            for name, row in found[card].items()
            if not name.startswith("('") or name.endswith(", 1)")
        }
        for card in MEMORY
    }


class Measured:
    """One card's table: a step's seconds alone, slowdowns, pairs that did not run, and jobs with a doubtful speed alone: cut (see CUT), or
    exactly another card's."""

    def __init__(self, tables, card, year, names):
        table, others = tables[card], [tables[other] for other in tables if other != card]
        self.names, self.step_s, self.slowdown, self.failed, self.doubtful = names, {}, {}, set(), set()
        for name in names:
            alone = table[name][None]
            per_unit = math.ceil(VIEWERS / int(name.split()[-1][:-1])) if year == "2019" and family(name) == "Recommendation" else 1
            self.step_s[name] = 1 / (alone * per_unit)
            for other in names:
                speed = table[name][other][0]
                if speed > 0:
                    self.slowdown[name, other] = alone / speed
                else:
                    self.failed.add(frozenset((name, other)))
            ran = [self.slowdown[key] for key in self.slowdown if key[0] == name]
            # The V100's is the copy: its Transformer-256 would be slower than half of -128.
            copied = card == "v100" and any(other[name][None] == alone for other in others)
            if copied or sum(abs(slow - 1) < 1e-9 for slow in ran) > CUT * len(ran):
                self.doubtful.add(name)

    def sound(self, key):
        return not self.doubtful.intersection(key)


def figures(args, card):
    """{job: figures of `gpucast pack` for its capture}"""
    card = CAPTURED_ON.get(card, card)
    gpu, names = CARDS[card], list(jobs())
    paths = [capture_of(args.captures, card, name) for name in names]
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        sys.exit(f"no capture {missing[0]}: eval/packing/gavel_jobs/capture.py makes them")
    words = [args.gpucast, "pack", *map(str, paths), "--gpus", gpu, "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return {name: job["on"][gpu] for name, job in zip(names, json.loads(done.stdout)["jobs"])}


SHARES = ("sm_active", "nvml_utilization", "compute", "tensor", "dram", "l2", "pcie", "launch")


def with_alone(one, step_s):
    """The capture's kernels in a step of the measured length."""
    out = dict(one)
    longer = step_s * 1e9 / one["step_ns"]
    for share in SHARES:
        out[share] = min(1.0, one[share] / longer)
    out["step_ns"] = step_s * 1e9
    return out


def slower_then(captured, step_s):
    """The time of the kernels of that time's software on the P100, divided by ours."""
    largest = [f"{model} (batch size {max(batches)})" for model, (_, batches) in SWEPT.items()]
    return quantile([step_s[name] * 1e9 / (captured[name]["step_ns"] * captured[name]["nvml_utilization"]) for name in largest + [*PROCESSES, "CycleGAN"]], 0.5)  # fmt: skip


def known_of(year, card, tables, captured):
    """{job: its capture's figures, with its step's measured time alone}"""
    names = list(jobs())
    step_s = Measured(tables, card, year, names).step_s
    known = {name: with_alone(captured[name], step_s[name]) for name in names}
    if SHARED_BY[year, card] != "timeslice":
        return known
    on_p100 = Measured(tables, "p100", year, names).step_s
    slower = slower_then(captured, on_p100)
    for name in names:
        most = 1 / PROCESSES.get(name, 1)  # of the card, for each of its processes
        gpu_s = slower * captured[name]["nvml_utilization"] * captured[name]["step_ns"] / 1e9
        host_s = on_p100[name] * (1 - min(most, gpu_s / on_p100[name]))
        known[name]["nvml_utilization"] = min(most, max(0.01, 1 - host_s / step_s[name]))
    return known


def predicted(args, known, gpu, mode, names):
    """{(job, neighbour): slowdown's low, expected and high} from the command."""

    def together(words):
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "jobs.jsonl"
            table.write_text("".join(json.dumps({"name": str(i), "gpus": [gpu], **known[one], "memory_bytes": 1}) + "\n" for i, one in enumerate(words)))  # fmt: skip
            command = [args.gpucast, "pack", str(table), "--gpus", gpu, "--mode", mode, "--format", "json"]
            report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        return [[job["slowdown"][key] for key in ("low", "expected", "high")] for job in report["together"]["jobs"]]

    siblings = {}  # a job of several processes slows itself even when it is alone
    for name, count in PROCESSES.items():
        siblings[name] = together([name] * count)[0][1]
    out = {}
    for i, name in enumerate(names):
        for other in names[i:]:
            first = PROCESSES.get(name, 1)
            slower = together([name] * first + [other] * PROCESSES.get(other, 1))
            for one, beside, slow in ((name, other, slower[0]), (other, name, slower[first])):
                alone = siblings.get(one, 1)
                out[one, beside] = tuple(max(1.0, value / alone) for value in slow)
    return out


def line(name, guess, measured, keys, inside=None):
    errors = [abs(guess[key] / measured.slowdown[key] - 1) for key in keys]
    slowed = [abs(guess[key] / measured.slowdown[key] - 1) for key in keys if measured.slowdown[key] > 1.15]
    cells = [*quantile(errors, [0.5, 0.9]), *quantile(slowed, [0.5, 0.9])]
    return markdown_row([name, len(errors), *(percent(cell, 1) for cell in cells), percent(inside, 0)])


def rule(name, allows, right):
    wrong = sum(a and not r for a, r in zip(allows, right)), sum(r and not a for a, r in zip(allows, right))
    return markdown_row([name, sum(allows), *wrong])


def section(args, year, card, tables, memory):
    gpu, mode, names = CARDS[CAPTURED_ON.get(card, card)], SHARED_BY[year, card], list(jobs())
    measured, captured = Measured(tables, card, year, names), figures(args, card)
    known = known_of(year, card, tables, captured)
    ours = predicted(args, known, gpu, mode, names)
    keys = list(measured.slowdown)
    sound = [key for key in keys if measured.sound(key)]

    def inside(keys):
        return sum(ours[key][0] <= max(1.0, measured.slowdown[key]) <= ours[key][2] for key in keys) / len(keys)

    def busy(name):
        return min(1.0, PROCESSES.get(name, 1) * known[name]["nvml_utilization"])

    def occupancy(name):
        return min(1.0, PROCESSES.get(name, 1) * known[name]["occupancy"])

    blind = []
    if card not in CAPTURED_ON:
        guess = predicted(args, captured, gpu, mode, names)
        blind = [line("`gpucast`: capture alone", {k: v[1] for k, v in guess.items()}, measured, keys)]
    sums = {(one, other): max(1.0, busy(one) + busy(other)) for one, other in keys}
    pairs = sorted({tuple(sorted(key)) for key in keys})
    pairs = [pair for pair in pairs if pair[::-1] in measured.slowdown and pair in measured.slowdown]
    right = [max(measured.slowdown[pair], measured.slowdown[pair[::-1]]) <= SLOW for pair in pairs]
    how = "MPS" if mode == "mps" else "time slices"
    of = f" Doubtful speed alone: {', '.join(sorted(short(name) for name in measured.doubtful))}." if measured.doubtful else ""
    may = f"rule, if no job may take more than {SLOW} times as long ({sum(right)} pairs)"
    lines = [
        f"{card.upper()}, {year}, {how}: {len(pairs)} pairs ran.{of}",
        "",
        markdown_head(["slowdown by", "n", "median %", "90th %", "jobs slowed above 1.15: median %", "90th %", "90 % interval holds %"]),
        line("`gpucast`: capture, and the step's time alone", {k: v[1] for k, v in ours.items()}, measured, keys, inside(keys)),
        line("the same, without doubtful jobs", {k: v[1] for k, v in ours.items()}, measured, sound, inside(sound)),
        *blind,
        line("sum of NVML utilizations, if above 100 %", sums, measured, keys),
        line("no slowdown", dict.fromkeys(keys, 1.0), measured, keys),
        line("both at half speed", dict.fromkeys(keys, 2.0), measured, keys),
        "",
        markdown_head([may, "pairs allowed", "wrongly", "wrongly forbidden"]),
        rule(f"`gpucast`: no slowdown above {SLOW} expected", [max(ours[a, b][1], ours[b, a][1]) <= SLOW for a, b in pairs], right),
        rule("DNN-occu: occupancies add up to 100 % at most", [occupancy(a) + occupancy(b) <= 1 for a, b in pairs], right),
        rule("NVML utilizations add up to 100 % at most", [busy(a) + busy(b) <= 1 for a, b in pairs], right),
        rule("all", [True] * len(pairs), right),
    ]
    memory.append(memory_line(year, card, measured, captured))
    return len(pairs), "\n".join([*lines, "", misses({key: ours[key][1] / measured.slowdown[key] - 1 for key in keys})])


def misses(errors):
    by_pair = {}
    for (one, other), error in errors.items():
        if abs(error) > LARGE:
            by_pair.setdefault(f"{family(one)} next to {family(other)}", []).append(error)
    worst = sorted(by_pair.items(), key=lambda one: -len(one[1]))[:5]
    parts = (f"{pair} ({len(found)}, {100 * sum(found) / len(found):+.0f} % in the mean)" for pair, found in worst)
    return f"Off by more than {100 * LARGE:.0f} %: {sum(map(len, by_pair.values()))} slowdowns, mostly {', '.join(parts)}."


def memory_line(year, card, measured, captured):
    """Pairs that did not run, compared with pairs without room according to `gpucast pack`."""
    names = list(measured.names)
    no_room = set()
    for i, name in enumerate(names):
        for other in names[i:]:
            asked = sum(PROCESSES.get(one, 1) * captured[one]["memory_bytes"] for one in (name, other))
            if asked > MEMORY[card]:
                no_room.add(frozenset((name, other)))
    both, only_failed, only_ours = measured.failed & no_room, measured.failed - no_room, no_room - measured.failed
    with_largest = sum(any(one in ("Transformer (batch size 256)", "ResNet-50 (batch size 128)") for one in pair) for pair in only_failed)
    return [f"{card.upper()}, {year}", len(measured.failed), len(both), f"{len(only_failed)} ({with_largest})", len(only_ours)]


def document(args):
    """How many pairs ran, and the tables."""
    ran, parts, memory = 0, [], []
    for (year, card), _ in SHARED_BY.items():
        tables = throughputs(args.data, year)
        if tables is None:
            print(f"without {year}: no {args.data}/gavel/{FILES[year]}", file=sys.stderr)
            continue
        pairs, text = section(args, year, card, tables, memory)
        ran += pairs
        parts.append(text)
    header = [
        "pairs",
        "did not run",
        "no room according to `gpucast`",
        "room according to `gpucast` (with Transformer-256 or ResNet-50-128)",
        "ran, although `gpucast` sees no room",
    ]
    parts.append(markdown(header, memory))
    return ran, "\n\n".join(parts)


def fit(args, mode):
    """Same as src/pack/interference.cc."""
    import numpy
    from scipy.optimize import minimize

    names = list(jobs())
    families = numpy.array([family(name) for name in names])
    count = numpy.array([float(PROCESSES.get(name, 1)) for name in names])

    def case_of(year, card):
        tables = throughputs(args.data, year)
        if tables is None:
            sys.exit(f"--fit needs {args.data}/gavel/{FILES[year]}")
        measured, captured = Measured(tables, card, year, names), figures(args, card)
        known = list(known_of(year, card, tables, captured).values())
        slow = numpy.array([[measured.slowdown.get((one, other), math.nan) for other in names] for one in names])
        busy = numpy.array([one["nvml_utilization"] for one in known])
        held = numpy.array([min(1.0, one["sm_active"] / one["nvml_utilization"]) if mode == "mps" else 1.0 for one in known])
        step_ns, kernels, waves = (numpy.array([float(one[key]) for one in known]) for key in ("step_ns", "kernels", "waves"))
        sound = numpy.array([[measured.sound((one, other)) for other in names] for one in names]) & ~numpy.isnan(slow)
        return slow, busy, held, step_ns * busy, kernels, waves, sound

    cases, others = ({key: case_of(*key) for key in keys[mode]} for keys in (FITTED, JUDGED_TOO))
    start = {"mps": (1.2, 0.3), "timeslice": (0.9, 20)}[mode]

    def turn_ns(x, case):
        _, _, _, gpu_ns, kernels, waves, _ = case
        if mode == "mps":
            return gpu_ns / (kernels + x[1] * (waves - kernels))
        return 1 / (1 / gpu_ns + 1 / (1e6 * x[1]))

    def model(x, case):
        """For `mine` processes of each job next to `theirs` of each other."""
        x = numpy.clip(x, 1e-3, 1e3)
        busy, held = case[1:3]
        turn = turn_ns(x, case) + (TURN_NS if mode == "mps" else 0)
        wait = x[0] * held[None, :] * turn[None, :] / turn[:, None]  # for one process each
        own = numpy.diag(wait)

        def run(mine, theirs):
            first, second = (numpy.broadcast_to(b, wait.shape) for b in (busy[:, None], busy[None, :]))
            for _ in range(2):
                longer = 1 + (mine - 1) * first * own[:, None] + theirs * second * wait
                others = 1 + (theirs - 1) * second * own[None, :] + mine * first * wait.T
                slower, others_slower = 1 + busy[:, None] * (longer - 1), 1 + busy[None, :] * (others - 1)
                first, second = busy[:, None] * longer / slower, busy[None, :] * others / others_slower
            return slower

        return run(count[:, None], count[None, :]) / run(count[:, None], numpy.zeros((1, len(names))))

    def best(choose):
        def loss(x):
            logs = [numpy.abs(numpy.log(model(x, case) / case[0]))[choose(key, case)] for key, case in cases.items()]
            return numpy.concatenate(logs).mean()

        return minimize(loss, start, method="Nelder-Mead").x

    def tell(what, ratios):
        if not ratios.size:
            return
        errors = numpy.abs(1 / ratios - 1)
        print(
            f"{what:34} {errors.size:5} slowdowns: median {100 * numpy.median(errors):5.1f} %, 90th {100 * numpy.quantile(errors, 0.9):5.1f} %"
        )

    print(f"{mode}:")
    sound = {key: case[-1] for key, case in (cases | others).items()}
    ratios, all_ratios = {key: [] for key in cases | others}, {key: [] for key in cases | others}
    for name in sorted(set(families)):
        has = (families == name)[:, None] | (families == name)[None, :]
        x = best(lambda key, _, has=has: sound[key] & ~has)
        for key, case in (cases | others).items():
            found = case[0] / model(x, case)
            ratios[key].append(found[sound[key] & has])
            all_ratios[key].append(found[~numpy.isnan(found) & has])
            tell(f"{key[1]} {key[0]} without {name}", ratios[key][-1])
    for key in cases | others:
        tell(f"{key[1]} {key[0]}, models left out", numpy.concatenate(ratios[key]))
        tell("    and doubtful jobs, too", numpy.concatenate(all_ratios[key]))
    everything = numpy.concatenate([part for key in cases for part in ratios[key]])
    tell("models left out", everything)
    for key, case in cases.items():
        x = best(lambda other, _, key=key: sound[other] & (other != key))
        tell(f"{key[1]} {key[0]}, card left out", (case[0] / model(x, case))[sound[key]])
    x = best(lambda key, _: sound[key])
    for key, case in others.items():
        tell(f"{key[1]} {key[0]}, not fitted", (case[0] / model(x, case))[sound[key]])
    low, high = numpy.quantile(everything, (0.05, 0.95)).round(2)
    if mode == "mps":
        turn = numpy.median(numpy.concatenate([turn_ns(x, case) for case in cases.values()])).round(-3)
        fitted = {"mps": {"cost": x[0].round(2), "wave_ends_turn": x[1].round(2), "typical_turn_ns": turn, "low": low, "high": high}}
    else:
        fitted = {"slices_until_pascal": {"cost": x[0].round(3), "slice_ns": 1e6 * x[1].round(1), "low": low, "high": high}}
    print(f"data/pack.json, all sound pairs; low and high: max(1, measured) / expected, models left out\n{json.dumps(fitted, indent=1)}")


def main():
    args = parse_args()
    if args.fit:
        for mode in FITTED:
            fit(args, mode)
        return
    ran, text = document(args)
    print(text)
    if args.markdown:
        page.write(args.markdown, COMMAND, f"{ran:,} pairs of Gavel", {"gavel": text})


if __name__ == "__main__":
    main()
