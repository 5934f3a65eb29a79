"""Optimizers of timm, which builds them by their name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from training.contract.optimizer import Beta1, Beta2, Lr, LrDecay, MomentumFactor, Optimizer

if TYPE_CHECKING:
    import torch
    from torch.optim.optimizer import ParamsT


class _OfTimm(Optimizer):
    def build(self, parameters: ParamsT) -> torch.optim.Optimizer:
        from timm.optim import get_optimizer_class

        return get_optimizer_class(self.name, bind_defaults=False)(parameters, **self.arguments())


class NAdamW(_OfTimm):
    """AdamW with Nesterov's momentum (Dozat 2016)."""

    name: Literal["nadamw"] = "nadamw"
    lr: Lr = 0.001
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    weight_decay: LrDecay = 0.01


class Lion(_OfTimm):
    """Move each weight by lr, in the direction of the sign of the mean gradient (Chen et al. 2023, algorithm 2)."""

    interactions: ClassVar[str] = (
        "Every step of lion has the full size, so its lr is a third to a tenth of that of adamw, and its weight_decay as many "
        "times larger. It stores one mean instead of two, and suits large batches."
    )

    name: Literal["lion"] = "lion"
    lr: Lr = 0.0003
    beta1: Beta1 = 0.9
    beta2: Annotated[
        float, Field(ge=0, lt=1, description="Decay rate of the stored mean of gradients.", examples=[0.5])
    ] = 0.99
    weight_decay: LrDecay = 0.0


class Lamb(_OfTimm):
    """Adam whose step for each tensor is as long as lr times the tensor (You et al. 2020, algorithm 2)."""

    interactions: ClassVar[str] = (
        "lamb is made for batches of thousands of images. It does not bound the gradient itself, as timm's does by default: "
        "gradient_clipping does. With no_decay, the parameters without decay take plain steps of adam."
    )

    name: Literal["lamb"] = "lamb"
    lr: Lr = 0.005
    beta1: Beta1 = 0.9
    beta2: Beta2 = 0.999
    weight_decay: float = Field(
        0.01,
        gt=0,
        description="Share of the weights in the direction of a step; with 0 it would be adam.",
        examples=[0.1],
    )

    def arguments(self) -> dict[str, object]:
        return {**super().arguments(), "max_grad_norm": None}


class Adan(_OfTimm):
    """Adam with Nesterov's momentum from the difference of two gradients (Xie et al. 2024, algorithm 1)."""

    interactions: ClassVar[str] = "adan stores four tensors for each weight, adamw two."

    name: Literal["adan"] = "adan"
    lr: Lr = 0.001
    beta1: Beta1 = 0.98
    beta2: Annotated[
        float, Field(ge=0, lt=1, description="Decay rate of the mean difference of two gradients.", examples=[0.5])
    ] = 0.92
    beta3: Annotated[float, Field(ge=0, lt=1, description="Decay rate of the mean of squares.", examples=[0.5])] = 0.99
    weight_decay: LrDecay = 0.0


class Muon(_OfTimm):
    """Momentum whose step for each matrix is made orthogonal (Jordan et al. 2024; steps as in Liu et al. 2025)."""

    interactions: ClassVar[str] = (
        "muon steps matrices and kernels; the head and all vectors take steps of nadamw at the same lr. Steps are "
        "scaled to the size of those of adamw (Liu et al. 2025, section 2.2), so both have the same domain of lr. The products "
        "take time, most of all with small batches."
    )

    name: Literal["muon"] = "muon"
    lr: Lr = 0.003
    momentum: MomentumFactor = 0.95
    weight_decay: LrDecay = 0.0

    def arguments(self) -> dict[str, object]:
        return {**super().arguments(), "nesterov": True}

    def options_for(self, parameter: torch.Tensor, *, starts_at_zero: bool, is_in_head: bool) -> dict[str, object]:
        return {"use_fallback": True} if is_in_head else {}
