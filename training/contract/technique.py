"""A technique: a part of a recipe whose defaults mean "off", and which changes the set-up of a training."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, ClassVar, TypeGuard

from training.contract.part import Part

if TYPE_CHECKING:
    from torch import nn

    from training.contract.setup import TrainingSetup
    from training.contract.view import RecipeView


class Technique(Part):
    """One switchable part of fine-tuning. It is off only if every field has its default."""

    #: A technique that is not bundled declares True if it changes neither what frozen modules compute nor the images outside
    #: `batch_transforms` and `mixers`. Without that, a recipe with it stores no features.
    keeps_features: ClassVar[bool] = False

    #: The field that does nothing while only the head trains, and no adapters of lora.
    needs_trained_backbone: ClassVar[str] = ""
    #: The field with which it mixes the images of a batch, so that a batch needs two of them.
    needs_pairs: ClassVar[str] = ""

    #: True: the trained model needs it too, in validation and predictions. `rebuild` then does its part.
    is_in_model: ClassVar[bool] = False

    def apply(self, setup: TrainingSetup) -> None:
        """Change the set-up. This is called only if the technique is on."""
        raise NotImplementedError(f"{type(self).__name__}.apply")

    def rebuild(self, model: nn.Module, class_count: int, image_size: int) -> None:
        """Change a plain model, before it gets the trained weights, so that it predicts as the trained one."""

    @property
    def breaks_features(self) -> str:
        """Why a recipe with it, switched on, cannot train on stored features of the frozen part; empty if it can."""
        return ""

    @property
    def is_on(self) -> bool:
        return self != _switched_off(type(self))


@cache
def _switched_off(technique_class: type[Technique]) -> Technique:
    return technique_class()  # a search asks for it a thousand times for each recipe that it draws


def find_conflict(name: str, part: Part, recipe: RecipeView) -> str | None:
    """Return one sentence about a conflict of a recipe's part, which has this name, with another one; None if it has none."""
    if sentence := part.conflict(recipe):
        return sentence
    if not isinstance(part, Technique):
        return None
    if field := part.needs_trained_backbone:
        value, off = getattr(part, field), type(part).model_fields[field].default
        if value != off and recipe.unfreeze.deepest == "last" and not recipe.lora.is_on:
            return (
                f"{name}.{field}={json.dumps(value)} does nothing while unfreeze.level=last trains the head alone: set another "
                f"level, lora.rank, or {field}={json.dumps(off)}."
            )
    if part.needs_pairs and part.is_on and recipe.batch_size == 1:
        return f"{name}.{part.needs_pairs} with batch_size=1 would mix each image with itself: raise batch_size."
    return None


def can_conflict(part: object) -> TypeGuard[Part]:
    """Whether a value of a recipe's field is a part that `find_conflict` may find a sentence for."""
    if not isinstance(part, Part):
        return False
    declares = isinstance(part, Technique) and (part.needs_trained_backbone or part.needs_pairs)
    return bool(declares) or type(part).conflict is not Part.conflict
