"""`gpucast fit` compared with runs in which the card's limit holds: the largest value must run, and the next one must run out of memory.

    python -m eval.fit.enforced --python ENV/bin/python --out OUT [--page]

25 scripts on two cards each. Each answer's two values are run again by `gpucast batch` with "enforce_capacity", where PyTorch's own
allocator raises OutOfMemoryError as on a card. ENV has PyTorch, torchvision, timm and transformers. Answers stay in OUT.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path

from eval import page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/results/fit.md"
CARDS = ["rtx3060", "rtx3090"]
VARY = {"train_mlp.py": "batch=--batch:1..1048576", "train_ncf.py": "batch=--batch:1..8388608"}  # beyond the usual range
TIMM = [
    "resnet50",
    "vit_small_patch16_224",
    "convnext_tiny",
    "swin_tiny_patch4_window7_224",
    "efficientnet_b0",
    "mobilenetv3_large_100",
    "densenet121",
    "regnety_032",
    "mixer_b16_224",
    "deit_small_patch16_224",
    "resnext50_32x4d",
    "xcit_small_12_p16_224",
    "gernet_m",
    "levit_256",
]
TORCHVISION = [("resnet101", "fp32"), ("vgg16", "fp16"), ("inception_v3", "fp32"), ("wide_resnet50_2", "fp16")]
EXAMPLES = [
    ["train_resnet50.py"],
    ["train_gpt.py", "--layers", "12", "--width", "768"],
    ["train_gpt.py", "--layers", "24", "--width", "1024"],
    ["train_mlp.py", "--hidden", "16384"],
    ["train_ncf.py"],
]


def commands(python):
    models = ROOT / "eval/steps/models"
    for name in TIMM:
        layout = "nhwc" if len(name) % 2 else "nchw"
        words = ["--model", name, "--batch", "8", "--image", "224", "--layout", layout, "--mode", "train"]
        yield f"timm {name}", models, [python, "timm_step.py", *words]
    for name, precision in TORCHVISION:
        image = "299" if name == "inception_v3" else "224"
        words = ["--model", name, "--batch", "8", "--image", image, "--precision", precision]
        yield f"torchvision {name} {precision}", models, [python, "torchvision_step.py", *words]
    for task, length in ("squad", "384"), ("pretraining", "128"):
        words = ["--task", task, "--batch", "4", "--length", length, "--precision", "amp"]
        yield f"BERT {task}", models, [python, "bert_step.py", *words]
    for words in EXAMPLES:
        yield " ".join(words), ROOT / "examples", [python, *words]


STEPS = 20  # of the runs that check an answer


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", action="store_true", help="renew docs/results/fit.md")
    return parser.parse_args()


def gpucast(*words, **options):
    command = [os.environ.get("GPUCAST_BIN", "gpucast"), *map(str, words)]
    environment = {**os.environ, "STEPS": str(2 * STEPS)}  # that eval/steps/models make
    return subprocess.run(command, capture_output=True, text=True, env=environment, **options)


def ask(name, folder, command, out):
    vary = [option for script, text in VARY.items() if script in command for option in ("--vary", text)]
    done = gpucast("fit", "--gpu", ",".join(CARDS), "--format", "json", "--cache", out / "cache", *vary, "--", *command, cwd=folder)
    if done.returncode > 1:
        return {"name": name, "problem": done.stderr.strip()}
    fit = json.loads(done.stdout)
    answers = []
    for answer in fit["answers"]:
        runs = {run["values"][fit["name"]]: run for run in answer["runs"]}
        largest = answer["values"] and answer["values"][fit["name"]]
        following = answer["next"] and answer["next"]["values"][fit["name"]]
        checked = [check(answer["gpu"], folder, command, fit, runs[value]) for value in (largest, following) if value]
        answers.append({"gpu": answer["gpu"], "largest": largest, "next": following, "enforced": checked})
    return {"name": name, "answers": answers, "runs": fit["run_count"], "seconds": fit["seconds"]}


def check(gpu, folder, command, fit, run):
    """The status of this run under the card's limit."""
    words = run["run"].split(" -- ", 1)[1]
    options = [word for word in run["run"].split(" -- ", 1)[0].split() if word.startswith("batch:")]
    job = {"name": "it", "command": words, "gpu": gpu, "folder": str(folder), "enforce_capacity": True, "what_if": options, "steps": STEPS}
    done = gpucast("batch", "-", input=json.dumps(job) + "\n")
    return json.loads(done.stdout)["status"]


def is_right(answer):
    runs = answer["enforced"]
    return len(runs) == 2 and runs[0] in ("fits", "tight") and runs[1] == "does_not_fit"


def table(rows):
    answers = [(row["name"], answer) for row in rows for answer in row.get("answers", [])]
    right = [pair for pair in answers if is_right(pair[1])]
    runs = sorted(row["runs"] for row in rows if "runs" in row)
    lines = [
        f"{len(right)} of {len(answers)} answers are right: the largest value runs, and the next one runs out of memory.",
        f"A search on both cards took {runs[len(runs) // 2]} runs at the median, {runs[-1]} at most." if runs else "",
    ]
    lines += [f"{row['name']} did not run: {row['problem'].splitlines()[0]}" for row in rows if "problem" in row]
    lines += ["", "| script | card | largest, next | enforced |", "|---|---|---|---|"]
    for name, answer in answers:
        lines.append(f"| {name} | {answer['gpu']} | {answer['largest']}, {answer['next']} | {', '.join(answer['enforced'])} |")
    return "\n".join(lines)


def main():
    args = parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    journal = args.out / "enforced.jsonl"
    done = {row["name"]: row for row in map(json.loads, journal.read_text().splitlines())} if journal.exists() else {}
    rows = []
    for name, folder, command in commands(args.python):
        if name not in done:
            done[name] = ask(name, folder, command, args.out)
            with open(journal, "a", encoding="utf-8") as file:
                file.write(json.dumps(done[name]) + "\n")
        rows.append(done[name])
    text = table(rows)
    print(text)
    if args.page:
        command = "python -m eval.fit.enforced --python ENV/bin/python --out OUT"
        page.write(PAGE, command, f"{len(rows)} scripts on {len(CARDS)} cards", {"enforced": text})


if __name__ == "__main__":
    main()
