"""Measured steps, read from folders with the layout of the reference data: the measurement, its card, and the job that makes its capture.

One function per table. Each takes Options and returns its rows; a missing file gives a table without rows.
"""

import argparse
import dataclasses
import gzip
import hashlib
import json
import re
import statistics
from pathlib import Path

from eval import ROOT
from eval.data_sets import card_of, read_csv
from eval.ranks import lambda_ddp
from eval.steps.split import architecture
from eval.truth import measured_jobs

MODELS = Path(__file__).resolve().parent / "models"
STEPS = 2  # the second is observed


@dataclasses.dataclass(frozen=True)
class Options:
    data: Path
    python: str = "python3"
    old_timm: str = ""  # another Python, with timm 0.6, for models trained on PyTorch 1.10 to 1.12. "": `python`
    sample: int = 0  # this many models, spread over families; 0: all
    folder: Path | None = None  # for files that captures need; no other place is written
    releases: dict = dataclasses.field(default_factory=dict)  # {release of PyTorch: a Python with it}, for rows that were measured with it


def release_option(text):
    release, _, python = text.partition("=")
    known = sorted({of for of, _ in INFER.values()})
    if release not in known or not python:
        raise argparse.ArgumentTypeError(f"'{text}' is not like 2.4=ENV/bin/python; releases that were measured: {', '.join(known)}")
    return release, python


RELEASE_OPTION = {
    "type": release_option,
    "action": "append",
    "default": [],
    "metavar": "RELEASE=PYTHON",
    "help": "another Python for rows of timm-infer that were measured with this release of PyTorch: 2.4 (RTX 3090, 4090), 2.9 (RTX 5090); "
    "default: --python for all",
}


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    table: str
    card: str  # as gpucast names it; "" : gpucast knows no such card
    model: str  # the key of splits
    group: str  # the key of groups in tables: layout, precision, mode
    measured_ms: float
    job: dict  # a job of gpucast batch, without the entries that every job has; rows with the same name share one
    parts_ms: dict = dataclasses.field(default_factory=dict)  # phase: measured
    published_ms: dict = dataclasses.field(default_factory=dict)  # another estimator's figures
    parameters: float = 0  # of the measured model; 0: not known
    size: str = ""  # of an input; the same model with another one is another row


def number(text):
    """None for anything but a positive finite number."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if 0 < value < float("inf") else None


def job(options, name, script, words, gpu, python=None, environment=None, steps=STEPS):
    command = [python or options.python, str(MODELS / script), *map(str, words)]
    return {"name": name, "command": command, "gpu": gpu, "steps": steps, **({"environment": environment} if environment else {})}


# --- timm --------------------------------------------------------------------------------------------------------------------------------


def family(model):
    return re.split(r"[_\d]", architecture(model))[0]


def spread(models, count):
    """`count` of them, each with another architecture: sorted by family, then by a hash, then picked at equal distances. The same for the same names."""

    def order(model):
        return family(model), hashlib.sha1(architecture(model).encode()).hexdigest(), model

    models = sorted(set(models), key=order)
    if count <= 0:
        return models
    models = list({architecture(model): model for model in reversed(models)}.values())[::-1]
    count = min(count, len(models))
    return [models[int((i + 0.5) * len(models) / count)] for i in range(count)]


TRAIN = {"nhwc": "benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv", "nchw": "benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv"}
ROUNDED = 0.005  # millions of parameters; the files have two digits
# The same models on both cards: a known time on one predicts the other. {card: (release of PyTorch, {layout: file})}
INFER = {
    "rtx3090": (
        "2.4",
        {"nhwc": "benchmark-infer-amp-nhwc-pt240-cu124-rtx3090.csv", "nchw": "benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv"},
    ),
    "rtx4090": (
        "2.4",
        {"nhwc": "benchmark-infer-amp-nhwc-pt240-cu124-rtx4090.csv", "nchw": "benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv"},
    ),
    "rtx5090": ("2.9", {"nchw": "benchmark-infer-amp-nchw-pt291-cu130-5090.csv"}),
}


def timm_rows(options, files, table, mode, card, models=None, python=None, environment=None, release="", whole=None):
    """`release`: PyTorch's, if it differs from --python's: then the captures differ. `whole`: {model: its parameters in millions in
    training}: a row with fewer was measured with folded branches."""
    tables = {layout: read_csv(options.data / "timm_benchmarks" / name) for layout, name in files.items()}
    if models is None:
        models = spread((line["model"] for lines in tables.values() for line in lines), options.sample)
    wanted = set(models)
    rows = []
    for layout, lines in tables.items():
        for line in lines:
            measured = number(line.get(f"{mode}_step_time"))
            batch, image = number(line.get(f"{mode}_batch_size")), number(line.get(f"{mode}_img_size"))
            if line["model"] not in wanted or not (measured and batch and image):
                continue
            words = ["--model", line["model"], "--batch", int(batch), "--image", int(image), "--layout", layout, "--mode", mode]
            name = f"timm-{mode}-{layout}-{line['model']}-b{int(batch)}-i{int(image)}" + (f"-torch{release}" if release else "")
            millions = number(line.get("param_count")) or 0
            if whole and 0 < millions < whole.get(line["model"], 0) - ROUNDED:
                words.append("--reparameterize")
                name += "-folded"
            made = job(options, name, "timm_step.py", words, "rtx3090", python, environment)
            rows.append(
                Row(
                    f"{card} {name}",
                    table,
                    card,
                    line["model"],
                    layout.upper(),
                    measured,
                    made,
                    parameters=1e6 * millions,
                    size=str(int(image)),
                )
            )
    return rows


def timm_train(options):
    """Rows of PyTorch 1.12: attention was not fused."""
    python = options.old_timm or options.python
    return timm_rows(options, TRAIN, "timm-train", "train", "rtx3090", python=python, environment={"TIMM_FUSED_ATTN": "0"})


def timm_infer(options):
    """The 3090's models that every other card's files also have, so the cards' figures are of the same models."""
    names = []
    for _, files in INFER.values():
        names += [
            {line["model"] for line in lines} for lines in (read_csv(options.data / "timm_benchmarks" / f) for f in files.values()) if lines
        ]
    models = spread(set.intersection(*names), options.sample) if names else []
    first = [line for file in INFER["rtx3090"][1].values() for line in read_csv(options.data / "timm_benchmarks" / file)]
    whole = {line["model"]: number(line.get("param_count")) or 0 for line in first}
    rows = []
    for card, (release, files) in INFER.items():
        python = options.releases.get(release)
        rows += timm_rows(options, files, "timm-infer", "infer", card, models, python, release=release if python else "", whole=whole)
    return rows


