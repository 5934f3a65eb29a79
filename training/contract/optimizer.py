"""Optimizer: the rule from gradients to steps, as each library defines it (Robbins & Monro 1951)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from training.contract.part import CODE, Part

if TYPE_CHECKING:
    import torch
    from lightning.pytorch import Callback
    from torch.optim.optimizer import ParamsT


AutoLr = Literal["auto", "auto/3", "auto*3"]
Lr = Annotated[
    Annotated[float, Field(gt=0)] | AutoLr,
    Field(
        description="Learning rate at the peak of the schedule; auto: found by a range test before training (Smith 2017); "
        "auto/3 and auto*3: a third of it, or three times as much.",
        examples=[0.02],
    ),
]
WeightDecay = Annotated[float, Field(ge=0, description="L2 penalty, added to the gradient.", examples=[0.1])]
LrDecay = Annotated[float, Field(ge=0, description="Decoupled weight decay per unit of lr.", examples=[0.1])]
MomentumFactor = Annotated[
    float, Field(gt=0, lt=1, description="Share of the last step that is added to the next.", examples=[0.5])
]
Beta1 = Annotated[float, Field(ge=0, lt=1, description="Decay rate of the mean of gradients.", examples=[0.5])]
Beta2 = Annotated[float, Field(ge=0, lt=1, description="Decay rate of the mean of squared gradients.", examples=[0.5])]


class Optimizer(Part):
    """The fields that every optimizer has."""

    interactions: ClassVar[str] = (
        "The best learning rate differs by factors of hundreds between optimizers, so give each its own domain; it also "
        "depends on the effective batch. weight_decay applies to norms and biases too, unless no_decay is on. For lr auto, a "
        "range test takes half of an epoch's optimizer steps, but at least 40 and at most 70; the metric finder_seconds shows "
        "its time."
    )

    has_off: ClassVar[bool] = False

    name: str
    lr: Lr
    weight_decay: float

    def build(self, parameters: ParamsT) -> torch.optim.Optimizer:
        """Build the optimizer for parameters or groups of parameters."""
        raise NotImplementedError(f"{type(self).__name__}.build")

    def callbacks(self) -> list[Callback]:
        """Return what the optimizer does during the training beside its steps."""
        return []

    def options_for(self, parameter: torch.Tensor, *, starts_at_zero: bool, is_in_head: bool) -> dict[str, object]:
        """Return this optimizer's own options for a parameter; a vector never counts as one that starts at zero."""
        return {}

    def arguments(self) -> dict[str, Any]:
        """Return the fields by the names that the libraries use."""
        values = self.model_dump(exclude={"name", CODE})
        if "beta1" in values:
            values["betas"] = tuple(values.pop(name) for name in ("beta1", "beta2", "beta3") if name in values)
        return values
