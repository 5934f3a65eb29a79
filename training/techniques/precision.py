"""Precision: the number type of the forward and backward pass (Micikevicius et al. 2018, section 3)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from training.errors import UserError
from training.techniques.base import Technique, TrainingSetup

Mode = Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]


class Precision(Technique):
    interactions: ClassVar[str] = (
        "16-mixed scales the loss, and steps whose gradients overflow are skipped; bf16-mixed needs no scaling. On a CPU "
        "without bfloat16 arithmetic bf16-mixed is slower than 32-true. 64-true is for checks."
    )

    mode: Mode = Field("32-true", description="mixed: autocast, weights stay float32; 16-mixed also scales the loss.")

    def apply(self, setup: TrainingSetup) -> None:
        import torch

        if self.mode == "16-mixed" and setup.device == "cpu":
            # Lightning would silently train in bfloat16 instead.
            raise UserError(
                "precision.mode=16-mixed needs a GPU: a CPU has no float16 arithmetic. Use bf16-mixed or 32-true."
            )
        if (
            self.mode == "bf16-mixed"
            and setup.device == "cuda"
            and not torch.cuda.is_bf16_supported(including_emulation=False)
        ):
            raise UserError(
                f"precision.mode=bf16-mixed: {torch.cuda.get_device_name()} only emulates bfloat16, slower than float32. "
                "Use 16-mixed or 32-true."
            )
        setup.set_trainer(precision=self.mode)
