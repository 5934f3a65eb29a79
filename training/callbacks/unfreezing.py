"""Unfreezing during a training: more parameters train after each milestone (Howard and Ruder 2018, section 3.3)."""

from __future__ import annotations

import lightning.pytorch as pl
from torch import nn

from training.contract.setup import UnfreezeStep


class UnfreezeAtMilestones(pl.Callback):
    """After each milestone more parameters train. This depends on the epoch alone, so a resume needs no saved state."""

    def __init__(self, frozen: list[nn.Module], steps: dict[int, UnfreezeStep]) -> None:
        self.frozen, self.steps = frozen, steps  # shared with the set-up, not copied

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        passed = [step for epoch, step in self.steps.items() if epoch <= trainer.current_epoch]
        if not passed:
            return
        trained, self.frozen[:] = passed[-1]
        for parameter in trained:
            parameter.requires_grad_(True)
        pl_module.train()  # otherwise Lightning restores the modes from before the validation
