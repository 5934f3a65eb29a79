"""A technique: a part of a recipe whose defaults mean "off", and one change to a training set-up."""

from __future__ import annotations

from training.contract.part import Part
from training.contract.setup import TrainingSetup


class Technique(Part):
    """One switchable part of fine-tuning. The value built without arguments is its only "off"."""

    def apply(self, setup: TrainingSetup) -> None:
        """Change the set-up; called only when the technique is on.

        Raises:
            UserError: this machine, or this model, cannot do it.
        """
        raise NotImplementedError(f"{type(self).__name__}.apply")

    @property
    def is_on(self) -> bool:
        return self != type(self)()
