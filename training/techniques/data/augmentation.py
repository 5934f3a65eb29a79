"""Augmentation: random changes to training images that keep the label (Krizhevsky et al. 2012, section 4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field

from training.contract.part import Part, RecipeView

if TYPE_CHECKING:
    import albumentations as A
    from torchvision.transforms import v2

ALL_BACKENDS = ("albumentations", "tensor", "dali")


class Policy(Part):
    """The changes of each image, after its crop and flip: those of `transforms`, then those of `build`."""

    interactions: ClassVar[str] = (
        "It comes after random_crop and flip, which most policies of the literature assume, and before the techniques that mix "
        "images; the stronger those are, the weaker it can be. Augmented images take longer to learn, so the gain shows late, "
        "and is small if only the head trains."
    )

    backends: ClassVar[tuple[str, ...]] = ("albumentations",)  # those that have the policy

    policy: str
    backend: Literal["auto", "albumentations", "tensor", "dali"] = Field(
        "auto",
        description="How images are loaded. albumentations: one by one, in loader workers (trivial_augment, rand_augment, "
        "augmix and three_augment come from torchvision). tensor: whole batches of decoded images, on the training device. "
        "dali: NVIDIA DALI, which also decodes JPEG files. auto: chosen by the data and the device.",
        examples=[*ALL_BACKENDS],
    )

    def transforms(self, interpolation: int) -> list[A.BasicTransform | A.Compose]:
        """Return transforms of Albumentations, in order, for uint8 images (side, side, 3).

        `interpolation` is a constant of OpenCV.
        """
        return []

    def build(self, interpolation: str) -> v2.Transform | None:
        """Return a transform of torchvision for a Pillow image."""
        return None

    def resolve(self, image_size: int) -> Self:
        """Return the policy as it can be used on any machine; a training calls this before it starts."""
        return self

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.backend in ("auto", *self.backends):
            return None
        return (
            f"augmentation.backend={self.backend} cannot do policy={self.policy}, which changes images one by one: set "
            f"backend to {', '.join(self.backends)} or auto."
        )


class NoAugmentation(Policy):
    backends: ClassVar[tuple[str, ...]] = ALL_BACKENDS

    policy: Literal["none"] = "none"


class AffineColour(Policy):
    """For images of about 32×32 whose content fills the frame: small shifts, rotations and changes of colour."""

    backends: ClassVar[tuple[str, ...]] = ALL_BACKENDS

    policy: Literal["affine_colour"] = "affine_colour"
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
