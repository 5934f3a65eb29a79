"""Optimizer: how a gradient becomes a step, each kind as its library defines it (Robbins & Monro 1951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from training.contract.part import Part, RecipeView
from training.techniques.compute.precision import Precision

if TYPE_CHECKING:
    import torch


AutoLr = Literal["auto", "auto/3", "auto*3"]
Lr = Annotated[
    Annotated[float, Field(gt=0)] | AutoLr,
    Field(
        description="Learning rate at the peak of the schedule; auto: found by a range test before training (Smith 2017), or "
        "a third of that, or three times."
    ),
]
WeightDecay = Annotated[float, Field(ge=0, description="L2 penalty, added to the gradient.")]
LrDecay = Annotated[float, Field(ge=0, description="Decoupled decay per unit of lr.")]
MomentumFactor = Annotated[float, Field(gt=0, lt=1, description="Share of the last step kept in the next.")]
Beta1 = Annotated[float, Field(ge=0, lt=1, description="Decay of the mean of gradients.")]
Beta2 = Annotated[float, Field(ge=0, lt=1, description="Decay of the mean of squared gradients.")]


class BaseOptimizer(Part):
    """The fields that every optimizer has, and how it is built."""

    name: str
    lr: Lr
    weight_decay: float

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        """Build it over parameters, or over groups of them."""
        raise NotImplementedError(f"{type(self).__name__}.build")

    def arguments(self) -> dict[str, Any]:
        """The fields by the libraries' names."""
        values = self.model_dump(exclude={"name"})
        if "beta1" in values:
            values["betas"] = values.pop("beta1"), values.pop("beta2")
        return values


class Sgd(BaseOptimizer):
    """Plain stochastic gradient descent (Robbins & Monro 1951)."""

    interactions: ClassVar[str] = (
        "The best learning rate differs by factors of hundreds between kinds, so search each in a domain of its own; it "
        "moves with the effective batch too. weight_decay also pulls on norms and biases, unless no_decay spares them."
    )

    name: Literal["sgd"] = "sgd"
    lr: Lr = 0.05
    weight_decay: WeightDecay = 0.0

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        from torch.optim import SGD

        return SGD(parameters, **self.arguments())


class Momentum(BaseOptimizer):
    """Steps go on in the direction of those before (Sutskever et al. 2013, section 2)."""

    name: Literal["momentum"] = "momentum"
    lr: Lr = 0.05
    momentum: MomentumFactor = 0.9
    weight_decay: WeightDecay = 0.0

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        from torch.optim import SGD

        return SGD(parameters, **self.arguments())


class Nesterov(BaseOptimizer):
    """Momentum with the gradient of where it leads (Sutskever et al. 2013, section 2)."""

    name: Literal["nesterov"] = "nesterov"
    lr: Lr = 0.05
    momentum: MomentumFactor = 0.9
    weight_decay: WeightDecay = 0.0

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        from torch.optim import SGD

        return SGD(parameters, nesterov=True, **self.arguments())


class Adagrad(BaseOptimizer):
    """Each weight's rate falls with the sum of its squared gradients (Duchi et al. 2011)."""

    name: Literal["adagrad"] = "adagrad"
    lr: Lr = 0.01
    weight_decay: WeightDecay = 0.0

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        from torch.optim import Adagrad

        return Adagrad(parameters, **self.arguments())


class RmsProp(BaseOptimizer):
    """Each weight's gradient over the root of its recent mean square (Hinton 2012, lecture 6)."""

    name: Literal["rmsprop"] = "rmsprop"
    lr: Lr = 0.001
    alpha: Beta2 = 0.99
    momentum: float = Field(0.0, ge=0, lt=1, description="Share of the last step kept in the next.")
    weight_decay: WeightDecay = 0.0

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        from torch.optim import RMSprop

        return RMSprop(parameters, **self.arguments())


class Adam(BaseOptimizer):
    """Mean gradient over the root of the mean square, per weight (Kingma & Ba 2015)."""

    name: Literal["adam"] = "adam"
    lr: Lr = 0.001
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    weight_decay: WeightDecay = 0.0

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        from torch.optim import Adam

        return Adam(parameters, **self.arguments())


class AdamW(BaseOptimizer):
    """Adam with the decay beside the gradient instead of in it (Loshchilov & Hutter 2019)."""

    name: Literal["adamw"] = "adamw"
    lr: Lr = 0.001
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    weight_decay: Annotated[
        LrDecay, Field(gt=0, description="Decoupled decay per unit of lr; without any it is adam.")
    ] = 0.01

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        from torch.optim import AdamW

        return AdamW(parameters, **self.arguments())


class Adafactor(BaseOptimizer):
    """The mean square kept as a row and a column instead of a matrix (Shazeer & Stern 2018)."""

    interactions: ClassVar[str] = "adafactor's steps are relative to the size of the weights they change."

    name: Literal["adafactor"] = "adafactor"
    lr: Lr = 0.01
    beta2_decay: float = Field(-0.8, lt=0, description="The mean of squares forgets 1 - step^beta2_decay.")
    clip: float = Field(1.0, ge=1, description="Largest root mean square of a step, before lr.")
    weight_decay: LrDecay = 0.0

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        from torch.optim import Adafactor

        arguments = self.arguments()
        return Adafactor(parameters, d=arguments.pop("clip"), **arguments)


class Adam8bit(BaseOptimizer):
    """Adam with its two means quantised by blocks to 8 bits; AdamW's decay (Dettmers et al. 2022)."""

    interactions: ClassVar[str] = (
        "adam8bit saves memory where the optimizer's state is much of it: large models with small batches."
    )

    name: Literal["adam8bit"] = "adam8bit"
    lr: Lr = 0.001
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    weight_decay: LrDecay = 0.0

    def build(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        import logging

        from training.process.optional import require

        require("optimizer.name=adam8bit", "bitsandbytes", otherwise="Or use optimizer.name=adam.")
        logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # on parts of it that nobody asked for
        from bitsandbytes.optim import Adam8bit

        return Adam8bit(parameters, **self.arguments())

    def conflict(self, recipe: RecipeView) -> str | None:
        if recipe.part(Precision).mode == "64-true":
            return (
                "optimizer.name=adam8bit knows no float64 weights: set another precision.mode or optimizer.name=adam."
            )
        return None


Optimizer = Annotated[
    Sgd | Momentum | Nesterov | Adagrad | RmsProp | Adam | AdamW | Adafactor | Adam8bit, Field(discriminator="name")
]
