"""gpucast compared with ORION's published CNN rows (Figure 6). A row is a mean over the settings of ORION's scripts: two image sizes, two precisions,
and others that hardly change the GPU's time. It is compared with the mean over those four of the GPU's time, and of the host program's time
on this machine; the loader's part of the row is not known. MLPs and Transformers are networks of those scripts, which are not here."""

import dataclasses
import statistics

from eval.steps import step_rows as measured
from python.orion import steps

MODELS = {"DenseNet121": "densenet121", "ResNet50": "resnet50", "VGG16": "vgg16_bn"}
IMAGES = (32, 64)  # CIFAR, Tiny ImageNet
PRECISIONS = ("amp", "tf32")  # convolutions in "fp32" are in TF32, PyTorch's default
CARD = "l40s"  # an L40's chip, and its memory


@dataclasses.dataclass(frozen=True)
class Beside:
    model: str
    batch: int
    measured_ms: float
    orion_ms: float
    gpu_ms: tuple  # one for each setting
    host_ms: tuple


def job_rows(options, published_rows):
    """{published row: [rows with the jobs of its settings]}."""
    out = {}
    for row in published_rows:
        if row.family != "CNN" or row.model not in MODELS:
            continue
        for image in IMAGES:
            for precision in PRECISIONS:
                name = MODELS[row.model]
                words = ["--model", name, "--batch", row.batch, "--image", image, "--layout", "nchw", "--precision", precision, "--foreach"]
                job = measured.job(options, f"orion-{name}-{precision}-b{row.batch}-i{image}", "convnet_step.py", words, CARD)
                out.setdefault(row, []).append(measured.Row(f"{CARD} {job['name']}", "orion", CARD, name, precision, row.measured_ms, job))
    return out


def beside(gpucast, by_row, files):
    """[Beside] for rows with captures of all settings."""
    out = []
    for row, jobs in by_row.items():
        captures = [files.get(job.job["name"]) for job in jobs]
        if all(captures):
            times = [steps.read(gpucast, capture, [CARD])[1][CARD] for capture in captures]
            paths = (tuple(one[name] / 1e6 for one in times) for name in ("gpu_ns", "host_ns"))
            out.append(Beside(row.model, row.batch, row.measured_ms, row.predicted_ms, *paths))
    return out


def lines(found):
    """Of a table."""
    out = []
    for row in sorted(found, key=lambda row: (row.model, row.batch)):
        off = f"{100 * (row.orion_ms / row.measured_ms - 1):+.1f}"
        paths = [f"{statistics.fmean(ms):.1f} ({min(ms):.1f} to {max(ms):.1f})" for ms in (row.gpu_ms, row.host_ms)]
        out.append([row.model, row.batch, f"{row.measured_ms:.1f}", f"{row.orion_ms:.1f}", off, *paths])
    return out


HEADER = ["model", "batch", "measured ms", "ORION ms", "off %", "gpucast: GPU ms", "host here, ms"]
