"""Optuna: a trial that does not fit the card is pruned before it starts."""

from __future__ import annotations

from .report import Report
from .trials import judge


def prune_if_too_large(trial, command, gpu: str, **options) -> Report:
    """Raises optuna.TrialPruned if the command does not fit the card; else returns the report. `options`: steps (2), folder,
    environment, timeout_s. The trial gets the user attributes gpucast_peak_reserved_bytes and gpucast_verdict."""
    import optuna

    report = judge(command, gpu, **options)
    trial.set_user_attr("gpucast_peak_reserved_bytes", report.peak_reserved_bytes)
    trial.set_user_attr("gpucast_verdict", report.verdict)
    if not report.fits:
        raise optuna.TrialPruned(f"does not fit {gpu}: {report.verdict_reason}")
    return report
