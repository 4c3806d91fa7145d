#!/usr/bin/env python3
"""The effect of cuDNN's workspaces on convolutional networks on four architectures, with the answers of a cuDNN without a GPU.

    python -m eval.memory.run_cudnn --python ENV/bin/python --cudnn ask --out /tmp/cudnn
    python -m eval.memory.run_cudnn --python ENV/bin/python --cudnn .venv/cudnn --out /tmp/cudnn --markdown docs/results/cudnn-workspaces.md

ENV: PyTorch 2.14.1 and torchvision. Results are kept in --out; these are not run again.
"""

import argparse
import sys
from pathlib import Path

from eval import ROOT, jobs, page
from eval.tables import error, markdown, signed

MIB = 2**20
CARDS = {"a100-40": "8.0", "rtx3060": "8.6", "rtx4090": "8.9", "h100-80": "9.0"}
BATCH = {"resnet50": 32, "vgg16": 32, "convnext_tiny": 32, "mobilenet_v2": 32, "resnext50_32x4d": 32, "unet3d": 2}
SWITCHES = {"": [], "benchmark": ["--benchmark"], "deterministic": ["--deterministic"]}
HEADER = ["network, batch, precision", "reserved MiB, off", "asked %", "benchmark %", "deterministic %"]
COMMAND = "python -m eval.memory.run_cudnn --python PYTHON --cudnn .venv/cudnn --out DIR"


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where results are kept")
    jobs.add_gpucast_option(parser)
    parser.add_argument("--python", default=sys.executable, help="a Python with torch and torchvision")
    parser.add_argument("--cudnn", default="ask", help="value for `gpucast run --cudnn` (default %(default)s)")
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--markdown", type=Path, help="also put the tables into this document, between its markers")
    return parser.parse_args()


def case_name(model, precision, switch, card, asked):
    return " ".join(filter(None, [model, precision, switch, card, "asked" if asked else "off"]))


def make_jobs(args):
    made = []
    for card in CARDS:
        for model, batch in BATCH.items():
            for precision in ("fp32", "tf32", "bf16"):
                for switch, options in SWITCHES.items():
                    for asked in (False, True) if not switch else (True,):
                        command = [
                            args.python,
                            "-m",
                            "eval.memory.train_cudnn",
                            "--model",
                            model,
                            "--batch",
                            str(batch),
                            "--precision",
                            precision,
                        ]
                        made.append(
                            {
                                "name": case_name(model, precision, switch, card, asked),
                                "command": [*command, *options],
                                "folder": str(ROOT),
                                "gpu": card,
                                "steps": 2,
                                "cudnn": (args.cudnn if args.cudnn in ("auto", "ask") else str(Path(args.cudnn).resolve()))
                                if asked
                                else "off",
                            }
                        )
    return [job for job in made if args.only in job["name"]]


def problems(name, result):
    """Problems of a run, in words."""
    if jobs.problem(result):
        return [f"{name}: {jobs.problem(result)}"]
    codes = {warning["code"] for warning in result["report"]["warnings"]}
    found = [f"{name}: {code}" for code in ("replay_differs", "cudnn_not_asked") if code in codes]
    line = ledger_line(result)
    if name.endswith("asked") and not line["source"].startswith("asked"):
        found.append(f"{name}: cuDNN was not asked about some convolutions")
    return found


def ledger_line(result):
    return next(line for line in result["report"]["ledger"] if line["what"] == "convolution workspaces")


def reserved(results, *case):
    result = results.get(case_name(*case))
    return None if result is None or not result["report"] else result["report"]["peak"]["reserved_bytes"]


def tables(results):
    """One table per card: peak reserved in MiB without workspaces, and the change with cuDNN's answers, in percent."""
    parts = []
    for card, capability in CARDS.items():
        lines = []
        for model, batch in BATCH.items():
            for precision in ("fp32", "tf32", "bf16"):
                off = reserved(results, model, precision, "", card, False)
                cells = []
                for switch in SWITCHES:
                    asked = reserved(results, model, precision, switch, card, True)
                    cells.append("-" if off is None or asked is None else signed(error(asked, off), 1))
                if off is not None:
                    lines.append([f"{model} {batch} {precision}", f"{off / MIB:.0f}", *cells])
        if lines:
            parts.append(f"### {card}, capability {capability}\n\n" + markdown(HEADER, lines, tight=True))
    return "\n\n".join(parts)


def main():
    args = parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    results = jobs.run(args.gpucast, make_jobs(args), args.out / "results.jsonl")
    wrong = [text for name, result in results.items() for text in problems(name, result)]
    asked = {
        ledger_line(result)["source"].split(" on this")[0]
        for name, result in results.items()
        if name.endswith("asked") and result["report"]
    }
    text = f"{len(results)} runs, {len(wrong)} with a problem; {', '.join(sorted(asked))}.\n\n{tables(results)}"
    print(text)
    print("\n".join(wrong))
    if args.markdown:
        page.write(args.markdown, COMMAND, f"{len(results)} runs: {len(BATCH)} networks, {len(CARDS)} cards", {"run_cudnn": text})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
