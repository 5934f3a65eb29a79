"""What happens around a fit: seeds by epoch, and the stop on a loss that is no number."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy
from timm.utils import distribute_bn
from torch import nn

from training.distributed.rank import ALONE, Rank
from training.errors import Diverged
from training.process.isolation import derive_seed, seed_process


class EpochSeeds(pl.Callback):
    """Each epoch's randomness follows from seed, epoch and rank alone, so resuming needs no saved random states."""

    def __init__(self, seed: int, rank: Rank) -> None:
        self.seed, self.rank = seed, rank

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # The first rank draws what it would draw alone.
        others = [] if self.rank.leads else [self.rank.number]
        seed_process(derive_seed(self.seed, trainer.current_epoch, *others))


class NaNStop(pl.Callback):
    """End the training at the first loss that is not finite, without waiting for the device in each step."""

    def __init__(self, rank: Rank = ALONE) -> None:
        self.rank = rank
        self.pending: torch.Tensor | None = None

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # Of all ranks, or one would stop and the others wait for it: a sum with one such number in it is none either.
        loss = self.rank.sum(outputs["loss"].detach())
        if loss.device.type == "cpu":
            self._judge(loss)
            return
        # A copy into pinned memory that is read a step later: late by a step or so, but never a synchronisation.
        if self.pending is not None:
            self._judge(self.pending)
        else:
            self.pending = torch.zeros((), dtype=loss.dtype, pin_memory=True)
        self.pending.copy_(loss, non_blocking=True)

    @staticmethod
    def _judge(loss: torch.Tensor) -> None:
        if not loss.isfinite():
            raise Diverged("the training loss became infinite or NaN")


class SharedStatistics(pl.Callback):
    """What BatchNorm measured on each rank's share, averaged before it is validated and kept."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        distribute_bn(pl_module, self.rank.count, reduce=True)


class Rewrap(pl.Callback):
    """DDP knows the parameters that trained when it was built: build it anew where others were unfrozen."""

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
