"""Callbacks of every fit: seeds for each epoch, the stop on a NaN loss, and the exchange between devices."""

from __future__ import annotations

from collections.abc import Mapping

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.types import STEP_OUTPUT
from timm.utils import distribute_bn
from torch import nn

from training.distributed.rank import ALONE, Rank
from training.errors import Diverged
from training.process.isolation import derive_seed, seed_process


class EpochSeeds(pl.Callback):
    """Seed each epoch from the seed, the epoch and the rank alone, so that a resume needs no saved random state."""

    def __init__(self, seed: int, rank: Rank) -> None:
        self.seed, self.rank = seed, rank

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # The first rank draws the same numbers as in a training on one device.
        others = [] if self.rank.leads else [self.rank.number]
        seed_process(derive_seed(self.seed, trainer.current_epoch, *others))


class NaNStop(pl.Callback):
    """End the training at the first loss that is not finite, without waiting for the device in each step."""

    def __init__(self, rank: Rank = ALONE) -> None:
        self.rank = rank
        self.pending: torch.Tensor | None = None

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: STEP_OUTPUT, batch: object, batch_idx: int
    ) -> None:
        # Sum over ranks, so that a NaN on one stops all; otherwise the others would wait for it.
        assert isinstance(outputs, Mapping)
        loss = self.rank.sum(outputs["loss"].detach())
        if loss.device.type == "cpu":
            self._refuse_nonfinite(loss)
            return
        # The value is copied to pinned memory and read one step later: this delays the stop, but avoids a synchronisation.
        if self.pending is not None:
            self._refuse_nonfinite(self.pending)
        else:
            self.pending = torch.zeros((), dtype=loss.dtype, pin_memory=True)
        self.pending.copy_(loss, non_blocking=True)

    @staticmethod
    def _refuse_nonfinite(loss: torch.Tensor) -> None:
        if not loss.isfinite():
            raise Diverged("the training loss became infinite or NaN")


class SharedStatistics(pl.Callback):
    """Average BatchNorm's statistics over the ranks before the model is validated and saved."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        distribute_bn(pl_module, self.rank.count, reduce=True)


class Rewrap(pl.Callback):
    """Rebuild DDP when more parameters train: it synchronises only those that trained when it was built."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.known = self._count_trained(pl_module)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        strategy = trainer.strategy
        if isinstance(strategy, DDPStrategy) and self.known != (now := self._count_trained(pl_module)):
            self.known = now
            strategy.model = pl_module
            strategy.configure_ddp()

    @staticmethod
    def _count_trained(module: nn.Module) -> int:
        return sum(parameter.requires_grad for parameter in module.parameters())
