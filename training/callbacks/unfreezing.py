"""Unfreezing during a training: more parameters train after each milestone (Howard and Ruder 2018, section 3.3)."""

from __future__ import annotations

import lightning.pytorch as pl
from torch import nn

from training.contract.setup import UnfreezeStep


class UnfreezeAtMilestones(pl.Callback):
    """After each milestone more parameters train. Follows from the epoch alone, so a resume finds it as it was."""

    def __init__(self, frozen: list[nn.Module], steps: dict[int, UnfreezeStep]) -> None:
        self.frozen, self.steps = frozen, steps  # shared with the set-up, not copied

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        passed = [step for epoch, step in self.steps.items() if epoch <= trainer.current_epoch]
        if not passed:
            return
        trained, self.frozen[:] = passed[-1]
        for parameter in trained:
            parameter.requires_grad_(True)
        pl_module.train()  # Lightning would put back the modes of before the validation
