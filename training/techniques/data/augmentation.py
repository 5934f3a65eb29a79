"""Augmentation: random changes to training images that keep the label (Krizhevsky et al. 2012, section 4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from training.contract.part import Part, RecipeView
from training.techniques.data.flip import Flip
from training.techniques.data.one_of_many import AugMix, RandAugment, TrivialAugment
from training.techniques.data.policy import BasePolicy
from training.techniques.data.random_crop import Crop, NoCrop, ResizedCrop

if TYPE_CHECKING:
    import albumentations as A


class NoAugmentation(BasePolicy):
    policy: Literal["none"] = "none"


class SmallImages(BasePolicy):
    """For images of about 32×32 whose content fills the frame: small shifts, rotations and changes of colour."""

    policy: Literal["small_images"] = "small_images"
    translate: float = Field(
        0.05, ge=0, le=1, description="Largest shift, as a share of the image's side.", examples=[0.3]
    )
    scale: float = Field(
        0.05, ge=0, lt=1, description="Largest enlargement: 0.05 means a factor from 1.0 to 1.05.", examples=[0.4]
    )
    rotate: float = Field(
        15.0, ge=0, le=180, description="Largest rotation in both directions, in degrees.", examples=[45.0]
    )
    rgb_shift: float = Field(
        15.0, ge=0, le=255, description="Largest shift of each colour, on a scale of 255.", examples=[60.0]
    )
    brightness: float = Field(0.2, ge=0, le=1, description="Largest relative change of brightness.", examples=[0.5])
    contrast: float = Field(0.2, ge=0, le=1, description="Largest relative change of contrast.", examples=[0.5])
    probability: float = Field(
        0.5, gt=0, le=1, description="Probability of each of the three groups of changes.", examples=[0.9]
    )

    def transforms(self, interpolation: int) -> list[A.BasicTransform]:
        """Return the transforms of Albumentations in order, without those that would change nothing.

        Args:
            interpolation: A constant of OpenCV.
        """
        import albumentations as A

        groups: list[A.BasicTransform] = []
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
            f"augmentation.policy=small_images with {', '.join(f'{name}=0' for name in strengths)} changes nothing: "
            "raise one of them or set augmentation={policy: none}."
        )


class FromFile(BasePolicy):
    """A pipeline that Albumentations saved as JSON or YAML; it gets the images before they are normalised."""

    policy: Literal["file"] = "file"
    path: str | None = Field(None, min_length=1, description="Path of a file that albumentations.save wrote.")
    pipeline: str | None = Field(
        None,
        description="Content of the file as JSON; filled in at the start, so that the recipe no longer needs the file.",
    )

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.path is None and self.pipeline is None:
            return "augmentation.policy=file needs augmentation.path, a file that albumentations.save wrote."
        if self.backend in ("tensor", "dali"):
            return (
                f"augmentation.backend={self.backend} cannot run policy=file, which is a pipeline of Albumentations: set "
                "backend to albumentations or auto."
            )
        return None


class CropFlip(BasePolicy):
    """The earlier form of random_crop and flip. It stays readable: a recipe that has it gets those two in its place."""

    policy: Literal["crop_flip"] = "crop_flip"
    min_area: float = Field(0.08, gt=0, le=1, description="Value of random_crop.min_area.", examples=[0.5])
    flip: float = Field(0.5, ge=0, le=1, description="Value of flip.probability.", examples=[1.0])

    def conflict(self, recipe: RecipeView) -> str | None:
        if recipe.part(Crop) == NoCrop() and recipe.part(Flip) == Flip():
            return None
        return (
            "augmentation.policy=crop_flip is the earlier form of random_crop and flip, and one of these is set too: write "
            f"random_crop={{name: resized, min_area: {self.min_area:g}}} and flip={{probability: {self.flip:g}}} in its place."
        )

    def successors(self) -> dict[str, Part]:
        """Return the parts of a recipe that mean the same, by field."""
        return {
            "random_crop": ResizedCrop(min_area=self.min_area),
            "flip": Flip(probability=self.flip),
            "augmentation": NoAugmentation(backend=self.backend),
        }


Policy = NoAugmentation | SmallImages | TrivialAugment | RandAugment | AugMix | FromFile | CropFlip
Augmentation = Annotated[Policy, Field(discriminator="policy")]
