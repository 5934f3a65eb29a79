"""Policies of torchvision that draw different changes for each image."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from training.contract.part import RecipeView
from training.techniques.data.policy import BasePolicy

if TYPE_CHECKING:
    from torchvision.transforms import v2

STRENGTHS = 31  # number of strengths of a change in TrivialAugment and RandAugment


class OneOfMany(BasePolicy):
    """A change for each image, drawn from a list, so a batch cannot be changed as a whole."""

    backends: ClassVar[tuple[str, ...]] = ("albumentations", "dali")  # those that have the policy

    def build(self, interpolation: str) -> v2.Transform:
        """Return torchvision's transform for a Pillow image."""
        raise NotImplementedError(f"{type(self).__name__}.build")

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.backend in ("auto", *self.backends):
            return None
        return (
            f"augmentation.backend={self.backend} cannot do policy={self.policy}, which changes each image in a different "
            f"way: set backend to {', '.join(self.backends)} or auto."
        )


class TrivialAugment(OneOfMany):
    """One of 14 changes with a random strength for each image; nothing to tune (Müller & Hutter 2021, figure 2)."""

    policy: Literal["trivial_augment"] = "trivial_augment"

    def build(self, interpolation: str) -> v2.Transform:
        from torchvision.transforms import v2

        return v2.TrivialAugmentWide(interpolation=interpolation, fill=0)


class RandAugment(OneOfMany):
    """Several of 14 changes one after the other, all with the same strength (Cubuk et al. 2020, section 3)."""

    policy: Literal["rand_augment"] = "rand_augment"
    num_ops: int = Field(
        2, ge=1, le=8, description="Number of changes of each image, one after the other.", examples=[1]
    )
    magnitude: int = Field(
        9, ge=1, le=STRENGTHS - 1, description=f"Strength of each change, from 0 to {STRENGTHS - 1}.", examples=[20]
    )

    def build(self, interpolation: str) -> v2.Transform:
        from torchvision.transforms import v2

        return v2.RandAugment(self.num_ops, self.magnitude, STRENGTHS, interpolation=interpolation, fill=0)


class AugMix(OneOfMany):
    """Chains of changes, mixed with each other and with the image; without consistency loss (Hendrycks et al. 2020)."""

    backends: ClassVar[tuple[str, ...]] = ("albumentations",)

    policy: Literal["augmix"] = "augmix"
    severity: int = Field(3, ge=1, le=10, description="Strength of each change.", examples=[8])
    mixture_width: int = Field(
        3, ge=1, le=10, description="Number of chains; each has one to three changes.", examples=[1]
    )
    alpha: float = Field(
        1.0,
        gt=0,
        description="The chains' shares are drawn from a Dirichlet, that of the image from a Beta distribution.",
        examples=[0.2],
    )

    def build(self, interpolation: str) -> v2.Transform:
        from torchvision.transforms import v2

        return v2.AugMix(self.severity, self.mixture_width, alpha=self.alpha, interpolation=interpolation, fill=0)
