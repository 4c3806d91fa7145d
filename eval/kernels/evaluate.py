#!/usr/bin/env python3
"""Whether the interpreter of PTX understands the Triton kernels of real programs, with the arguments that they launch them with.

    python -m eval.kernels.evaluate --python ENV/bin/python --unsloth REPOSITORY --out OUT [--only liger] [--cards h100-sxm] [--page]

ENV has torch, triton, torchvision, timm, transformers, liger-kernel and torchao; REPOSITORY is a checkout of unslothai/unsloth. Each program
of `programs` runs its cases in one step under `gpucast run`. OUT keeps the captures and the compilers' caches: a capture that is there is not
made again. `count_captured.cc`, compiled with the library of this tree, then counts every launch of the captures. About two hours on two cores.
"""

import argparse
import collections
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

from eval import ROOT, jobs, page
from eval.tables import markdown

HERE = pathlib.Path(__file__).resolve().parent
PAGE = ROOT / "docs/results/kernels.md"
# (source, its program, card, the parts of its cases that run, of this number of parts)
RUNS = (
    ("Liger-Kernel", "liger_kernels", "a100-80", 1, 1),
    ("Liger-Kernel", "liger_kernels", "h100-sxm", 1, 1),
    ("unsloth", "unsloth_kernels", "a100-80", 1, 1),
    ("unsloth", "unsloth_kernels", "h100-sxm", 1, 1),
    ("torchao", "torchao_kernels", "a100-80", 1, 1),
    ("torchao", "torchao_kernels", "h100-sxm", 4, 4),
    ("inductor", "inductor_models", "a100-80", 8, 8),
    ("inductor", "inductor_models", "h100-sxm", 3, 8),
)
# Instructions that the interpreter runs, although the bytes that they write are not in its counts.
UNCOUNTED = re.compile(r"(?:^|\s)(cp\.async\.bulk\.tensor\.\dd\.global\.\S+|cp\.reduce\.async\.bulk\.tensor\.\S+|(?:st|red)\.async\.\S+)\s")
LINKED = ("fmt", "simdjson", "z", "lz4", "zstd")  # what the library needs

# --- Captures ------------------------------------------------------------------------------------------------------------------------


def environment(args):
    folders = {"TRITON_CACHE_DIR": args.out / "triton", "TORCHINDUCTOR_CACHE_DIR": args.out / "inductor"}
    paths = [args.unsloth.resolve()] if args.unsloth else []
    return os.environ | {
        **{name: str(folder) for name, folder in folders.items()},
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "GPUCAST_OBSERVE_S": "7200",
    }


def capture(args, program, card, part, parts):
    """(The capture, what its program wrote); the second says why if there is no capture."""
    stem = args.out / f"{program}-{card}-{part}"
    made, report = (stem.with_name(stem.name + suffix) for suffix in (".gpucast", ".json"))
    if not made.exists():
        print(f"{program} {part}/{parts} on {card}", file=sys.stderr, flush=True)
        command = [args.gpucast, "run", "--gpu", card, "--steps", "2", "--force", "-o", str(made), "--"]
        command += [args.python, str(HERE / "programs" / f"{program}.py"), str(report), f"{part}/{parts}"]
        done = subprocess.run(command, env=environment(args), capture_output=True, text=True)
        if not made.exists():
            return made, {"done": [], "failed": {"all": (done.stdout + done.stderr).strip()[-1000:]}}
    return made, json.loads(report.read_text())


# --- Kernels -------------------------------------------------------------------------------------------------------------------------


def counter(args):
    """count_captured, compiled."""
    library = pathlib.Path(args.gpucast).parents[1] / "libgpucast.a"
    if not library.exists():
        raise SystemExit(f"{library} is missing: --gpucast must name the command of a build folder")
    program = args.out / "count_captured"
    command = ["g++", "-std=c++20", "-O2", f"-I{ROOT}", f"-I{ROOT / 'include'}", str(HERE / "count_captured.cc"), str(library)]
    subprocess.run([*command, *(f"-l{name}" for name in LINKED), "-o", str(program)], check=True)
    return program


@dataclasses.dataclass
class Kernel:
    name: str
    counted: int  # launches that differ
    assumed: bool
    cut_off: list
    unsupported: dict  # {instruction: the first line of PTX that has it}
    problem: str
    uncounted: dict  # as `unsupported`, of UNCOUNTED

    @property
    def understood(self):
        return not (self.cut_off or self.unsupported or self.problem)


def instructions(ptx):
    """The text without what depends on the source's path and lines: two compilations of the same code are equal."""
    code = ptx.split("\n\t.section")[0].split("\n.section")[0]
    kept = (line.strip() for line in code.splitlines())
    return "\n".join(line for line in kept if line and not re.match(r"\.loc\b|\.file\b|//|\$L__(tmp|func)\w*:", line))


def line_of(instruction, ptx):
    """The first line that has an instruction as `count_captured` names it: an opcode, or "call FUNCTION". "": there is none."""
    opcode, *called = instruction.split(" ")
    pattern = re.compile(rf"(^|[\s;{{]){re.escape(opcode)}" + (r"(\.\w+)*\s" if called else r"[\s;]"))
    for line in ptx.splitlines():
        if pattern.search(line) and all(name in line for name in called):
            return line.strip()
    return ""


def uncounted_in(ptx):
    lines = {instruction: line_of(instruction, ptx) for instruction in UNCOUNTED.findall(ptx)}
    return dict(sorted(lines.items()))


