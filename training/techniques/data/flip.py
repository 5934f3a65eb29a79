"""Flip: mirror training images from left to right (Krizhevsky et al. 2012, section 4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from training.contract.part import Examples, Part

if TYPE_CHECKING:
    import albumentations as A


class Flip(Part):
    interactions: ClassVar[str] = (
        "It comes after random_crop and before the policy of augmentation, with every backend. It suits photographs. Leave it "
        "off if a mirrored image can have another label or does not occur, as with digits, text and road signs."
    )
    examples: ClassVar[Examples] = ({"flip": {"probability": 0.5}},)

    probability: float = Field(0.0, ge=0, le=1, description="Probability that an image is mirrored.")

    def transforms(self) -> list[A.BasicTransform]:
        """Return the transforms of Albumentations in order."""
        if self.probability == 0:
            return []
        import albumentations as A

        return [A.HorizontalFlip(p=self.probability)]
