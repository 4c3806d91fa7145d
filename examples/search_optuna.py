#!/usr/bin/env python3
"""Search for the largest GPT that trains on a card, without trying any of them on it: what does not fit is pruned.

    python search_optuna.py --gpu rtx3060 --trials 20

Needs gpucast, Optuna and PyTorch; no GPU.
"""

import argparse
import sys
from pathlib import Path

import gpucast
import optuna

TRAIN = Path(__file__).resolve().parent / "train_gpt.py"


def objective(trial: optuna.Trial, gpu: str) -> float:
    heads = trial.suggest_int("heads", 4, 24, step=4)
    arguments = {
        "--layers": trial.suggest_int("layers", 4, 32, step=4),
        "--width": 64 * heads,
        "--heads": heads,
        "--batch": trial.suggest_categorical("batch", [4, 8, 16]),
    }
    command = [sys.executable, str(TRAIN), *(str(word) for pair in arguments.items() for word in pair)]

    report = gpucast.optuna.prune_if_too_large(trial, command, gpu)

    # Here a real search trains the model, and returns how good it became. This one wants it large.
    return report.categories["parameters"] / 4 / 1e6  # million parameters in fp32


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="rtx3060", help="the card, as `gpucast gpus` names it (default %(default)s)")
    parser.add_argument("--trials", type=int, default=20, help="models to look at (default %(default)s)")
    args = parser.parse_args()

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    print("trial  layers  width  batch   peak reserved  result", flush=True)

    def show(_, trial):
        result = f"{trial.value:.0f} M parameters" if trial.value is not None else "pruned: does not fit"
        layers, heads, batch = (trial.params[name] for name in ("layers", "heads", "batch"))
        print(
            f"{trial.number:5d}  {layers:6d}  {64 * heads:5d}  {batch:5d}  {trial.user_attrs['gpucast_peak_reserved_bytes'] // 2**20:10d} MiB  {result}",
            flush=True,
        )

    study.optimize(lambda trial: objective(trial, args.gpu), n_trials=args.trials, callbacks=[show])
    pruned = len(study.get_trials(states=[optuna.trial.TrialState.PRUNED]))
    print(
        f"{pruned} of {args.trials} pruned; the largest that fits on {args.gpu}: trial {study.best_trial.number}, {study.best_value:.0f} M parameters"
    )


if __name__ == "__main__":
    main()
