"""Resize training batches to a side that depends on the epoch alone."""

from __future__ import annotations

from collections.abc import Callable

import lightning.pytorch as pl
import torch
from torch.nn import functional as F


class BatchResizing(pl.Callback):
    """Shrinks training images on their device; there is no state, so a resume needs none."""

    def __init__(self, side_in: Callable[[int, int, int], int], full: int) -> None:
        self.side_in, self.full = side_in, full  # completed epochs, epochs, full side -> side, in pixels
        self.side = full

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.side = self.side_in(trainer.current_epoch, pl_module.recipe.epochs, self.full)  # type: ignore[union-attr, arg-type]

    def resize(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Resize images (N, 3, side, side)."""
        if self.side == images.shape[-1]:
            return images, labels
        size = [self.side, self.side]
        return F.interpolate(images, size, mode="bilinear", align_corners=False, antialias=True), labels
