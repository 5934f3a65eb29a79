"""Channels last: keep the channels of a pixel side by side in memory, as convolution kernels like them (Li et al. 2016)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from training.contract.setup import TrainingSetup
from training.contract.technique import Technique


class ChannelsLast(Technique):
    interactions: ClassVar[str] = (
        "It changes speed only, up to rounding. Gains are largest for convolutions in 16-mixed or bf16-mixed on tensor cores; "
        "transformers have little to gain."
    )

    enabled: bool = Field(False, description="Lay weights and images out as (N, height, width, channels).")

    def apply(self, setup: TrainingSetup) -> None:
        import torch

        # Images follow: a convolution answers in the layout of its weights.
        setup.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
