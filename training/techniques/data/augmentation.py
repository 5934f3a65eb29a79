"""Augmentation: random changes to training images that keep the label (Krizhevsky et al. 2012, section 4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from training.contract.part import Part, RecipeView
from training.techniques.data.flip import Flip
from training.techniques.data.random_crop import Crop, NoCrop, ResizedCrop

if TYPE_CHECKING:
    import albumentations as A
    from torchvision.transforms import v2

Backend = Literal["auto", "albumentations", "tensor", "dali"]
STRENGTHS = 31  # number of strengths of a change in TrivialAugment and RandAugment


class _Policy(Part):
    interactions: ClassVar[str] = (
        "It comes after random_crop and flip, which most policies of the literature assume, and before the techniques that mix "
        "images; the stronger those are, the weaker it can be. Augmented images take longer to learn, so the gain shows late, "
        "and is small if only the head trains."
    )

    policy: str
    backend: Backend = Field(
        "auto",
        description="How images are loaded. albumentations: one by one, in loader workers (trivial_augment and rand_augment "
        "come from torchvision). tensor: whole batches of decoded images, on the training device. dali: NVIDIA DALI, which "
        "also decodes JPEG files. auto: chosen by the data and the device.",
    )


class NoAugmentation(_Policy):
    policy: Literal["none"] = "none"


class SmallImages(_Policy):
    """For images of about 32×32 whose content fills the frame: small shifts, rotations and changes of colour."""

    policy: Literal["small_images"] = "small_images"
    translate: float = Field(0.05, ge=0, le=1, description="Largest shift, as a share of the image's side.")
    scale: float = Field(0.05, ge=0, lt=1, description="Largest enlargement: 0.05 means a factor from 1.0 to 1.05.")
    rotate: float = Field(15.0, ge=0, le=180, description="Largest rotation in both directions, in degrees.")
    rgb_shift: float = Field(15.0, ge=0, le=255, description="Largest shift of each colour, on a scale of 255.")
    brightness: float = Field(0.2, ge=0, le=1, description="Largest relative change of brightness.")
    contrast: float = Field(0.2, ge=0, le=1, description="Largest relative change of contrast.")
    probability: float = Field(0.5, gt=0, le=1, description="Probability of each of the three groups of changes.")

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


class _OneOfMany(_Policy):
    """A change for each image, drawn from a list, so a batch cannot be changed as a whole."""

    def build(self, interpolation: str) -> v2.Transform:
        """Return torchvision's transform for a Pillow image."""
        raise NotImplementedError(f"{type(self).__name__}.build")

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.backend != "tensor":
            return None
        return (
            f"augmentation.backend=tensor cannot do policy={self.policy}, which changes each image in a different "
            "way: set backend to albumentations, dali or auto."
        )


class TrivialAugment(_OneOfMany):
    """One of 14 changes with a random strength for each image; nothing to tune (Müller & Hutter 2021, figure 2)."""

    policy: Literal["trivial_augment"] = "trivial_augment"

    def build(self, interpolation: str) -> v2.Transform:
        from torchvision.transforms import v2

        return v2.TrivialAugmentWide(interpolation=interpolation, fill=0)


class RandAugment(_OneOfMany):
    """Several of 14 changes one after the other, all with the same strength (Cubuk et al. 2020, section 3)."""

    policy: Literal["rand_augment"] = "rand_augment"
    num_ops: int = Field(2, ge=1, le=8, description="Number of changes of each image, one after the other.")
    magnitude: int = Field(
        9, ge=1, le=STRENGTHS - 1, description=f"Strength of each change, from 0 to {STRENGTHS - 1}."
    )

    def build(self, interpolation: str) -> v2.Transform:
        from torchvision.transforms import v2

        return v2.RandAugment(self.num_ops, self.magnitude, STRENGTHS, interpolation=interpolation, fill=0)


class FromFile(_Policy):
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


class CropFlip(_Policy):
    """The earlier form of random_crop and flip. It stays readable: a recipe that has it gets those two in its place."""

    policy: Literal["crop_flip"] = "crop_flip"
    min_area: float = Field(0.08, gt=0, le=1, description="Value of random_crop.min_area.")
    flip: float = Field(0.5, ge=0, le=1, description="Value of flip.probability.")

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


Policy = NoAugmentation | SmallImages | TrivialAugment | RandAugment | FromFile | CropFlip
Augmentation = Annotated[Policy, Field(discriminator="policy")]
