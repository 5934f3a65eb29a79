"""A technique: a part of a recipe whose defaults mean "off", and which changes the set-up of a training."""

from __future__ import annotations

from functools import cache
from typing import ClassVar

from training.contract.part import Part
from training.contract.setup import TrainingSetup


class Technique(Part):
    """One switchable part of fine-tuning. It is off only if every field has its default."""

    #: An own technique declares True if it changes neither what frozen modules compute nor the images outside
    #: `batch_transforms` and `mixers`. Without that, a recipe with it stores no features.
    keeps_features: ClassVar[bool] = False

    def apply(self, setup: TrainingSetup) -> None:
        """Change the set-up. This is called only if the technique is on."""
        raise NotImplementedError(f"{type(self).__name__}.apply")

    @property
    def is_on(self) -> bool:
        return self != _switched_off(type(self))


@cache
def _switched_off(technique_class: type[Technique]) -> Technique:
    return technique_class()  # a search asks for it a thousand times for each recipe that it draws
