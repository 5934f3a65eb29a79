"""What every optimizer of a recipe has: a learning rate, weight decay, and how it is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from training.contract.part import Part

if TYPE_CHECKING:
    import torch
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


class BaseOptimizer(Part):
    """The fields that every optimizer has."""

    name: str
    lr: Lr
    weight_decay: float

    def build(self, parameters: ParamsT) -> torch.optim.Optimizer:
        """Build the optimizer for parameters or groups of parameters."""
        raise NotImplementedError(f"{type(self).__name__}.build")

    def options_for(self, parameter: torch.Tensor, *, starts_at_zero: bool, is_in_head: bool) -> dict[str, Any]:
        """Return this optimizer's own options for a parameter; a vector never counts as one that starts at zero."""
        return {}

    def arguments(self) -> dict[str, Any]:
        """Return the fields by the names that the libraries use."""
        values = self.model_dump(exclude={"name"})
        if "beta1" in values:
            values["betas"] = tuple(values.pop(name) for name in ("beta1", "beta2", "beta3") if name in values)
        return values
