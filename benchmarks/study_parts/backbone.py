"""Pre-train the small backbone of the study on half of the classes, and export its weights."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file

from benchmarks.study_parts.photos import EARLIER
from training.evaluate import read_trained
from training.recipe import Recipe, read_recipe
from training.train import train

WEIGHTS = "backbone.safetensors"


def pretrain(tuned: Recipe, folder: Path, epochs: int) -> None:
    """Train the backbone of a recipe on `earlier.csv` from random weights, and write its weights and `backbone.json`."""
    if (folder / WEIGHTS).exists():
        return
    own = folder / "pretraining"
    own.mkdir(exist_ok=True)
    recipe = read_recipe(
        {
            "data": {"name": "manifest", "path": str(folder / EARLIER)},
            "preprocessing": tuned.preprocessing.model_dump(),
            "backbone": {**tuned.backbone.model_dump(), "weights": "none"},
            "channels_last": tuned.channels_last.model_dump(),
            "epochs": epochs,
            "batch_size": 64,
            "random_crop": {"name": "padded"},
            "flip": {"probability": 0.5},
            "optimizer": {"name": "momentum", "lr": 0.1, "weight_decay": 5e-4},
            "schedule": {"name": "cosine", "warmup_epochs": 1.0 if epochs > 1 else 0.0},
        }
    )
    outcome = train(recipe, own)
    facts = {"score": outcome.reports[-1].score, "epochs": epochs, "classes": outcome.classes}
    (folder / "backbone.json").write_text(json.dumps(facts))
    weights = read_trained(own / "best.ckpt")["state_dict"]
    # safetensors refuses the layout of channels_last.
    save_file({name: value.contiguous() for name, value in weights.items()}, folder / "backbone.partial")
    (folder / "backbone.partial").replace(folder / WEIGHTS)
