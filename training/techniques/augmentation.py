"""Augmentation: random changes to training images that keep the label (Krizhevsky et al. 2012, section 4.1)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from training.techniques.base import Part


class NoAugmentation(Part):
    policy: Literal["none"] = "none"


class SmallImages(Part):
    """For images of about 32×32 whose content fills the frame: small shifts, turns and changes of colour."""

    policy: Literal["small_images"] = "small_images"
    translate: float = Field(0.05, ge=0, le=1, description="Largest shift, as a share of the side.")
    scale: float = Field(0.05, ge=0, lt=1, description="Largest enlargement: 0.05 draws from 1.0 to 1.05.")
    rotate: float = Field(15.0, ge=0, le=180, description="Largest turn either way, in degrees.")
    rgb_shift: float = Field(15.0, ge=0, le=255, description="Largest shift of each colour, of 255.")
    brightness: float = Field(0.2, ge=0, le=1, description="Largest relative change of brightness.")
    contrast: float = Field(0.2, ge=0, le=1, description="Largest relative change of contrast.")
    probability: float = Field(0.5, gt=0, le=1, description="Of each of the three groups of changes.")


class CropFlip(Part):
    """For photographs: a random resized crop (Szegedy et al. 2015, section 6) and a horizontal flip."""

    policy: Literal["crop_flip"] = "crop_flip"
    min_area: float = Field(0.08, gt=0, le=1, description="Smallest crop, as a share of the image's area.")
    flip: float = Field(0.5, ge=0, le=1, description="Probability of a horizontal flip.")


Augmentation = Annotated[NoAugmentation | SmallImages | CropFlip, Field(discriminator="policy")]
