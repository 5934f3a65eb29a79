"""Flip average: predict the mean of the logits of an image and its mirror image (Krizhevsky et al. 2012, section 4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique

if TYPE_CHECKING:
    import torch
    from torch import nn


class FlipAverage(Technique):
    interactions: ClassVar[str] = (
        "It changes no weight: only validation, the scores and the exported model use it. Each prediction takes twice the "
        "time and memory. Train with flip, and leave both off if a mirrored image can have another label. "
        "model.safetensors holds the plain model, so other programs that load it have to average themselves."
    )
    examples: ClassVar[Examples] = ({"flip_average": {"enabled": True}},)
    changes_weights: ClassVar[bool] = False
    is_in_model: ClassVar[bool] = True

    enabled: bool = Field(False, description="Average over the mirror image in every prediction.")

    def apply(self, setup: TrainingSetup) -> None:
        average_flips(setup.model)

    def rebuild(self, model: nn.Module, class_count: int, image_size: int) -> None:
        average_flips(model)

    @property
    def breaks_features(self) -> str:
        return "it also predicts the mirror image"


def average_flips(model: nn.Module) -> None:
    """Make a model average its logits over each image (N, 3, side, side) and its mirror image in eval mode."""
    import torch

    def is_predicting() -> bool:
        # BatchNorm statistics are measured anew with the other modules in eval mode; those images must stay as they are.
        return not any(module.training for module in model.modules())

    def add_mirrored(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor | None:
        return torch.cat([inputs[0], inputs[0].flip(3)]) if is_predicting() else None

    def average(_: nn.Module, __: object, logits: torch.Tensor) -> torch.Tensor | None:
        return logits.unflatten(0, (2, -1)).mean(0) if is_predicting() else None

    model.register_forward_pre_hook(add_mirrored)
    model.register_forward_hook(average)
