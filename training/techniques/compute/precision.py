"""Precision: the number type of the forward and backward pass (Micikevicius et al. 2018, section 3)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from training.contract.part import MOST, Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView
from training.errors import UserError
from training.process.resources import has_bfloat16

Mode = Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]
INIT_SCALE, GROWTH_INTERVAL = 65536.0, 2000  # the defaults of torch


class Precision(Technique):
    interactions: ClassVar[str] = (
        "16-mixed scales the loss: steps whose gradients overflow are skipped, and accumulation adds scaled gradients. "
        "bf16-mixed needs no scaling. float32 applies to 32-true only, init_scale and growth_interval to 16-mixed only, so "
        "search them inside that option. On a CPU without bfloat16 arithmetic bf16-mixed is slower than 32-true. 64-true is "
        "for checks. The scores of a training are measured in its mode, and the exported model computes in float32: after "
        "bf16-mixed, both differed by at most one of 350 images in six trainings on digits."
    )
    examples: ClassVar[Examples] = (
        {"precision": {"mode": "bf16-mixed"}},
        {"precision": {"mode": "16-mixed"}},
        {"precision": {"float32": "high"}},
    )

    mode: Mode = Field("32-true", description="mixed: autocast with float32 weights; 16-mixed also scales the loss.")
    float32: Literal["highest", "high", "medium"] = Field(
        "highest",
        description="For 32-true on a GPU: high rounds products and convolutions to TF32, medium rounds products to bfloat16.",
    )
    init_scale: float = Field(INIT_SCALE, gt=0, description="First factor on the loss, halved when gradients overflow.")
    growth_interval: int = Field(
        GROWTH_INTERVAL,
        ge=1,
        le=MOST,
        description="Number of steps in a row without overflow after which the factor doubles.",
    )

    def apply(self, setup: TrainingSetup) -> None:
        self._refuse_what_the_machine_lacks(setup.device)
        if self.float32 != "highest":
            import torch

            torch.set_float32_matmul_precision(self.float32)  # isolation.py restores the previous setting
            # The line above does not change convolutions. They cannot round to bfloat16, so medium is TF32 for them too.
            torch.backends.cudnn.allow_tf32 = True
        if self.mode == "16-mixed":
            from lightning.pytorch.plugins import MixedPrecision
            from torch.amp import GradScaler

            scaler = GradScaler(setup.device, init_scale=self.init_scale, growth_interval=self.growth_interval)  # type: ignore[attr-defined]
            setup.plugins.append(MixedPrecision("16-mixed", setup.device, scaler))
        elif self.mode == "64-true":
            from lightning.pytorch.plugins import DoublePrecision

            setup.plugins.append(DoublePrecision())  # Lightning refuses the name 64-true for a sharded model
            setup.model.double()  # before a checkpoint is loaded, because Lightning would round it to float32
        else:
            setup.set_trainer(precision=self.mode)

    def _refuse_what_the_machine_lacks(self, device: str) -> None:
        import torch

        if self.mode == "16-mixed" and device == "cpu":
            # Lightning would silently train in bfloat16 instead.
            raise UserError("precision.mode=16-mixed needs a GPU: a CPU has no float16. Use bf16-mixed or 32-true.")
        if self.float32 != "highest" and (device == "cpu" or torch.cuda.get_device_capability() < (8, 0)):
            raise UserError(
                f"precision.float32={self.float32} needs a GPU with TF32 arithmetic (compute capability 8.0 or higher). "
                "Use precision.float32=highest."
            )
        if self.mode == "bf16-mixed" and device == "cuda" and not has_bfloat16("cuda"):
            raise UserError(
                f"precision.mode=bf16-mixed: {torch.cuda.get_device_name()} only emulates bfloat16, slower than float32. "
                "Use 16-mixed or 32-true."
            )

    @property
    def breaks_features(self) -> str:
        return "mode=64-true is for checks" if self.mode == "64-true" else ""

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.float32 != "highest" and self.mode != "32-true":
            return f"precision.float32={self.float32} does nothing with precision.mode={self.mode}: set it to highest."
        if self.mode != "16-mixed" and (self.init_scale, self.growth_interval) != (INIT_SCALE, GROWTH_INTERVAL):
            return (
                f"precision.init_scale and growth_interval do nothing with precision.mode={self.mode}, which scales no loss: "
                "leave them out."
            )
        return None
