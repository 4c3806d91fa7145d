"""Ray Tune: a trial that does not fit the card is stopped before it starts."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

from .trials import judge


def skip_too_large(command: Callable[[Mapping[str, Any]], Any], gpu: str, scheduler=None, **options):
    """The scheduler (default: Ray Tune's own, first in, first out), which now ends a new trial if `command(config)` does not fit the card.

        tune.TuneConfig(scheduler=skip_too_large(lambda config: ["python", "train.py", "--batch", str(config["batch"])], "rtx3060"))

    `options`: steps (2), folder, environment, timeout_s. The command runs on the virtual GPU, where the tuner itself runs."""
    if scheduler is None:
        from ray.tune.schedulers import FIFOScheduler

        scheduler = FIFOScheduler()
    too_large: list = []
    scheduler.on_trial_add = functools.partial(_add, scheduler.on_trial_add, too_large, command, gpu, options)
    scheduler.choose_trial_to_run = functools.partial(_choose, scheduler.choose_trial_to_run, too_large)
    return scheduler


def _add(add, too_large, command, gpu, options, controller, trial):
    add(controller, trial)
    if trial.num_failures:  # it has run before
        return
    report = judge(command(trial.config), gpu, **options)
    if not report.fits:
        print(f"gpucast: trial {trial.trial_id} is not started, it does not fit {gpu}: {report.verdict_reason}", file=sys.stderr)
        too_large.append(trial)


def _choose(choose, too_large, controller):
    # Ray Tune calls this after it has added trials, and before it starts any.
    while too_large:
        trial = too_large.pop()
        trial.init_local_path()  # reports of all trials look there for an error
        controller.stop_trial(trial)
    return choose(controller)
