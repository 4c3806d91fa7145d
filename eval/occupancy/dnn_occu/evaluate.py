"""Trains DNN-occu and the networks that its paper compares it with on data_set.py's rows, and writes the paper's tables as Markdown. Continues
after a stop. Needs PyTorch on the CPU and NumPy.

    python -m eval.occupancy.dnn_occu.evaluate --data build/dnn_occu/data --work build/dnn_occu/work [--weights python/dnn_occu/weights.npz]
"""

import argparse
import json
import random
import subprocess
from pathlib import Path

from eval import page
from eval.jobs import add_gpucast_option
from eval.tables import markdown
from python.dnn_occu import graphs

CARDS = {"a100-80": "A100", "rtx2080ti": "RTX 2080 Ti", "p40": "P40"}
SEEN = ("vit_t", "lstm", "rnn", "resnet34", "resnet18", "vgg16", "vgg13", "vgg11", "alexnet", "lenet")
UNSEEN = ("vit_s", "distilbert", "convnext_base", "resnet50")
GENERALIZATION = ("swin_s", "maxvit_t", "vit_s", "distilbert", "gpt2")  # from ViT-T alone
THREE = ("DNN-occu", "DNNPerf", "BRP-NAS")
SEED = 1
COMMAND = "python -m eval.occupancy.dnn_occu.evaluate --data DIR --work DIR"


def mre(rows):
    return 100 * sum(abs(guess - truth) / truth for guess, truth in rows) / len(rows)


def mse(rows):
    return sum((guess - truth) ** 2 for guess, truth in rows) / len(rows)


class DataSet:
    def __init__(self, folder, gpucast):
        gpus = json.loads(subprocess.run([gpucast, "gpus", "--format", "json"], capture_output=True, check=True, text=True).stdout)["gpus"]
        cards = {gpu["id"]: graphs.card(gpu) for gpu in gpus if gpu["id"] in CARDS}
        self.rows = sorted((json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()), key=lambda row: row["name"])
        for row in self.rows:
            row["graph"] = graphs.graph(graphs.read(folder / "graphs" / f"{row['name']}.json"), cards[row["gpu"]])

    def split(self, models):
        """80 % of each model's configurations, on all cards, and the rest."""
        train, test = [], []
        for model in models:
            rows = [row for row in self.rows if row["model"] == model]
            drawn = sorted({json.dumps(row["configuration"]) for row in rows})
            random.Random(f"{SEED} {model}").shuffle(drawn)
            kept = set(drawn[: round(0.8 * len(drawn))])
            train += [row for row in rows if json.dumps(row["configuration"]) in kept]
            test += [row for row in rows if json.dumps(row["configuration"]) not in kept]
        return train, test

    def all_of(self, models):
        return [row for row in self.rows if row["model"] in models]


def experiment(name, kinds, train, tests, options, epochs):
    """kind -> (network, seconds, {name of test: [(row, guess), ...]})."""
    from python.dnn_occu import training

    out = {}
    folder = options.work / name
    folder.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        network, seconds = training.train(
            kind, [row["graph"] for row in train], [row["occupancy"] for row in train], epochs, SEED, str(folder)
        )
        guesses = {test: list(zip(rows, training.predict(network, [row["graph"] for row in rows]))) for test, rows in tests.items()}
        out[kind] = network, seconds, guesses
    return out


def of(guesses, keep):
    return [(guess, row["occupancy"]) for row, guess in guesses if keep(row)]


def table(header, rows):
    return markdown(header, rows, tight=True)


def errors(rows):
    return f"{mre(rows):.2f} / {mse(rows):.4f}" if rows else "-"


