"""gpucast from Python: how much GPU memory a PyTorch training job needs, without a GPU.

    report = gpucast.run(["python", "train.py", "--batch", "64"], gpu="rtx3060")
    report.fits, report.peak_reserved_bytes

A thin layer over the `gpucast` command. docs/reference/python-api.md describes it.
"""

from __future__ import annotations

import importlib

# Loaded when used: every pytest of the environment imports this package for its plugin.
_MODULES = {
    "Error": "command",
    "Fit": "fits",
    "FitAnswer": "fits",
    "Report": "report",
    "Row": "rows",
    "analyze": "report",
    "batch": "rows",
    "find_executable_batch_size": "batch_size",
    "fit": "fits",
    "run": "report",
}

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without its import
if TYPE_CHECKING:
    from .batch_size import find_executable_batch_size
    from .command import Error
    from .fits import Fit, FitAnswer, fit
    from .report import Report, analyze, run
    from .rows import Row, batch

__all__ = ["Error", "Fit", "FitAnswer", "Report", "Row", "analyze", "batch", "find_executable_batch_size", "fit", "run"]


def __getattr__(name):
    if name == "__version__":
        from .command import version

        return version()
    if name in ("lightning", "optuna", "tune"):
        return importlib.import_module(f".{name}", __name__)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)


def __dir__():
    return sorted({*globals(), *_MODULES})
