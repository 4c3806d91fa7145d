"""An Optuna study over the cases of a spec: which of them to run, instead of all."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from ..command import Error
from .cases import case_at, is_wanted
from .spec import Spec


def run_study(spec: Spec, run_jobs: Callable[[list[int]], None], rows_of: Callable[[int], list[dict[str, Any]]]) -> None:
    """Trials come in rounds, so that the same seed chooses the same cases on any machine, and after a break.

    `run_jobs` runs those jobs that have no rows yet. A job is a case on one card: its number is case * cards + card.
    """
    optuna = _optuna()
    sampler = optuna.samplers.TPESampler(seed=spec.study.seed)
    study = optuna.create_study(sampler=sampler, direction="maximize" if spec.study.maximise else "minimize")
    pruned = optuna.trial.TrialState.PRUNED
    for first in range(0, spec.study.trials, spec.study.at_once):
        asked = []
        for _ in range(min(spec.study.at_once, spec.study.trials - first)):
            trial = study.ask()
            job = _job_of(spec, trial)
            if is_wanted(spec, case_at(spec, job // len(spec.gpus)).values):
                asked.append((trial, job))
            else:
                study.tell(trial, state=pruned)
        run_jobs(list(dict.fromkeys(job for _, job in asked)))
        for trial, job in asked:
            row = rows_of(job)[0]
            value = row[spec.study.objective] if row["status"] in ("fits", "tight") else None
            study.tell(trial, value) if value is not None else study.tell(trial, state=pruned)


def _optuna():
    try:
        import optuna
    except ImportError:
        to_do = f"{sys.executable} -m pip install 'gpucast[sweep]' (or optuna); or leave out study"
        raise Error("a study needs the package Optuna", sys.executable, to_do) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _job_of(spec: Spec, trial) -> int:
    number = trial.suggest_categorical("case of the list", range(len(spec.entries))) if len(spec.entries) > 1 else 0
    for name, values in spec.variables.items():
        number = number * len(values) + _suggested(trial, name, values)
    gpu = trial.suggest_categorical("gpu", range(len(spec.gpus))) if len(spec.gpus) > 1 else 0
    return number * len(spec.gpus) + gpu


def _suggested(trial, name: str, values: list[Any]) -> int:
    """The place of a value. Numbers have an order, which the sampler uses."""
    if len(values) == 1:
        return 0
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) for value in values):
        order = sorted(range(len(values)), key=values.__getitem__)
        return order[trial.suggest_int(name, 0, len(values) - 1)]
    return trial.suggest_categorical(name, range(len(values)))
