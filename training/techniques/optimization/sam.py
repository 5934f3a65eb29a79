"""SAM: step along the gradient at the worst point nearby (Foret et al. 2021, equations 2, 3; Kwon et al. 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView

if TYPE_CHECKING:
    from torch import Tensor

TINY = 1e-12  # added to the norm of the gradient, which can be zero
ETA = 0.01  # added to the size of each weight, so that a weight of zero moves too (Kwon et al. 2021, section 5.1)


class NoSam(Technique):
    name: Literal["none"] = "none"


class _Nearby(Technique):
    """The interactions and conflicts of all rules that need a second pass."""

    interactions: ClassVar[str] = (
        "Each batch has two forward and backward passes, so a step takes twice the time: compare at equal seconds. Each "
        "forward pass finds its own point, also with accumulation, so batch_size matters more than the effective batch. Mixing "
        "draws once for both passes, and BatchNorm's statistics are those of the first. It fits clipping, bf16-mixed and "
        "every optimizer. asam needs a rho about ten times that of sam."
    )

    name: str
    rho: float

    @property
    def is_on(self) -> bool:
        return True

    def apply(self, setup: TrainingSetup) -> None:
        setup.find_worst_point = self.find_worst_point

    def find_worst_point(self, names: list[str], weights: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """Return the change of each weight; their joint norm is set by rho."""
        raise NotImplementedError(f"{type(self).__name__}.find_worst_point")

    def conflict(self, recipe: RecipeView) -> str | None:
        # In the order in which a space draws the fields, because it calls this before all of them are drawn.
        if (devices := recipe.data_parallel.devices) > 1:
            return f"sam.name={self.name} works on one device, not on data_parallel.devices={devices}: set 1."
        if recipe.precision.mode == "16-mixed":
            return f"sam.name={self.name} needs an unscaled gradient: set precision.mode=bf16-mixed or 32-true."
        if recipe.compilation.is_on:
            return f"sam.name={self.name} changes weights between two passes: set compilation.backend=none."
        return None


class Sam(_Nearby):
    """Sharpness-aware minimisation: the worst point on a sphere around the weights."""

    name: Literal["sam"] = "sam"
    rho: float = Field(0.05, gt=0, description="Distance of the point from the weights.", examples=[0.2])

    def find_worst_point(self, names: list[str], weights: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        import torch

        norm = torch.nn.utils.get_total_norm(gradients)
        return [gradient * (self.rho / (norm + TINY)) for gradient in gradients]


class Asam(_Nearby):
    """Adaptive SAM: distances are relative to the size of each weight, so scaling a layer without bias changes nothing."""

    name: Literal["asam"] = "asam"
    rho: float = Field(
        0.5, gt=0, description="Distance of the point from the weights, relative to their sizes.", examples=[1.0]
    )

    def find_worst_point(self, names: list[str], weights: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        import torch

        # As in the authors' code: biases, class tokens and position embeddings are not scaled by their sizes.
        sizes = {n: weight.abs() + ETA for n, weight in zip(names, weights, strict=True) if "weight" in n}
        scaled = [sizes[n] * g if n in sizes else g for n, g in zip(names, gradients, strict=True)]
        step = self.rho / (torch.nn.utils.get_total_norm(scaled) + TINY)
        return [(sizes[n] * g if n in sizes else g) * step for n, g in zip(names, scaled, strict=True)]


AnySam = Annotated[NoSam | Sam | Asam, Field(discriminator="name")]
