"""What all policies of augmentation have in common."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from training.contract.part import Part

Backend = Literal["auto", "albumentations", "tensor", "dali"]


class BasePolicy(Part):
    interactions: ClassVar[str] = (
        "It comes after random_crop and flip, which most policies of the literature assume, and before the techniques that mix "
        "images; the stronger those are, the weaker it can be. Augmented images take longer to learn, so the gain shows late, "
        "and is small if only the head trains."
    )

    policy: str
    backend: Backend = Field(
        "auto",
        description="How images are loaded. albumentations: one by one, in loader workers (trivial_augment, rand_augment "
        "and augmix come from torchvision). tensor: whole batches of decoded images, on the training device. dali: NVIDIA "
        "DALI, which also decodes JPEG files. auto: chosen by the data and the device.",
        examples=["albumentations", "tensor", "dali"],
    )