# --- NeuSight ----------------------------------------------------------------------------------------------------------------------------

NEUSIGHT_NAME = re.compile(r"(?P<card>[^/]+)__(?P<model>\w+)-(?P<mode>train|inf)-(?P<length>\d+)-(?P<batch>\d+)\.json(\.gz)?$")


def read_json(path):
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


def neusight(options):
    """One GPU, nothing fused. Options of a run (fusion, several GPUs) are a further word of the name; the pattern does not match them."""
    folder = options.data / "neusight"
    rows = []
    for path in sorted((folder / "label").glob("*.json*")) if (folder / "label").is_dir() else ():
        name = NEUSIGHT_NAME.match(path.name)
        if not name or card_of(name["card"]) is None:
            continue
        config = neusight_config(options, name["model"])
        label = read_json(path)
        measured = number(label.get("e2e_latency"))
        if config is None or measured is None:
            continue
        mode = "train" if name["mode"] == "train" else "infer"
        words = ["--config", config, "--batch", name["batch"], "--length", name["length"], "--mode", mode]
        cell = f"{name['model']}-{name['mode']}-{name['length']}-{name['batch']}"
        parts = {"forward": label["fw_latency"], "backward": label["bwall_latency"]} if mode == "train" else {}
        published = {}
        for theirs in (
            folder / "prediction" / f"{name['card']}__{cell}.json",
            folder / "prediction" / name["card"] / "neusight" / f"{cell}.json",
        ):
            if theirs.exists():
                published["NeuSight"] = read_json(theirs)["e2e_latency"]
        made = job(options, f"neusight-{cell}", "transformer_step.py", words, "h200")
        card = card_of(name["card"])
        rows.append(Row(f"{card} {cell}", "neusight", card, name["model"], mode, measured, made, parts, published))
    return rows


def neusight_config(options, model):
    """Its configuration as a plain file, next to the captures. None: neither the data nor `models` has one."""
    path = options.data / "neusight" / "dlmodel_configs" / f"{model}.json"
    for source in (path, path.with_name(path.name + ".gz"), MODELS / path.name):
        if source.exists():
            plain = options.folder / f"{model}.json"
            text = json.dumps(read_json(source))
            if not plain.exists() or plain.read_text() != text:
                plain.parent.mkdir(parents=True, exist_ok=True)
                plain.write_text(text)
            return plain.resolve()
    return None


