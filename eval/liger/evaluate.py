#!/usr/bin/env python3
"""Liger-Kernel's own benchmark scripts, unmodified, compared with the times that its authors measured on real cards.

    python -m eval.liger.evaluate --data DIR --liger REPOSITORY --python ENV/bin/python --cache CACHE [--providers eager,torch_compile,liger]
        [--cards a100-80] [--kernels softmax] [--misses 25] [--warp]

DIR/liger/kernels.csv.gz has the rows, REPOSITORY is a clone of linkedin/Liger-Kernel. ENV has torch, triton, transformers and what these
need. The kernels are those of the commit that brought the rows; what their release needs to be found comes from the package index. CACHE
keeps scripts, releases and captures: a capture that is there is not made again.

All rows of a kernel and a compute capability are measured in one process: `gpucast run` captures one step that holds them all, and a row's time
is the sum of its kernels' times. With --warp each script runs as a user would run it, under `gpucast run --warp`, and the rows are those
that it writes itself.
"""

import argparse
import collections
import csv
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys

from eval import ROOT, jobs
from eval.data_sets import GPUS, card_of, read_csv
from eval.tables import ERROR_HEAD, error, error_cells, markdown_head, markdown_row, percent, signed

# The commit that brought a kernel's rows into the repository, and the script of that commit, without "benchmark_".
SCRIPTS = {
    "cross_entropy": ("b5672a15", "cross_entropy"),
    "distill_cosine_loss": ("08906d3d", "distill_cosine_loss"),
    "distill_jsd_loss": ("aa2d23dc", "distill_jsd_loss"),
    "embedding": ("b5672a15", "embedding"),
    "fused_add_rms_norm": ("b7025a70", "fused_add_rms_norm"),
    "fused_linear_cpo_loss": ("16d06edf", "cpo_loss"),
    "fused_linear_cross_entropy": ("90fb5e4a", "fused_linear_cross_entropy"),
    "fused_linear_grpo_loss_sequence": ("78125679", "grpo_loss"),
    "fused_linear_grpo_loss_token": ("78125679", "grpo_loss"),
    "fused_linear_jsd": ("ff6650bb", "fused_linear_jsd"),
    "fused_linear_orpo_loss": ("6b2fd02d", "orpo_loss"),
    "fused_linear_simpo_loss": ("ebd53035", "simpo_loss"),
    "fused_moe": ("1faa0131", "fused_moe"),
    "fused_neighborhood_attention": ("a53675dd", "fused_neighborhood_attention"),
    "geglu": ("b5672a15", "geglu"),
    "group_norm": ("dea3a772", "group_norm"),
    "jsd": ("8ef203a4", "jsd"),
    "kl_div": ("a307eac8", "kl_div"),
    "kto_loss": ("ee5aaf26", "kto_loss"),
    "layer_norm": ("b5672a15", "layer_norm"),
    "llama4_rope": ("10b6cdec", "llama4_rope"),
    "multi_token_attention": ("5d25e468", "multi_token_attention"),
    "relu_squared": ("39a1f454", "relu_squared"),
    "rms_norm": ("b5672a15", "rms_norm"),
    "rope": ("b5672a15", "rope"),
    "softmax": ("5d25e468", "softmax"),
    "sparse_multi_token_attention": ("5d25e468", "sparse_multi_token_attention"),
    "sparsemax": ("e71b1e43", "sparsemax"),
    "swiglu": ("b5672a15", "swiglu"),
    "tiled_geglu": ("4c32ab6a", "tiled_mlp"),
    "tiled_swiglu": ("4c32ab6a", "tiled_mlp"),
    "tvd": ("5c9cecc8", "tvd"),
}
PROVIDERS = {"huggingface": "eager", "torch": "eager", "deepspeed_tiled": "eager", "torch_compile": "torch_compile"}
GROUPS = ("eager", "torch_compile", "liger")
# Releases before 0.5.5 import names that newer releases of transformers do not have.
OLD_TRANSFORMERS = ("transformers==4.46.3", "tokenizers==0.20.3", "huggingface_hub==0.26.5")
NEWER_FROM = (0, 5, 5)
MARKER = "aten::erfinv_"  # of a measurement, as in measure_kernels.py, which runs alone
DIFFERENT = 0.1  # two providers' measured times differ by at least this share


@dataclasses.dataclass(frozen=True)
class Row:
    kernel: str
    provider: str
    mode: str
    x: str
    config: str
    card: str
    release: str
    ms: float

    @property
    def group(self):
        return PROVIDERS.get(self.provider, "liger")

    @property
    def request(self):
        x = float(self.x)
        fields = {"kernel": self.kernel, "provider": self.provider, "mode": self.mode, "x": int(x) if x.is_integer() else x}
        return json.dumps({**fields, "config": json.loads(self.config)})


def rows_of(data):
    for line in read_csv(data / "liger" / "kernels.csv"):
        card = card_of(line["gpu_name"])
        if line["metric_name"] == "speed" and line["kernel_name"] in SCRIPTS and card:
            yield Row(
                line["kernel_name"],
                line["kernel_provider"],
                line["kernel_operation_mode"],
                line["x_value"],
                line["extra_benchmark_config_str"],
                card,
                line["liger_version"],
                float(line["y_value_50"]),
            )


