"""Label smoothing: mix the target with the uniform distribution (Szegedy et al. 2016, section 7)."""

from __future__ import annotations

from pydantic import Field

from training.techniques.base import Technique, TrainingSetup


class LabelSmoothing(Technique):
    alpha: float = Field(0.0, ge=0, lt=1, description="Weight of the uniform distribution.")

    def apply(self, setup: TrainingSetup) -> None:
        from torch import nn

        # CrossEntropyLoss smooths soft targets too, so this composes with mixup as it is.
        setup.criterion = nn.CrossEntropyLoss(label_smoothing=self.alpha)