def kernels_from(lines):
    """{(name, hash of its instructions): Kernel} from the lines of `count_captured`."""
    found = {}
    for text in lines:
        line = json.loads(text)
        ptx = line["ptx"]
        key = line["kernel"], hashlib.sha256(instructions(ptx).encode()).hexdigest()
        named = {instruction: line_of(instruction, ptx) for instruction in [*line["met"], *line["in_code"]]}
        kernel = Kernel(line["kernel"], line["counted"], line["assumed"] > 0, line["limits"], named, line["problem"], uncounted_in(ptx))
        found[key] = merged(found[key], kernel) if key in found else kernel
    return found


def merged(a, b):
    return Kernel(
        a.name,
        a.counted + b.counted,
        a.assumed or b.assumed,
        sorted({*a.cut_off, *b.cut_off}),
        a.unsupported | b.unsupported,
        a.problem or b.problem,
        a.uncounted | b.uncounted,
    )


# --- Tables --------------------------------------------------------------------------------------------------------------------------


def table(rows):
    """`rows`: {(source, card): (number of cases, kernels)}."""
    lines, total = [], collections.Counter()
    for (source, card), (cases, kernels) in rows.items():
        found = list(kernels.values())
        counts = {
            "names": len({kernel.name for kernel in found}),
            "kernels": len(found),
            "launches": sum(kernel.counted for kernel in found),
            "understood": sum(kernel.understood for kernel in found),
            "assumed": sum(kernel.assumed for kernel in found),
            "uncounted": sum(bool(kernel.uncounted) for kernel in found),
            "cut off": sum(bool(kernel.cut_off) for kernel in found),
            "unsupported": sum(bool(kernel.unsupported or kernel.problem) for kernel in found),
        }
        total.update(counts)
        lines.append([source, card, cases, *counts.values()])
    lines.append(["all", "", "", "", *list(total.values())[1:]])
    header = [
        "source",
        "card",
        "cases",
        "names",
        "kernels",
        "launches",
        "understood",
        "values assumed",
        "stores not counted",
        "cut off",
        "unsupported",
    ]
    return markdown(header, lines, words=2)


def reasons(rows):
    """A line for each kernel that is not understood."""
    out = []
    for (source, card), (_, kernels) in rows.items():
        for kernel in kernels.values():
            what = [f"`{instruction}` in `{line}`" for instruction, line in kernel.unsupported.items()]
            what += [f"cut off by {limit}" for limit in kernel.cut_off] + [kernel.problem] * bool(kernel.problem)
            out += [f"- {source}, {card}, `{kernel.name}`: {one}" for one in what]
    return "\n".join(out) or "None."


def uncounted(rows):
    """A line for each instruction of UNCOUNTED: the kernels that have it, and the line in the first of them."""
    found = collections.defaultdict(list)
    for (source, card), (_, kernels) in rows.items():
        for kernel in kernels.values():
            for instruction, line in kernel.uncounted.items():
                found[instruction].append((source, card, kernel.name, line))
    out = []
    for instruction, places in sorted(found.items()):
        names = collections.Counter(place[:3] for place in places)
        where = "; ".join(f"{source}, {card}, `{name}` ({count})" for (source, card, name), count in sorted(names.items()))
        out.append(f"- `{instruction}`, as in `{places[0][3]}`: {where}")
    return "\n".join(out) or "None."


def left_out(failed):
    """The last line of an error says why."""
    lines = {case: (why.strip().splitlines() or ["no reason given"])[-1][:200] for case, why in failed.items()}
    return "\n".join(f"- {source}, {card}, {case}: {line}" for (source, card, case), line in lines.items()) or "None."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--unsloth", type=pathlib.Path, help="a checkout of unslothai/unsloth; without it its kernels are left out")
    parser.add_argument("--only", default="", help="sources, e.g. liger,inductor")
    parser.add_argument("--cards", default="")
    parser.add_argument("--page", action="store_true", help=f"renew {PAGE.relative_to(ROOT)}")
    jobs.add_gpucast_option(parser)
    args = parser.parse_args()
    args.gpucast = jobs.find(args.gpucast)
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    count = counter(args)
    rows, failed = {}, {}
    for source, program, card, run, parts in RUNS:
        skipped = (args.only and program.split("_")[0] not in args.only.split(",")) or (args.cards and card not in args.cards.split(","))
        if skipped or (source == "unsloth" and not args.unsloth):
            continue
        lines, done, why = [], set(), {}
        for part in range(1, run + 1):
            made, report = capture(args, program, card, part, parts)
            done |= set(report["done"])
            why |= report["failed"]
            if made.exists():
                lines += subprocess.run([count, str(made)], check=True, capture_output=True, text=True).stdout.splitlines()
        rows[source, card] = len(done), kernels_from(lines)
        failed |= {(source, card, case): reason for case, reason in why.items() if case not in done}
    shown = {"kernels": table(rows), "not understood": reasons(rows), "not counted": uncounted(rows), "left out": left_out(failed)}
    print("\n\n".join(f"{name}:\n\n{text}" for name, text in shown.items()))
    if args.page:
        number = sum(len(kernels) for _, kernels in rows.values())
        page.write(PAGE, "python -m eval.kernels.evaluate --python PYTHON --unsloth DIR --out OUT --page", f"{number:,} kernels", shown)


if __name__ == "__main__":
    main()
