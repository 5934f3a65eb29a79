"""Augmentation: no policy, or one for small images whose content fills the frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from training.contract.policy import ALL_BACKENDS, Policy
from training.contract.view import RecipeView

if TYPE_CHECKING:
    import albumentations as A


class NoAugmentation(Policy):
    backends: ClassVar[tuple[str, ...]] = ALL_BACKENDS

    policy: Literal["none"] = "none"


class AffineColour(Policy):
    """For images of about 32×32 whose content fills the frame: small shifts, rotations and changes of colour."""

    backends: ClassVar[tuple[str, ...]] = ALL_BACKENDS

    policy: Literal["affine_colour"] = "affine_colour"
    translate: float = Field(0.05, ge=0, le=1, description="Largest shift, as a share of the side.", examples=[0.3])
    scale: float = Field(
        0.05, ge=0, lt=1, description="Largest enlargement: 0.05 means a factor from 1.0 to 1.05.", examples=[0.4]
    )
    rotate: float = Field(15.0, ge=0, le=180, description="Largest rotation both ways, in degrees.", examples=[45.0])
    rgb_shift: float = Field(
        15.0, ge=0, le=255, description="Largest shift of each colour, on a scale of 255.", examples=[60.0]
    )
    brightness: float = Field(0.2, ge=0, le=1, description="Largest relative change of brightness.", examples=[0.5])
    contrast: float = Field(0.2, ge=0, le=1, description="Largest relative change of contrast.", examples=[0.5])
    probability: float = Field(
        0.5, gt=0, le=1, description="Probability of each of the three groups of changes.", examples=[0.9]
    )

    def transforms(self, interpolation: int) -> list[A.BasicTransform | A.Compose]:
        """Leave out the transforms that would change nothing."""
        import albumentations as A

        groups: list[A.BasicTransform | A.Compose] = []
        if self.translate or self.scale or self.rotate:
            affine = A.Affine(
                # Every strength is a range, because a single number is a fixed strength.
                translate_percent=(-self.translate, self.translate),
                scale=(1.0, 1.0 + self.scale),
                rotate=(-self.rotate, self.rotate),
                keep_ratio=True,
                interpolation=interpolation,
                p=self.probability,
            )
            groups.append(affine)
        if self.rgb_shift:
            # The limits are shares of 255: Albumentations treats limits of at most 1 as shares for every image type.
            limits = (-self.rgb_shift / 255, self.rgb_shift / 255)
            groups.append(A.RGBShift(limits, limits, limits, p=self.probability))
        if self.brightness or self.contrast:
            brightness, contrast = (-self.brightness, self.brightness), (-self.contrast, self.contrast)
            groups.append(A.RandomBrightnessContrast(brightness, contrast, p=self.probability))
        return groups

    def conflict(self, recipe: RecipeView) -> str | None:
        strengths = ("translate", "scale", "rotate", "rgb_shift", "brightness", "contrast")
        if any(getattr(self, name) for name in strengths):
            return None
        return (
            f"augmentation.policy=affine_colour with {', '.join(f'{name}=0' for name in strengths)} changes nothing: "
            "raise one of them or set augmentation={policy: none}."
        )
