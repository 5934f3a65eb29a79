"""Optimizer: how a gradient becomes a step, each kind as torch.optim defines it (Robbins & Monro 1951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

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


class Sgd(Part):
    interactions: ClassVar[str] = (
        "The best learning rate differs by factors of hundreds between kinds, so search each in a domain of its own; it "
        "moves with the effective batch too. weight_decay also pulls on norms and biases."
    )

    name: Literal["sgd"] = "sgd"
    lr: Lr = 0.05
    weight_decay: WeightDecay = 0.0

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        """Build it over parameters, or over groups of them."""
        from torch.optim import SGD

        return SGD(parameters, **self.model_dump(exclude={"name"}))


class Momentum(Part):
    name: Literal["momentum"] = "momentum"
    lr: Lr = 0.05
    momentum: MomentumFactor = 0.9
    weight_decay: WeightDecay = 0.0

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        from torch.optim import SGD

        return SGD(parameters, **self.model_dump(exclude={"name"}))


class Nesterov(Part):
    name: Literal["nesterov"] = "nesterov"
    lr: Lr = 0.05
    momentum: MomentumFactor = 0.9
    weight_decay: WeightDecay = 0.0

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        from torch.optim import SGD

        return SGD(parameters, nesterov=True, **self.model_dump(exclude={"name"}))


class Adam(Part):
    name: Literal["adam"] = "adam"
    lr: Lr = 0.001
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    weight_decay: WeightDecay = 0.0

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        from torch.optim import Adam

        return Adam(parameters, lr=self.lr, betas=(self.beta1, self.beta2), weight_decay=self.weight_decay)


class AdamW(Part):
    name: Literal["adamw"] = "adamw"
    lr: Lr = 0.001
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    weight_decay: DecoupledDecay = 0.01

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        from torch.optim import AdamW

        return AdamW(parameters, lr=self.lr, betas=(self.beta1, self.beta2), weight_decay=self.weight_decay)


Optimizer = Annotated[Sgd | Momentum | Nesterov | Adam | AdamW, Field(discriminator="name")]
