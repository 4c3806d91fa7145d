"""gpucast from Python: how much GPU memory a PyTorch training job needs, without a GPU.

    report = gpucast.run(["python", "train.py", "--batch", "64"], gpu="rtx3060")
    report.fits, report.peak_reserved_bytes

A thin layer over the `gpucast` command. docs/reference/python-api.md describes it.
"""

from .batch import Row, batch
from .command import Error, version
from .report import Report, analyze, run

__all__ = ["Error", "Report", "Row", "analyze", "batch", "run"]


def __getattr__(name):
    if name == "__version__":
        return version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
