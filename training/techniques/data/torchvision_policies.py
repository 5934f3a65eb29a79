"""Policies of torchvision that draw different changes for each image."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from training.contract.policy import Policy

if TYPE_CHECKING:
    from PIL import Image
    from torchvision.transforms import v2

STRENGTHS = 31  # number of strengths of a change in TrivialAugment and RandAugment


class TrivialAugment(Policy):
    """One of 14 changes with a random strength for each image; nothing to tune (Müller & Hutter 2021, figure 2)."""

    backends: ClassVar[tuple[str, ...]] = ("albumentations", "dali")

    policy: Literal["trivial_augment"] = "trivial_augment"

    def build(self, interpolation: str) -> v2.Transform:
        from torchvision.transforms import v2

        return v2.TrivialAugmentWide(interpolation=v2.InterpolationMode(interpolation), fill=0)


class RandAugment(Policy):
    """Several of 14 changes one after the other, all with the same strength (Cubuk et al. 2020, section 3)."""

    backends: ClassVar[tuple[str, ...]] = ("albumentations", "dali")

    policy: Literal["rand_augment"] = "rand_augment"
    num_ops: int = Field(2, ge=1, le=8, description="Number of changes of an image, one after another.", examples=[1])
    magnitude: int = Field(
        9, ge=1, le=STRENGTHS - 1, description=f"Strength of each change, from 0 to {STRENGTHS - 1}.", examples=[20]
    )

    def build(self, interpolation: str) -> v2.Transform:
        from torchvision.transforms import v2

        return v2.RandAugment(
            self.num_ops, self.magnitude, STRENGTHS, interpolation=v2.InterpolationMode(interpolation), fill=0
        )


class AugMix(Policy):
    """Chains of changes, mixed with each other and with the image; without consistency loss (Hendrycks et al. 2020)."""

    policy: Literal["augmix"] = "augmix"
    severity: int = Field(3, ge=1, le=10, description="Strength of each change.", examples=[8])
    mixture_width: int = Field(3, ge=1, le=10, description="Chains, each of one to three changes.", examples=[1])
    alpha: float = Field(
        1.0,
        gt=0,
        description="The chains' shares are drawn from a Dirichlet, that of the image from a Beta distribution.",
        examples=[0.2],
    )

    def build(self, interpolation: str) -> v2.Transform:
        from torchvision.transforms import v2

        return v2.AugMix(
            self.severity,
            self.mixture_width,
            alpha=self.alpha,
            interpolation=v2.InterpolationMode(interpolation),
            fill=0,
        )


class ThreeAugment(Policy):
    """Grey, solarised or blurred, then other colours: for transformers (Touvron et al. 2022, section 4)."""

    policy: Literal["three_augment"] = "three_augment"
    jitter: float = Field(
        0.3,
        ge=0,
        le=1,
        description="Largest relative change of brightness, contrast and saturation, in random order.",
        examples=[0.8],
    )

    def build(self, interpolation: str) -> v2.Transform:
        from torchvision.transforms import v2

        choice = v2.RandomChoice([v2.Grayscale(3), v2.RandomSolarize(128, p=1.0), v2.Lambda(blur_at_random)])
        return v2.Compose([choice, v2.ColorJitter(self.jitter, self.jitter, self.jitter)])


def blur_at_random(image: Image.Image) -> Image.Image:
    """Blur an image as the authors' code does, by 0.1 to 2 pixels."""
    import torch
    from PIL import ImageFilter

    return image.filter(ImageFilter.GaussianBlur(float(torch.empty(()).uniform_(0.1, 2.0))))
