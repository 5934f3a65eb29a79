"""Label smoothing: mix the target with the uniform distribution (Szegedy et al. 2016, section 7)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique


class LabelSmoothing(Technique):
    interactions: ClassVar[str] = (
        "It smooths mixed targets too, so strong smoothing and mixing add up. It lowers the confidence: watch val_ece. "
        "val_loss remains the plain cross-entropy, and so comparable."
    )
    examples: ClassVar[Examples] = ({"label_smoothing": {"alpha": 0.1}},)

    alpha: float = Field(0.0, ge=0, lt=1, description="Weight of the uniform distribution.")

    def apply(self, setup: TrainingSetup) -> None:
        # Each loss also smooths soft targets, so this works together with mixup.
        setup.label_smoothing = self.alpha
