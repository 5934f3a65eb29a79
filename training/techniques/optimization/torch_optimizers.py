"""Optimizers of torch and of bitsandbytes that need more than their fields."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from training.contract.part import RecipeView
from training.process.optional import require
from training.techniques.compute.precision import Precision
from training.techniques.optimization.optimizer import Beta1, Beta2, Lr, LrDecay, Optimizer

if TYPE_CHECKING:
    import torch
    from torch.optim.optimizer import ParamsT


class Adafactor(Optimizer):
    """Store the mean square of a matrix as one row and one column (Shazeer & Stern 2018)."""

    interactions: ClassVar[str] = (
        "The steps of adafactor are relative to the size of the weights. For matrices that start at zero, as the second one of "
        "each lora adapter and some heads do, they are relative to the size that torch's initialisation would give at least."
    )

    name: Literal["adafactor"] = "adafactor"
    lr: Lr = 0.01
    beta2_decay: float = Field(
        -0.8,
        lt=0,
        description="Exponent: the mean of squares has the decay rate 1 - step^beta2_decay.",
        examples=[-0.2],
    )
    clip: float = Field(1.0, ge=1, description="Largest root mean square of a step, before lr.", examples=[2.0])
    weight_decay: LrDecay = 0.0

    def build(self, parameters: ParamsT) -> torch.optim.Optimizer:
        from torch.optim import Adafactor

        arguments = self.arguments()
        return Adafactor(parameters, d=arguments.pop("clip"), **arguments)

    def options_for(self, parameter: torch.Tensor, *, starts_at_zero: bool, is_in_head: bool) -> dict[str, object]:
        # The paper's lower bound of the size, 1e-3, is meant for vectors. Steps relative to it hardly move a matrix.
        return {"eps": (None, (3 * parameter[0].numel()) ** -0.5)} if starts_at_zero else {}


class Adam8bit(Optimizer):
    """AdamW with both means quantised to 8 bits in blocks (Dettmers et al. 2022)."""

    interactions: ClassVar[str] = (
        "adam8bit saves memory where the optimizer's state takes a large share: large models with small batches."
    )

    name: Literal["adam8bit"] = "adam8bit"
    lr: Lr = 0.001
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    weight_decay: LrDecay = 0.0

    def build(self, parameters: ParamsT) -> torch.optim.Optimizer:
        require("optimizer.name=adam8bit", "bitsandbytes", otherwise="Or use optimizer.name=adam.")
        logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it warns about parts that are not used here
        from bitsandbytes.optim import Adam8bit

        return Adam8bit(parameters, **self.arguments())

    def conflict(self, recipe: RecipeView) -> str | None:
        if recipe.part(Precision).mode == "64-true":
            return (
                "optimizer.name=adam8bit does not support float64 weights: set another precision.mode or "
                "optimizer.name=adam."
            )
        return None
