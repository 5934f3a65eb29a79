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
        unfreeze(self.frozen, self.steps, trainer.current_epoch)
        pl_module.train()  # otherwise Lightning restores the modes from before the validation


def unfreeze(frozen: list[nn.Module], steps: dict[int, UnfreezeStep], epoch: int) -> None:
    """Unfreeze what trains after `epoch` completed epochs; `frozen` then lists the modules that do not."""
    passed = [step for milestone, step in steps.items() if milestone <= epoch]
    if passed:
        trained, frozen[:] = passed[-1]
        for parameter in trained:
            parameter.requires_grad_(True)