def ranges(guesses, count):
    """Fig. 5: by the number of nodes or edges of a graph, in four parts with the same number of rows."""
    rows = sorted(guesses, key=lambda pair: (count(pair[0]), pair[0]["name"]))
    parts = [rows[len(rows) * n // 4 : len(rows) * (n + 1) // 4] for n in range(4)]
    return [(count(part[0][0]), count(part[-1][0]), [(guess, row["occupancy"]) for row, guess in part]) for part in parts if part]


def report(data, main, clip, vit):
    out = [
        page.opening((COMMAND, f"{len(data.rows)} graphs of {len({row['model'] for row in data.rows})} models on {len(CARDS)} cards")),
        "",
    ]
    out += ["MRE in percent / MSE. Training took, on this machine:"]
    out += [", ".join(f"{kind} {seconds / 60:.1f} min" for kind, (_, seconds, _) in main.items()), ""]
    out += ["### Seen and unseen models (Fig. 4)", ""]
    rows = []
    for kind, (_, _, guesses) in main.items():
        row = [kind]
        for gpu in CARDS:
            row += [errors(of(guesses[test], lambda r, gpu=gpu: r["gpu"] == gpu)) for test in ("seen", "unseen")]
        rows.append([*row, errors(of(guesses["seen"] + guesses["unseen"], lambda r: True))])
    out += [table(["", *(f"{card}, {test}" for card in CARDS.values() for test in ("seen", "unseen")), "all"], rows), ""]
    out += ["### Each unseen model", ""]
    rows = [
        [model, *(errors(of(main["DNN-occu"][2]["unseen"], lambda r, m=model, g=gpu: r["model"] == m and r["gpu"] == g)) for gpu in CARDS)]
        for model in UNSEEN
    ]
    out += [table(["DNN-occu", *CARDS.values()], rows), "", "### By size of the graph (Fig. 5)", ""]
    rows = []
    for what, count in (("nodes", lambda row: len(row["graph"].nodes)), ("edges", lambda row: len(row["graph"].edges))):
        kinds = {kind: ranges(guesses["seen"] + guesses["unseen"], count) for kind, (_, _, guesses) in main.items()}
        for place, (low, high, _) in enumerate(kinds["DNN-occu"]):
            rows.append([f"{low} to {high} {what}", *(f"{mre(kinds[kind][place][2]):.1f}" for kind in main)])
    out += [table(["MRE, %", *main], rows), "", "### CLIP (Table IV)", ""]
    rows = []
    for gpu, card in CARDS.items():
        for model, test in (("clip_rn50", "seen"), ("clip_vit_b_16", "seen"), ("clip_vit_b_32", "unseen")):
            figures = (mre(of(clip[kind][2][test], lambda r, m=model, g=gpu: r["model"] == m and r["gpu"] == g)) for kind in THREE)
            rows.append([f"{card}, {model} ({test})", *(f"{figure:.1f}" for figure in figures)])
    out += [table(["MRE, %", *THREE], rows), "", "### Trained on ViT-T alone (Table V)", ""]
    rows = []
    for gpu, card in CARDS.items():
        for model in GENERALIZATION:
            figures = (mre(of(vit[kind][2]["other"], lambda r, m=model, g=gpu: r["model"] == m and r["gpu"] == g)) for kind in THREE)
            rows.append([f"{card}, {model}", *(f"{figure:.1f}" for figure in figures)])
    out += [table(["MRE, %", *THREE], rows), ""]
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="trained networks are kept there")
    add_gpucast_option(parser)
    parser.add_argument("--weights", type=Path, help="write DNN-occu's there, of the main experiment")
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    import torch

    from python.dnn_occu import training
    from python.dnn_occu.networks import NETWORKS

    torch.set_num_threads(options.threads)
    data = DataSet(options.data, options.gpucast)
    train, seen = data.split(SEEN)
    main = experiment("main", NETWORKS, train, {"seen": seen, "unseen": data.all_of(UNSEEN)}, options, options.epochs)
    if options.weights:
        training.save(main["DNN-occu"][0], options.weights)
    train, seen = data.split(("clip_rn50", "clip_vit_b_16"))
    clip = experiment("clip", THREE, train, {"seen": seen, "unseen": data.all_of(("clip_vit_b_32",))}, options, options.epochs)
    train, seen = data.split(("vit_t",))
    vit = experiment("vit", THREE, train, {"other": data.all_of(GENERALIZATION)}, options, options.epochs)
    text = report(data, main, clip, vit)
    (options.work / "report.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
