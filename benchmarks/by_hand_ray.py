"""The demo's search written by hand, as in the documentation of Ray Tune and Lightning."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import mlflow
from ray import tune
from ray.tune.integration.pytorch_lightning import TuneReportCheckpointCallback
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

from benchmarks.by_hand_training import fit

SPACE = {
    "level": tune.choice(["last", "most", "full"]),
    "changes": tune.choice([False, True]),
    "smoothing": tune.uniform(0.0, 0.3),
    "mixup": tune.choice([0.0, 0.2, 1.0]),
    "lr": tune.loguniform(0.01, 0.1),
    "batch_size": tune.choice([8, 16, 32]),
    "precision": tune.choice(["32-true", "bf16-mixed"]),
}


def train(config: dict) -> None:
    report = TuneReportCheckpointCallback({"val_accuracy": "val_accuracy"}, on="validation_end")
    fit(config, config["uri"], tune.get_context().get_trial_name(), [report])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reuse", action="store_true", help="reuse workers between trials")
    arguments = parser.parse_args()
    uri = f"sqlite:///{arguments.folder}/mlflow.db"
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("technique-search")  # otherwise seven of eight workers fail in the migration
    tuner = tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space=SPACE | {"uri": uri},
        tune_config=tune.TuneConfig(
            metric="val_accuracy",
            mode="max",
            num_samples=16,
            search_alg=OptunaSearch(),
            scheduler=ASHAScheduler(max_t=9, grace_period=3, reduction_factor=2),
            reuse_actors=arguments.reuse,
        ),
        run_config=tune.RunConfig(storage_path=str(arguments.folder / "ray"), verbose=1),
    )
    results = tuner.fit()
    runs = mlflow.search_runs(experiment_names=["technique-search"], output_format="list")
    (arguments.folder / "result.json").write_text(
        json.dumps(
            {
                "best": results.get_best_result(scope="all").metrics["val_accuracy"],
                "epochs": sum(result.metrics.get("training_iteration", 0) for result in results),
                "statuses": [run.info.status for run in runs],
            }
        )
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    started = time.time()
    main()
    print(f"{time.time() - started:.0f} s")