# --- Scripts, releases, captures -----------------------------------------------------------------------------------------------------


def scripts(args, commit):
    folder = args.cache / "scripts" / commit
    if not folder.exists():
        folder.mkdir(parents=True)
        # An index of its own: the clone stays as it is, and may lack files that are not asked for.
        git = ["git", "--git-dir", str(args.liger), "--work-tree", str(folder), "checkout", commit, "--"]
        index = os.environ | {"GIT_INDEX_FILE": str(folder / "index")}
        subprocess.run([*git, "benchmark/scripts", "src", ":(glob)test/**/*.py"], env=index, check=True)
        (folder / "benchmark" / "data").mkdir(exist_ok=True)
    return folder / "benchmark" / "scripts"


def installed(args, *packages):
    folder = args.cache / "packages" / "_".join(packages).replace("==", "-")
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), *packages]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return folder


def is_older(release):
    return tuple(int(part) for part in release.split(".")[:3]) < NEWER_FROM


def environment(args, release, *folders):
    paths = [*folders, installed(args, f"liger-kernel=={release}")]
    if is_older(release):
        paths.append(installed(args, *OLD_TRANSFORMERS))
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "GPUCAST_OBSERVE_S": "3600"}


def capture(args, kernel, release, card, requests):
    """(The capture, its report); the report says why if there is no capture."""
    commit, script = SCRIPTS[kernel]
    key = hashlib.sha256(json.dumps([kernel, commit, release, card, requests]).encode()).hexdigest()[:12]
    stem = args.cache / "captures" / f"{kernel}-{card}-{key}"
    stem.parent.mkdir(parents=True, exist_ok=True)
    made, report, asked = (stem.with_suffix(suffix) for suffix in (".gpucast", ".report", ".json"))
    if not report.exists():
        print(f"{kernel} on {card}: {len(requests)} measurements", file=sys.stderr, flush=True)
        asked.write_text("[" + ",\n".join(requests) + "]")
        path = scripts(args, commit) / f"benchmark_{script}.py"
        command = [args.gpucast, "run", "--gpu", card, "--steps", "2", "--force", "-o", str(made), "--"]
        command += [args.python, str(ROOT / "eval/liger/measure_kernels.py"), str(path), str(asked), str(report)]
        root = path.parents[2]
        folders = path.parent, root / "src", root  # some scripts import references from `test`
        done = subprocess.run(command, env=environment(args, release, *folders), capture_output=True, text=True)
        if "this installation of gpucast is incomplete" in done.stderr:
            raise SystemExit(done.stderr)
        if not report.exists():
            report.write_text(json.dumps({"measured": [], "failed": {}, "error": (done.stdout + done.stderr)[-2000:]}))
    return made, json.loads(report.read_text())


