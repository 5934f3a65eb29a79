"""Random crop: another part of each image every time (Szegedy et al. 2015, section 6; He et al. 2016, section 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from training.contract.part import Examples, Part

if TYPE_CHECKING:
    import albumentations as A


class Crop(Part):
    interactions: ClassVar[str] = (
        "It comes first, then flip, then the policy of augmentation, with every backend. Validation images always get the "
        "centre crop of preprocessing.crop. The more a crop removes, the longer the training has to be."
    )

    prepared_fields: ClassVar[tuple[str, ...] | Literal["all"]] = ("name",)

    name: str

    def transforms(self, side: int, interpolation: int) -> list[A.BasicTransform]:
        """Return the transforms of Albumentations in order.

        `side` is that of the model's input, in pixels, and `interpolation` a constant of OpenCV.
        """
        return []


class NoCrop(Crop):
    name: Literal["none"] = "none"


class PaddedCrop(Crop):
    """For small images: the image gets a black border, and a part of the image's size is cut out at a random place."""

    name: Literal["padded"] = "padded"
    padding: float = Field(
        0.125,
        gt=0,
        le=0.5,
        description="Width of the border, as a share of the image's side, at least 1 pixel; 0.125: 4 of 32 pixels.",
        examples=[0.25],
    )

    def border(self, side: int) -> int:
        """Return the width of the border in pixels."""
        return max(1, round(self.padding * side))

    def transforms(self, side: int, interpolation: int) -> list[A.BasicTransform]:
        import albumentations as A

        return [A.Pad(self.border(side), fill=0), A.RandomCrop(side, side)]


class ResizedCrop(Crop):
    """For photographs: a rectangle of random area and aspect ratio, from the whole image, resized to the input."""

    examples: ClassVar[Examples] = ({"random_crop": {"name": "resized", "min_area": 0.5}},)
    name: Literal["resized"] = "resized"
    min_area: float = Field(0.08, gt=0, le=1, description="Smallest crop, as a share of the image's area.")

    def needed_side(self, side: int) -> int:
        """Return the shorter side of an image, in pixels, from which even the smallest crop is not enlarged."""
        return round(side / self.min_area**0.5)

    def transforms(self, side: int, interpolation: int) -> list[A.BasicTransform]:
        import albumentations as A
        import cv2

        # Area averaging avoids aliases when a crop shrinks, with any interpolation except nearest.
        shrink: Literal["image"] | None = None if interpolation == cv2.INTER_NEAREST else "image"
        scale = (self.min_area, 1.0)
        return [A.RandomResizedCrop((side, side), scale, interpolation=interpolation, area_for_downscale=shrink)]


RandomCrop = Annotated[NoCrop | PaddedCrop | ResizedCrop, Field(discriminator="name")]
