"""Channels last: store the channels of a pixel next to each other, which suits convolution kernels (Li et al. 2016)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView


class ChannelsLast(Technique):
    interactions: ClassVar[str] = (
        "It changes speed only, except for rounding. The gain is largest for convolutions in 16-mixed or bf16-mixed on tensor "
        "cores, and small for transformers."
    )
    examples: ClassVar[Examples] = ({"channels_last": {"enabled": True}},)
    changes_weights: ClassVar[bool] = False

    enabled: bool = Field(False, description="Store weights and images in the layout (N, height, width, channels).")

    def apply(self, setup: TrainingSetup) -> None:
        import torch

        # Images need no conversion: the output of a convolution has the layout of its weights.
        setup.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.enabled and recipe.lora.dora:
            return (
                "channels_last.enabled=true does not fit lora.dora=true, whose products need the plain layout: set one of "
                "them to false."
            )
        return None