def work_of(args, made, card):
    """The kernels of each measurement of a capture, in order: lists of (operator, kernel, sizes, ns)."""
    out = made.with_suffix(f".{card}.trace")
    command = [args.gpucast, "export", str(made), "--gpu", card, "--to", "perfetto", "--force", "-o", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    trace = json.loads(out.read_text())
    out.unlink()
    kernels = [event for event in trace["traceEvents"] if event.get("pid") == 3 and event.get("ph") == "X"]
    found, inside = [], False
    for event in sorted(kernels, key=lambda event: event["ts"]):
        if event["name"] == MARKER:
            inside = not inside
            if inside:
                found.append([])
        elif inside:
            found[-1].append((event["name"], event["args"].get("kernel", ""), event["args"].get("sizes", ""), event["dur"] / 1e3))
    return found


def predictions(args, rows):
    """{row: (ms, its kernels)}, and problems."""
    found, problems = {}, []
    by_capture = collections.defaultdict(list)
    for row in rows:
        by_capture[row.kernel, row.release, GPUS[row.card]["compute_capability"]].append(row)
    for (kernel, release, _), same in sorted(by_capture.items()):
        # Providers have captures of their own, so that one that fails leaves the others alone.
        for group in GROUPS:
            mine = [row for row in same if row.group == group]
            if not mine:
                continue
            requests = sorted({row.request for row in mine})
            made, report = capture(args, kernel, release, sorted(row.card for row in mine)[0], requests)
            if "error" in report:
                problems.append(f"{kernel}, {group}: {report['error'].strip().splitlines()[-1]}")
                continue
            problems += [f"{kernel}, {group}: {requests[int(number)]}: {why}" for number, why in report["failed"].items()]
            for card in sorted({row.card for row in mine}):
                work = dict(zip((requests[number] for number in report["measured"]), work_of(args, made, card)))
                for row in mine:
                    if row.card == card and work.get(row.request):
                        found[row] = (sum(kernel[-1] for kernel in work[row.request]), work[row.request])
    return found, problems


def warp_predictions(args, rows):
    """The same from what the scripts write themselves under `gpucast run --warp`."""
    found, problems = {}, []
    runs = {(SCRIPTS[row.kernel], row.release, row.card) for row in rows}
    for (commit, script), release, card in sorted(runs):
        mine = [row for row in rows if (SCRIPTS[row.kernel], row.release, row.card) == ((commit, script), release, card)]
        folder = args.cache / "warp" / f"{script}-{release}-{card}"
        written = folder / "data" / "all_benchmark_data.csv"
        if not written.exists():
            shutil.copytree(scripts(args, commit), folder / "scripts", dirs_exist_ok=True)
            written.parent.mkdir(parents=True, exist_ok=True)
            command = [args.gpucast, "run", "--warp", "--gpu", card, "--"]
            first = [str(ROOT / "eval/liger/run_script.py")] if is_older(release) else []
            command += [args.python, *first, str(folder / "scripts" / f"benchmark_{script}.py"), "--overwrite"]
            root = scripts(args, commit).parents[1]
            done = subprocess.run(
                command, env=environment(args, release, folder / "scripts", root / "src", root), capture_output=True, text=True
            )
            if not written.exists():
                problems.append(f"{script} on {card}: {(done.stdout + done.stderr).strip()[-300:]}")
                continue
        with written.open(newline="") as file:
            lines = [line for line in csv.DictReader(file) if line["metric_name"] == "speed"]
        key = ("kernel_name", "kernel_provider", "kernel_operation_mode", "x_value")
        said = {(*(line[name] for name in key), line["extra_benchmark_config_str"]): float(line["y_value_50"]) for line in lines}
        for row in mine:
            ms = said.get((row.kernel, row.provider, row.mode, row.x, row.config))
            if ms is not None:
                found[row] = (ms, [])
    return found, problems


# --- Tables --------------------------------------------------------------------------------------------------------------------------


def overview(found, keys, name):
    lines = [markdown_head([*name, *ERROR_HEAD], words=len(name))]
    parts = collections.defaultdict(list)
    for row, (ms, _) in found.items():
        parts[keys(row)].append(error(ms, row.ms))
    for key, errors in sorted(parts.items()):
        lines.append(markdown_row([*key, *error_cells(errors)]))
    return "\n".join(lines)


def pairs(found):
    """Which of two providers is faster, where they differ by more than DIFFERENT."""
    same = collections.defaultdict(list)
    for row, (ms, _) in found.items():
        same[row.kernel, row.mode, row.x, row.config, row.card].append((row, ms))
    right = collections.Counter()
    asked = collections.Counter()
    for rows in same.values():
        for (a, a_ms), (b, b_ms) in itertools.combinations(rows, 2):
            if max(a.ms, b.ms) < (1 + DIFFERENT) * min(a.ms, b.ms):
                continue
            asked[a.card] += 1
            right[a.card] += (a_ms < b_ms) == (a.ms < b.ms)
    lines = [markdown_head(["card", "pairs", "right"])]
    lines += [markdown_row([card, count, percent(right[card] / count, 1)]) for card, count in sorted(asked.items())]
    return "\n".join(lines)


def misses(found, least):
    lines = []
    for row, (ms, work) in sorted(found.items(), key=lambda item: -abs(error(item[1][0], item[0].ms))):
        if abs(error(ms, row.ms)) < least:
            break
        lines.append(
            f"{row.card} {row.kernel} {row.provider} {row.mode} {row.x}: {ms:.4g} ms, measured {row.ms:.4g} ({signed(error(ms, row.ms), 0)} %)"
        )
        lines += [f"    {ns:.4g} ms {name} {sizes} {kernel[:60]}" for name, kernel, sizes, ns in work]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--liger", type=pathlib.Path, required=True, help="a clone of linkedin/Liger-Kernel, bare or not")
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    jobs.add_gpucast_option(parser)
    parser.add_argument("--providers", default=",".join(GROUPS))
    parser.add_argument("--cards", default="")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--misses", type=float, metavar="PERCENT", help="also print the kernels of rows that are further off")
    parser.add_argument("--warp", action="store_true")
    args = parser.parse_args()
    args.gpucast = jobs.find(args.gpucast)
    args.cache = args.cache.resolve()
    rows = [row for row in rows_of(args.data) if row.group in args.providers.split(",")]
    rows = [row for row in rows if not args.cards or row.card in args.cards.split(",")]
    rows = [row for row in rows if not args.kernels or row.kernel in args.kernels.split(",")]
    found, problems = (warp_predictions if args.warp else predictions)(args, rows)
    print(f"{len(found)} of {len(rows)} rows; errors in %.\n")
    print(overview(found, lambda row: (row.group, row.card), ["providers", "card"]), end="\n\n")
    print(overview(found, lambda row: (row.group, row.kernel, row.mode), ["providers", "kernel", "mode"]), end="\n\n")
    print(pairs(found))
    if problems:
        print("\nLeft out:", *problems, sep="\n- ")
    if args.misses is not None:
        print("\n" + misses(found, args.misses / 100))


if __name__ == "__main__":
    main()
