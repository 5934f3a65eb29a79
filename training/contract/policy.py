"""Augmentation: random changes to training images that keep the label (Krizhevsky et al. 2012, section 4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field

from training.contract.part import Part
from training.contract.view import RecipeView

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

    prepared_fields: ClassVar[tuple[str, ...] | Literal["all"]] = ("policy", "backend", "path", "pipeline")
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
