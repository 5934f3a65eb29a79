"""FMix: replace the pixels in a mask of low-frequency noise by another image (Harris et al. 2020, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import BatchTransform, TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView

if TYPE_CHECKING:
    import torch


DECAY = 3.0


class FMix(Technique):
    interactions: ClassVar[str] = (
        "If mixup or cutmix is on too, each batch gets one of them. Its patches have irregular shapes, so they cover small "
        "objects less often than a rectangle does. It slows learning, so it costs accuracy in short trainings."
    )
    needs_pairs: ClassVar[str] = "alpha"
    examples: ClassVar[Examples] = ({"fmix": {"alpha": 1.0}},)

    alpha: float = Field(0.0, ge=0, description="The share λ that stays is drawn from Beta(α, α) once a batch; 0: off.")
    decay: float = Field(
        DECAY,
        gt=0,
        description="The noise falls with 1/frequency^decay: a higher value gives larger patches.",
        examples=[2.0],
    )

    def apply(self, setup: TrainingSetup) -> None:
        setup.mixers.append(make_fmix(self.alpha, self.decay, setup.class_count))

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.alpha == 0 and self.decay != DECAY:
            return f"fmix.decay={self.decay:g} does nothing while fmix.alpha is 0: set an alpha."
        return None


def make_fmix(alpha: float, decay: float, class_count: int) -> BatchTransform:
    """Return a function that mixes each image with its neighbour, and turns labels (N,) into shares (N, classes)."""
    import torch
    from torch.nn import functional as F

    from training.process.upload import upload

    shares = torch.distributions.Beta(torch.tensor(alpha), torch.tensor(alpha))

    def mix(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        height, width = images.shape[-2:]
        mask = draw_mask(float(shares.sample()), height, width, decay)
        kept = float(mask.float().mean())  # the share rounded to whole pixels
        targets = F.one_hot(labels, class_count).float()
        mixed = torch.where(upload(mask, images.device), images, images.roll(1, 0))
        return mixed, kept * targets + (1 - kept) * targets.roll(1, 0)

    return mix


def draw_mask(share: float, height: int, width: int, decay: float) -> torch.Tensor:
    """Return a mask, bool (height, width), of the `share` of pixels with the highest low-frequency noise."""
    import torch

    down, across = torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)[None]
    # The lowest frequency except the mean is one wave over the longer side.
    frequency = (down**2 + across**2).sqrt().clamp_min(1 / max(height, width))
    spectrum = torch.randn(frequency.shape, dtype=torch.complex64) / frequency**decay
    noise = torch.fft.irfft2(spectrum, s=(height, width)).flatten()
    mask = torch.zeros(height * width, dtype=torch.bool)
    mask[noise.argsort(descending=True)[: round(share * height * width)]] = True
    return mask.view(height, width)
