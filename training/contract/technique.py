"""A technique: a part of a recipe whose defaults mean "off", and which changes the set-up of a training."""

from __future__ import annotations

from functools import cache

from training.contract.part import Part
from training.contract.setup import TrainingSetup


class Technique(Part):
    """One switchable part of fine-tuning. It is off only if every field has its default."""

    def apply(self, setup: TrainingSetup) -> None:
        """Change the set-up. This is called only if the technique is on.

        Raises:
            UserError: this machine or this model does not support the technique.
        """
        raise NotImplementedError(f"{type(self).__name__}.apply")

    @property
    def is_on(self) -> bool:
        return self != _switched_off(type(self))


@cache
def _switched_off(kind: type[Technique]) -> Technique:
    return kind()  # a search asks for it a thousand times for each recipe that it draws
