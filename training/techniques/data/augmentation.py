"""Augmentation: random changes to training images that keep the label (Krizhevsky et al. 2012, section 4.1)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from training.contract.part import Part, RecipeView

Backend = Literal["auto", "albumentations", "tensor", "dali"]
STRENGTHS = 31  # of a change in TrivialAugment and RandAugment


class _Policy(Part):
    interactions: ClassVar[str] = (
        "It comes before the techniques that mix images, and the stronger those are, the weaker it may be. Harder images "
        "learn more slowly: the gain shows late, and little of it where only the head trains."
    )

    policy: str
    backend: Backend = Field(
        "auto",
        description="Who feeds the images. albumentations: one by one, in loader workers (the changes of trivial_augment and "
        "rand_augment are torchvision's). tensor: whole batches of decoded "
        "images, on the training device. dali: NVIDIA DALI, which decodes JPEG files too. auto: by the data and the device.",
    )


class NoAugmentation(_Policy):
    policy: Literal["none"] = "none"

    def transforms(self, side: int, interpolation: int) -> list[Any]:
        """Albumentations' transforms, in order; a group that would change nothing is left out."""
        return []


class SmallImages(_Policy):
    """For images of about 32×32 whose content fills the frame: small shifts, turns and changes of colour."""

    policy: Literal["small_images"] = "small_images"
    translate: float = Field(0.05, ge=0, le=1, description="Largest shift, as a share of the side.")
    scale: float = Field(0.05, ge=0, lt=1, description="Largest enlargement: 0.05 draws from 1.0 to 1.05.")
    rotate: float = Field(15.0, ge=0, le=180, description="Largest turn either way, in degrees.")
    rgb_shift: float = Field(15.0, ge=0, le=255, description="Largest shift of each colour, of 255.")
    brightness: float = Field(0.2, ge=0, le=1, description="Largest relative change of brightness.")
    contrast: float = Field(0.2, ge=0, le=1, description="Largest relative change of contrast.")
    probability: float = Field(0.5, gt=0, le=1, description="Of each of the three groups of changes.")

    def transforms(self, side: int, interpolation: int) -> list[Any]:
        import albumentations as A

        groups: list[Any] = []
        if self.translate or self.scale or self.rotate:
            affine = A.Affine(
                # Every strength is a range: a single number means always that much.
                translate_percent=(-self.translate, self.translate),
                scale=(1.0, 1.0 + self.scale),
                rotate=(-self.rotate, self.rotate),
                keep_ratio=True,
                interpolation=interpolation,
                p=self.probability,
            )
            groups.append(affine)
        if self.rgb_shift:
            # As shares: a limit of 1 or less is taken for one, whatever the image's type.
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


class CropFlip(_Policy):
    """For photographs: a random resized crop (Szegedy et al. 2015, section 6) and a horizontal flip."""

    policy: Literal["crop_flip"] = "crop_flip"
    min_area: float = Field(0.08, gt=0, le=1, description="Smallest crop, as a share of the image's area.")
    flip: float = Field(0.5, ge=0, le=1, description="Probability of a horizontal flip.")

    def transforms(self, side: int, interpolation: int) -> list[Any]:
        import albumentations as A
        import cv2

        # Shrinking by area averaging leaves no aliases, whatever the interpolation; nearest is taken at its word.
        shrink: Any = None if interpolation == cv2.INTER_NEAREST else "image"
        crop = A.RandomResizedCrop(
            (side, side), scale=(self.min_area, 1.0), interpolation=interpolation, area_for_downscale=shrink
        )
        return [crop, A.HorizontalFlip(p=self.flip)] if self.flip else [crop]


class _OneOfMany(_Policy):
    """Changes that are drawn from a list, another one for each image: nothing that a batch could be given as a whole."""

    def build(self, interpolation: str) -> Any:
        """torchvision's transform of a Pillow image."""
        raise NotImplementedError(f"{type(self).__name__}.build")

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.backend != "tensor":
            return None
        return (
            f"augmentation.backend=tensor cannot do policy={self.policy}, which changes each image in another "
            "way: set backend to albumentations, dali or auto."
        )


class TrivialAugment(_OneOfMany):
    """One of 14 changes by a random strength, drawn for each image: nothing to tune (Müller & Hutter 2021, figure 2)."""

    policy: Literal["trivial_augment"] = "trivial_augment"

    def build(self, interpolation: str) -> Any:
        from torchvision.transforms import v2

        return v2.TrivialAugmentWide(interpolation=interpolation, fill=0)


class RandAugment(_OneOfMany):
    """Some of 14 changes in a row, all of one strength (Cubuk et al. 2020, section 3)."""

    policy: Literal["rand_augment"] = "rand_augment"
    num_ops: int = Field(2, ge=1, le=8, description="Changes of each image, one after the other.")
    magnitude: int = Field(9, ge=1, le=STRENGTHS - 1, description=f"Strength of each, of {STRENGTHS - 1}.")

    def build(self, interpolation: str) -> Any:
        from torchvision.transforms import v2

        return v2.RandAugment(self.num_ops, self.magnitude, STRENGTHS, interpolation=interpolation, fill=0)


class FromFile(_Policy):
    """Any pipeline that Albumentations wrote, as JSON or YAML; it gets the images before they are normalised."""

    policy: Literal["file"] = "file"
    path: str | None = Field(None, min_length=1, description="The file: what albumentations.save wrote.")
    pipeline: str | None = Field(
        None,
        description="What the file held, as JSON: filled in at the start, so that a recipe is complete without it.",
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


Policy = NoAugmentation | SmallImages | CropFlip | TrivialAugment | RandAugment | FromFile
Augmentation = Annotated[Policy, Field(discriminator="policy")]
