"""Optimizers of torch, and Adam of bitsandbytes, which is torch's with a smaller state."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from training.contract.optimizer import Beta1, Beta2, Lr, LrDecay, MomentumFactor, Optimizer, WeightDecay
from training.contract.part import Examples
from training.contract.view import RecipeView
from training.process.optional import require

if TYPE_CHECKING:
    import torch
    from torch.optim.optimizer import ParamsT


class _OfTorch(Optimizer):
    class_name: ClassVar[str]

    def build(self, parameters: ParamsT) -> torch.optim.Optimizer:
        from torch import optim

        return getattr(optim, self.class_name)(parameters, **self.arguments())


class Sgd(_OfTorch):
    """Plain stochastic gradient descent (Robbins & Monro 1951)."""

    class_name: ClassVar[str] = "SGD"
    name: Literal["sgd"] = "sgd"
    lr: Lr = 0.05
    weight_decay: WeightDecay = 0.0


class Momentum(_OfTorch):
    """SGD that adds a share of the last step to the next (Sutskever et al. 2013, section 2)."""

    class_name: ClassVar[str] = "SGD"
    name: Literal["momentum"] = "momentum"
    lr: Lr = 0.05
    momentum: MomentumFactor = 0.9
    weight_decay: WeightDecay = 0.0


class Nesterov(_OfTorch):
    """Momentum with the gradient at the point to which it leads (Sutskever et al. 2013, section 2)."""

    class_name: ClassVar[str] = "SGD"
    examples: ClassVar[Examples] = ({"optimizer": {"name": "nesterov", "lr": 0.03}},)
    name: Literal["nesterov"] = "nesterov"
    lr: Lr = 0.05
    momentum: MomentumFactor = 0.9
    weight_decay: WeightDecay = 0.0

    def arguments(self) -> dict[str, object]:
        return {**super().arguments(), "nesterov": True}


class Adagrad(_OfTorch):
    """The rate of each weight falls with the sum of its squared gradients (Duchi et al. 2011)."""

    class_name: ClassVar[str] = "Adagrad"
    name: Literal["adagrad"] = "adagrad"
    lr: Lr = 0.01
    weight_decay: WeightDecay = 0.0


class RmsProp(_OfTorch):
    """Divide the gradient of each weight by the root of its recent mean square (Hinton 2012, lecture 6)."""

    class_name: ClassVar[str] = "RMSprop"
    name: Literal["rmsprop"] = "rmsprop"
    lr: Lr = 0.001
    alpha: Beta2 = 0.99
    momentum: float = Field(0.0, ge=0, lt=1, description="Share of the last step added to the next.", examples=[0.5])
    weight_decay: WeightDecay = 0.0


class Adam(_OfTorch):
    """Divide the mean gradient of each weight by the root of its mean square (Kingma & Ba 2015)."""

    class_name: ClassVar[str] = "Adam"
    name: Literal["adam"] = "adam"
    lr: Lr = 0.001
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    weight_decay: WeightDecay = 0.0


class AdamW(_OfTorch):
    """Adam with weight decay that is separate from the gradient (Loshchilov & Hutter 2019)."""

    class_name: ClassVar[str] = "AdamW"
    name: Literal["adamw"] = "adamw"
    lr: Lr = 0.001
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    weight_decay: Annotated[
        LrDecay,
        Field(gt=0, description="Decoupled weight decay per unit of lr; with 0 it would be adam.", examples=[0.1]),
    ] = 0.01


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
        if recipe.precision.mode == "64-true":
            return (
                "optimizer.name=adam8bit does not support float64 weights: set another precision.mode or "
                "optimizer.name=adam."
            )
        if recipe.channels_last.enabled:
            return (
                "optimizer.name=adam8bit gives each kernel new memory, in the plain layout: set channels_last.enabled=false or "
                "optimizer.name=adam."
            )
        return None