# --- torchvision -------------------------------------------------------------------------------------------------------------------------


def torchvision(options):
    rows = []
    for line in read_csv(options.data / "kernel_times" / "torchvision_train_steps.csv"):
        measured, batch, image = number(line["median_ms"]), number(line["batch"]), number(line["image"])
        if card_of(line["card"]) is None or not (measured and batch and image):
            continue
        precision = line["precision"].split("_")[0]
        copy = line["protocol"] == "with_h2d_copy"
        words = [
            "--model",
            line["model"],
            "--batch",
            int(batch),
            "--image",
            int(image),
            "--precision",
            precision,
            *(["--copy"] if copy else []),
        ]
        name = f"torchvision-{line['model']}-b{int(batch)}-i{int(image)}-{precision}" + ("-copy" if copy else "")
        # The host matters: one further step, which is not observed, shows its own working time.
        made = job(options, name, "torchvision_step.py", words, "rtx2080ti", steps=STEPS + 1)
        unique = f"{line['card']} {line['precision']} {name}"
        rows.append(Row(unique, "torchvision", card_of(line["card"]), line["model"], precision, measured, made))
    return rows


# --- Lambda ------------------------------------------------------------------------------------------------------------------------------

BEFORE_AMPERE = ("rtx8000", "v100-16")  # "FP32" is TF32 on the others


def lambda_resnet50(options):
    """ResNet-50 on one GPU: the median over a card's runs of one precision and batch."""
    runs = {}
    for line in read_csv(options.data / "lambda_benchmarks" / "resnet50_synthetic_all_runs.csv"):
        batch, rate = number(line["batch_size_per_gpu"]), number(line["median_compute_ips_after_10"])
        if line["num_gpu"] == "1" and card_of(line["gpu"]) and batch and rate:
            runs.setdefault((line["gpu"], line["precision"], int(batch)), []).append(1000 * batch / rate)
    rows = []
    for (gpu, label, batch), times in sorted(runs.items()):
        card = card_of(gpu)
        precision = "amp" if label == "AMP" else "fp32" if card in BEFORE_AMPERE else "tf32"
        words = ["--model", "resnet50", "--batch", batch, "--image", 224, "--layout", "nchw", "--precision", precision, "--foreach"]
        made = job(options, f"lambda-resnet50-{precision}-b{batch}", "convnet_step.py", words, "h200")
        rows.append(Row(f"{card} {precision} b{batch}", "lambda", card, "resnet50", precision.upper(), statistics.median(times), made))
    return rows


def lambda_suite(options):
    """ResNet-50, SSD and BERT of NVIDIA's examples on one card: the median over a card's systems of one release."""
    rows = []
    for (card, memory, _, software, gpus, model, is_half), some in sorted(lambda_ddp.speeds_of(options.data).items()):
        if gpus > 1:
            continue
        batch, precision = lambda_ddp.BATCHES[memory][model][is_half], "fp16" if is_half else "fp32"
        share = lambda_ddp.bert_share(batch, 1) if "bert" in model else 1
        words = ["--model", model, "--batch", batch, *(["--half"] if is_half else [])]
        command = [options.python, str(lambda_ddp.SCRIPT), *map(str, words)]
        made = {"name": f"lambda-suite-{model}-{precision}-b{batch}", "command": command, "gpu": "h200", "steps": STEPS, "world_size": 1}
        measured_ms = 1000 * batch / statistics.median(some) / min(1, share)
        rows.append(Row(f"{card} {software} {made['name']}", "lambda-suite", card, model, precision, measured_ms, made))
    return rows


# --- Our own measurements ----------------------------------------------------------------------------------------------------------------


def own(options):
    """Whole trainings that eval/truth/measure_training.py measured."""
    rows = []
    for file in sorted((ROOT / "eval/truth").glob("*/steps.jsonl.gz")):
        source, trainings = measured_jobs.trainings(file)
        card = card_of(source["card"].removeprefix("NVIDIA "))
        for line in trainings:
            words = json.dumps(line["job"])
            name = "own-" + hashlib.sha1(words.encode()).hexdigest()[:12]
            made = {
                "name": name,
                "command": [options.python, str(measured_jobs.TRAINING), words, "--steps", "100"],
                "gpu": card,
                "steps": STEPS + 1,
            }
            rows.append(Row(f"{card} {name}", "own", card, line["job"]["model"], line["job"]["precision"], line["wall_ms"], made))
    return rows


