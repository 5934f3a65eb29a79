"""Train one recipe from Python, without Ray, MLflow or a search.

    python examples/train_recipe.py

It takes about twenty seconds on one CPU core and needs no download.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from training.loop.epoch_report import Outcome, Report
from training.recipe import read_recipe
from training.train import train

RECIPE = read_recipe(
    {
        "data": {"name": "digits", "train_size": 200},
        "backbone": {"name": "test_resnet", "weights": "letters"},
        "epochs": 3,
        "unfreeze": {"level": "most"},
        "label_smoothing": {"alpha": 0.1},
        "optimizer": {"name": "adamw", "lr": 0.003},
        "schedule": {"name": "cosine"},
    }
)


def show(report: Report) -> bool:
    """Print one epoch. Return True to continue; False would end the training early."""
    accuracy, loss = report.metrics["val_accuracy"], report.metrics["train_loss"]
    print(f"epoch {report.epoch}: validation accuracy {accuracy:.1%}, training loss {loss:.3f}")
    return True


def main(folder: Path) -> Outcome:
    """Train in a folder. `best.ckpt` gets the weights of the best epoch; a later call continues from `last.ckpt`."""
    outcome = train(RECIPE, folder, on_report=show)
    best = outcome.reports[-1]
    print(f"{outcome.state}; the best epoch is {best.best_epoch} with {best.score:.1%} ± {best.standard_error:.1%}")
    return outcome


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
