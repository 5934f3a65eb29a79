"""The policy of a file of Albumentations: the file is read once, then it is part of the recipe."""

from __future__ import annotations

import json
import os
import random
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field

from training.contract.policy import Policy
from training.contract.view import RecipeView
from training.errors import UserError, describe_error
from training.process.text_files import read_text

if TYPE_CHECKING:
    import albumentations as A

MOST_VALUES = 100_000  # Aliases can turn a short text into a billion values.
TRIED = 50  # runs that check whether a pipeline keeps size and type of an image, and as many with all of its steps


class FromFile(Policy):
    """A pipeline that Albumentations saved as JSON or YAML; it gets the images before they are normalised."""

    policy: Literal["file"] = "file"
    path: str | None = Field(None, min_length=1, description="Path of a file that albumentations.save wrote.")
    pipeline: str | None = Field(
        None,
        description="Content of the file as JSON; filled in at the start, so that the recipe no longer needs the file.",
    )

    def transforms(self, interpolation: int) -> list[A.BasicTransform | A.Compose]:
        assert self.pipeline is not None  # resolved
        return [_build(self.pipeline)]

    def resolve(self, image_size: int) -> Self:
        """Copy the content of the file into the recipe, and check that its pipeline works on the model's images."""
        pipeline = self.pipeline or read_pipeline(self.path or "")
        _try(pipeline, image_size, self.path)
        return self.model_copy(update={"pipeline": pipeline})

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.path is None and self.pipeline is None:
            return "augmentation.policy=file needs augmentation.path, a file that albumentations.save wrote."
        return super().conflict(recipe)


def read_pipeline(path: str) -> str:
    """Return the content of a file as JSON."""
    import yaml

    name = f"augmentation.path={path}"
    try:
        text = read_text(Path(path).expanduser(), name)
        values = json.loads(text) if path.lower().endswith(".json") else yaml.safe_load(text)
        _refuse_endless(values, name)
        return json.dumps(values)
    except RecursionError:
        raise UserError(f"{name}: it is nested too deep. {_WAY_OUT}") from None
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise UserError(f"augmentation.path={path}: cannot be read ({describe_error(error)}). {_WAY_OUT}") from None


def _refuse_endless(values: object, name: str) -> None:
    """Count the values, with those that aliases repeat, before JSON writes each of them out."""
    count, waiting = 0, [values]
    while waiting:
        value = waiting.pop()
        count += 1
        if count > MOST_VALUES:
            raise UserError(f"{name}: it holds more than {MOST_VALUES:,} values, counting aliases. {_WAY_OUT}")
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _build(pipeline: str) -> A.Compose:
    # Otherwise its import searches the network for a newer version.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    import albumentations as A

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about defaults that older versions did not write
        built = A.from_dict(json.loads(pipeline))
    return built if isinstance(built, A.Compose) else A.Compose([built])


def _try(pipeline: str, side: int, path: str | None) -> None:
    import numpy as np

    image = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    try:
        results = []
        for text in (pipeline, json.dumps(_apply_always(json.loads(pipeline)))):
            compose = _build(text)
            compose.set_random_state(np.random.default_rng(0), random.Random(0))
            results += [compose(image=image)["image"] for _ in range(TRIED)]
    except Exception as error:  # noqa: BLE001 - each transform raises different errors
        raise UserError(f"augmentation.path={path}: does not work ({describe_error(error)}). {_WAY_OUT}") from None
    for result in results:
        if not isinstance(result, np.ndarray) or result.shape != image.shape or result.dtype != image.dtype:
            actual = f"{getattr(result, 'dtype', type(result).__name__)} of shape {tuple(result.shape)}"
            raise UserError(
                f"augmentation.path={path}: turns an image of {side}×{side} in uint8 into {actual}. Leave out the "
                "steps that resize, crop, normalise or convert: they run before and after it anyway."
            )


def _apply_always(values: object) -> object:
    """Return a pipeline in which each step that can happen does, as a rare one may not in the runs of the check."""
    if isinstance(values, list):
        return [_apply_always(value) for value in values]
    if not isinstance(values, dict):
        return values
    return {key: 1.0 if key == "p" and value else _apply_always(value) for key, value in values.items()}


_WAY_OUT = "Write it with albumentations.save(pipeline, file), or with data_format='yaml'."
