"""An augmentation policy from a file that Albumentations wrote: read once, then part of the recipe."""

from __future__ import annotations

import json
import os
import random
import warnings
from pathlib import Path
from typing import Any

from training.errors import UserError
from training.recipe import Recipe
from training.techniques.data.augmentation import FromFile

TRIED = 50  # times, to see whether a pipeline leaves an image's size and type as they are


def read_pipeline(path: str) -> str:
    """What a file holds, as JSON.

    Raises:
        UserError: there is no such file, or it is neither JSON nor YAML.
    """
    import yaml

    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        return json.dumps(json.loads(text) if path.lower().endswith(".json") else yaml.safe_load(text))
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise UserError(f"augmentation.path={path}: cannot be read ({_first_line(error)}). {_WAY_OUT}") from None


def resolve_pipeline(recipe: Recipe) -> Recipe:
    """Take the file into the recipe, and see that its pipeline works on the model's images.

    Raises:
        UserError: it cannot be read or built, or changes an image's size or type.
    """
    policy, side = recipe.augmentation, recipe.preprocessing.image_size
    if not isinstance(policy, FromFile):
        return recipe
    assert isinstance(side, int)  # resolved
    pipeline = policy.pipeline or read_pipeline(policy.path or "")
    _try(pipeline, side, policy.path)
    return recipe.model_copy(update={"augmentation": policy.model_copy(update={"pipeline": pipeline})})


def build_pipeline(pipeline: str) -> Any:
    """An Albumentations Compose from its JSON."""
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # or its import asks the network for a newer version
    import albumentations as A

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on defaults that older versions did not write
        built: Any = A.from_dict(json.loads(pipeline))
    return built if isinstance(built, A.Compose) else A.Compose([built])


def _try(pipeline: str, side: int, path: str | None) -> None:
    import numpy as np

    image = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    try:
        compose = build_pipeline(pipeline)
        compose.set_random_state(np.random.default_rng(0), random.Random(0))
        results = [compose(image=image)["image"] for _ in range(TRIED)]
    except Exception as error:  # noqa: BLE001 - each transform has errors of its own
        raise UserError(f"augmentation.path={path}: does not work ({_first_line(error)}). {_WAY_OUT}") from None
    for result in results:
        if not isinstance(result, np.ndarray) or result.shape != image.shape or result.dtype != image.dtype:
            found = f"{getattr(result, 'dtype', type(result).__name__)} of shape {tuple(result.shape)}"
            raise UserError(
                f"augmentation.path={path}: makes {found} of an image of {side}×{side} in uint8. Leave out what resizes, "
                "crops, normalises or converts: the model's input is made before and after it."
            )


_WAY_OUT = "Write it with albumentations.save(pipeline, file), or with data_format='yaml'."


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".rstrip(": ")
