"""gpucast.tune.skip_too_large on a local Ray cluster: what does not fit never starts."""

import sys

import gpucast
import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

SCRIPT = "import sys, torch; torch.zeros(int(sys.argv[1]) << 30, dtype=torch.uint8, device='cuda')"


def command(config):
    return [sys.executable, "-c", SCRIPT, str(config["gib"])]


def fit(folder, space, **options):
    def train(config):  # here, so that workers get it without this module
        assert config["gib"] < 12
        tune.report({"score": config["gib"]})

    scheduler = gpucast.tune.skip_too_large(command, "rtx3060", options.pop("scheduler", None))
    config = tune.TuneConfig(metric="score", mode="max", scheduler=scheduler, **options)
    return tune.Tuner(train, param_space=space, tune_config=config, run_config=tune.RunConfig(storage_path=str(folder))).fit()


def test_what_does_not_fit_never_starts(tmp_path, capfd):
    ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100 << 20)
    try:
        grid = fit(tmp_path, {"gib": tune.grid_search([1, 11, 13])}, scheduler=ASHAScheduler())
        assert "does not fit rtx3060: its tensors and the CUDA context alone exceed the card by 1.37 GiB" in capfd.readouterr().err
        assert not grid.errors
        assert sorted(result.metrics["score"] for result in grid if "score" in (result.metrics or ())) == [1, 11]
        assert len(grid) == 3
        sampled = fit(tmp_path, {"gib": tune.randint(10, 14)}, search_alg=OptunaSearch(seed=1), num_samples=5)
        assert not sampled.errors
        assert 0 < len([result for result in sampled if "score" in (result.metrics or ())]) < 5
    finally:
        ray.shutdown()
