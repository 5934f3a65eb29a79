"""Optimizers, as torch.optim defines them; each carries the fields it uses and no others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from training.techniques.base import Part

if TYPE_CHECKING:
    import torch

Lr = Annotated[float, Field(gt=0, description="Learning rate at the peak of the schedule.")]
WeightDecay = Annotated[float, Field(ge=0, description="L2 penalty, added to the gradient.")]
DecoupledDecay = Annotated[float, Field(gt=0, description="Decoupled decay per unit of lr; without any it is adam.")]
MomentumFactor = Annotated[float, Field(gt=0, lt=1, description="Share of the last step kept in the next.")]
Beta1 = Annotated[float, Field(ge=0, lt=1, description="Decay of the mean of gradients.")]
Beta2 = Annotated[float, Field(ge=0, lt=1, description="Decay of the mean of squared gradients.")]


class _Optimizer(Part):
    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        """Build it over parameters, or over groups of them."""
        import torch

        arguments: dict[str, Any] = self.model_dump(exclude={"name"})
        if "beta1" in arguments:
            arguments["betas"] = (arguments.pop("beta1"), arguments.pop("beta2"))
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}.get(self.name, torch.optim.SGD)
        if self.name == "nesterov":
            arguments["nesterov"] = True
        return kind(parameters, **arguments)


class Sgd(_Optimizer):
    name: Literal["sgd"] = "sgd"
    lr: Lr = 0.05
    weight_decay: WeightDecay = 0.0


class Momentum(_Optimizer):
    name: Literal["momentum"] = "momentum"
    lr: Lr = 0.05
    momentum: MomentumFactor = 0.9
    weight_decay: WeightDecay = 0.0


class Nesterov(_Optimizer):
    name: Literal["nesterov"] = "nesterov"
    lr: Lr = 0.05
    momentum: MomentumFactor = 0.9
    weight_decay: WeightDecay = 0.0


class Adam(_Optimizer):
    name: Literal["adam"] = "adam"
    lr: Lr = 0.001
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    weight_decay: WeightDecay = 0.0


class AdamW(_Optimizer):
    name: Literal["adamw"] = "adamw"
    lr: Lr = 0.001
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    weight_decay: DecoupledDecay = 0.01


Optimizer = Annotated[Sgd | Momentum | Nesterov | Adam | AdamW, Field(discriminator="name")]