# --- NVIDIA ------------------------------------------------------------------------------------------------------------------------------

# The tables have no batch for these; their configurations of a DGX-1 do: {model: (ours, image, optimizer, {(precision, memory): batch})}.
# Channels last under mixed precision, otherwise channels first. Squeeze-and-excitation's "wide" variants have no counterpart here.
CONVNETS = {
    "ConvNets/resnet50v1.5": ("resnet50", 224, "sgd", {("AMP", 16): 256, ("AMP", 32): 256, ("FP32", 16): 112, ("FP32", 32): 112}),
    "ConvNets/resnext101-32x4d": ("resnext101_32x4d", 224, "sgd", {("AMP", 16): 128, ("AMP", 32): 128, ("FP32", 16): 64, ("FP32", 32): 64}),
    "ConvNets/se-resnext101-32x4d": (
        "seresnext101_32x4d",
        224,
        "sgd",
        {("AMP", 16): 112, ("AMP", 32): 112, ("FP32", 16): 64, ("FP32", 32): 64},
    ),
    "efficientnet-b0": ("efficientnet_b0", 224, "rmsprop", {("AMP", 16): 128, ("AMP", 32): 256, ("FP32", 16): 64, ("FP32", 32): 128}),
    "efficientnet-b4": ("efficientnet_b4", 380, "rmsprop", {("AMP", 16): 32, ("AMP", 32): 64, ("FP32", 16): 16, ("FP32", 32): 32}),
}


def nvidia(options):
    """NVIDIA's published throughput of training scripts on V100, of the models that torchvision, timm and transformers have."""
    rows = []
    for line in read_csv(options.data / "kernel_times" / "nvidia_examples_training.csv"):
        memory, rate = int(number(line["gpu_mem_gb"]) or 0), number(line["throughput"])
        if line["card"] != "V100" or not line["framework"].startswith("PyTorch") or memory not in (16, 32) or not rate:
            continue
        found = nvidia_bert(options, line) if line["model"] == "BERT" else nvidia_convnet(options, line, memory)
        if found:
            made, samples = found
            card = f"v100-{memory}"
            unique = f"{card} {line['heading']} {line['other_cells']} {made['name']}"
            rows.append(Row(unique, "nvidia", card, made["name"].split("-")[1], line["precision"], 1000 * samples / rate, made))
    return rows


def nvidia_convnet(options, line, memory):
    model = line["model"]
    if model == "ConvNets/efficientnet":
        model = line["other_cells"].removeprefix("Model=")
    if model not in CONVNETS:
        return None
    ours, image, optimizer, batches = CONVNETS[model]
    batch = batches.get((line["precision"], memory))
    if batch is None:
        return None
    amp = line["precision"] == "AMP"
    layout, precision = ("nhwc", "amp") if amp else ("nchw", "fp32")
    words = ["--model", ours, "--batch", batch, "--image", image, "--layout", layout, "--precision", precision, "--optimizer", optimizer]
    return job(options, f"nvidia-{ours}-{precision}-b{batch}", "convnet_step.py", words, "v100-32"), batch


def nvidia_bert(options, line):
    """An accumulated batch counts all its parts; the cells give their number."""
    batch = int(number(line["batch_per_gpu"]) or 0)
    cells = dict(cell.strip().split("=", 1) for cell in line["other_cells"].split(";") if "=" in cell)
    task, length = "squad", 384
    if "pre-training" in line["heading"].lower():
        parts = re.findall(r"\d+", next((value for key, value in cells.items() if key.startswith("Accumulation")), ""))
        if len(parts) != 2 or "Sequence length" not in cells:
            return None
        batch //= int(parts[0 if line["precision"] == "FP32" else 1])
        task, length = "pretraining", int(cells["Sequence length"])
    if batch <= 0:
        return None
    precision = "amp" if line["precision"] == "AMP" else "fp32"
    words = ["--task", task, "--batch", batch, "--length", length, "--precision", precision]
    return job(options, f"nvidia-bert_{task}-{precision}-s{length}-b{batch}", "bert_step.py", words, "v100-32"), batch


# Constants of the libraries of a table's measurement, if the built-in ones are of another release.
CONSTANTS = {"timm-train": Path(__file__).resolve().parent / "pytorch_1.12.json"}

TABLES = {
    "timm-train": timm_train,
    "timm-infer": timm_infer,
    "neusight": neusight,
    "torchvision": torchvision,
    "lambda": lambda_resnet50,
    "nvidia": nvidia,
    "lambda-suite": lambda_suite,
    "own": own,
}
