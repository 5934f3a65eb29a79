"""Export of one trial: the complete recipe, its best weights, and a summary of what they are and how they scored."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from spaces.load import dump_recipe
from training.errors import UserError
from training.recipe import Recipe

FORMAT = 1
LIBRARIES = ("torch", "torchvision", "timm", "lightning", "albumentations", "ray", "optuna", "mlflow")


@dataclass(frozen=True)
class Source:
    """Where an export comes from; `sweep`, `trial` and `run_id` are None for a recipe trained by itself."""

    metrics: dict[str, float]
    metric: str
    score: float
    standard_error: float
    best_epoch: int
    classes: tuple[str, ...]
    threads: int
    sweep: str | None = None
    trial: str | None = None
    run_id: str | None = None


def export_recipe(recipe: Recipe, out: Path) -> None:
    """Write `recipe.yaml`.

    Raises:
        UserError: `out` is a file, or holds something else than an earlier export.
    """
    if out.is_file() or (out.is_dir() and any(out.iterdir()) and not (out / "recipe.yaml").exists()):
        raise UserError(f"--out={out}: there is something else already. Name a new folder.")
    out.mkdir(parents=True, exist_ok=True)
    (out / "recipe.yaml").write_text(dump_recipe(recipe))


def export_model(recipe: Recipe, checkpoint: Path, source: Source, out: Path) -> None:
    """Write `recipe.yaml`, `weights.safetensors` and `summary.json` into `out`.

    `recipe` is resolved: nothing is left `auto`. The weights are those of `source.best_epoch`.
    """
    import torch
    from safetensors.torch import save_file

    export_recipe(recipe, out)
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)["state_dict"]
    # Clones, because safetensors refuses tensors that share memory, as tied weights do.
    save_file({name: value.clone().contiguous() for name, value in state.items()}, out / "weights.safetensors")
    (out / "summary.json").write_text(json.dumps(summarise(recipe, source), indent=2) + "\n")


def summarise(recipe: Recipe, source: Source) -> dict[str, Any]:
    """What someone must know to use the weights, and to judge them."""
    preprocessing = recipe.preprocessing
    return {
        "format": FORMAT,
        "sweep": source.sweep,
        "trial": source.trial,
        "mlflow_run_id": source.run_id,
        "metric": source.metric,
        "score": source.score,
        "standard_error": source.standard_error,
        "best_epoch": source.best_epoch,
        "metrics": source.metrics,
        "classes": list(source.classes),
        "input_size": [3, preprocessing.image_size, preprocessing.image_size],
        "mean": preprocessing.mean,
        "std": preprocessing.std,
        "crop": preprocessing.crop,
        "interpolation": preprocessing.interpolation,
        "seed": recipe.seed,
        "threads": source.threads,
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in LIBRARIES},
    }
