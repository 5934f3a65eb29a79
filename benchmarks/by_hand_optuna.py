"""The demo's search written by hand, as in the documentation of Optuna and Lightning: two processes share a study."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

TRIALS, PROCESSES = 16, 2


def search_part(folder: Path) -> None:
    """Run trials of the shared study until it has all of them."""
    import lightning.pytorch as pl
    import optuna
    import torch

    from benchmarks.by_hand_training import fit

    torch.set_num_threads(1)

    class Pruning(pl.Callback):
        """Reports each epoch to Optuna, and ends the trial where the pruner asks for it."""

        def __init__(self, trial: optuna.Trial) -> None:
            self.trial, self.best = trial, 0.0

        def on_validation_end(self, trainer: pl.Trainer, model: pl.LightningModule) -> None:
            if trainer.sanity_checking:
                return
            score = float(trainer.callback_metrics["val_accuracy"])
            self.best = max(self.best, score)
            self.trial.report(score, trainer.current_epoch + 1)
            if self.trial.should_prune():
                raise optuna.TrialPruned

    def objective(trial: optuna.Trial) -> float:
        config = {
            "level": trial.suggest_categorical("level", ["last", "most", "full"]),
            "changes": trial.suggest_categorical("changes", [False, True]),
            "smoothing": trial.suggest_float("smoothing", 0.0, 0.3),
            "mixup": trial.suggest_categorical("mixup", [0.0, 0.2, 1.0]),
            "lr": trial.suggest_float("lr", 0.01, 0.1, log=True),
            "batch_size": trial.suggest_categorical("batch_size", [8, 16, 32]),
            "precision": trial.suggest_categorical("precision", ["32-true", "bf16-mixed"]),
        }
        pruning = Pruning(trial)
        fit(config, f"sqlite:///{folder}/mlflow.db", f"trial-{trial.number}", [pruning])
        return pruning.best

    study = load_study(folder)
    study.optimize(objective, callbacks=[optuna.study.MaxTrialsCallback(TRIALS, states=None)])


def load_study(folder: Path):
    import optuna

    return optuna.create_study(
        storage=f"sqlite:///{folder}/optuna.db",
        study_name="demo",
        direction="maximize",
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=3, reduction_factor=2),
        load_if_exists=True,
    )


def search_all(folder: Path) -> None:
    """Start the processes, and write down what they found."""
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment("technique-search")  # otherwise both processes create the tables
    study = load_study(folder)
    command = [sys.executable, __file__, str(folder), "--part"]
    codes = [process.wait() for process in [subprocess.Popen(command) for _ in range(PROCESSES)]]
    if any(codes):
        raise SystemExit("a process of the search by hand failed")
    runs = mlflow.search_runs(experiment_names=["technique-search"], output_format="list")
    (folder / "result.json").write_text(
        json.dumps(
            {
                "best": study.best_value,
                "epochs": sum(len(trial.intermediate_values) for trial in study.trials),
                "statuses": [run.info.status for run in runs],
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", action="store_true", help="one of the two processes")
    arguments = parser.parse_args()
    (search_part if arguments.part else search_all)(arguments.folder)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
