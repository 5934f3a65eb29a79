"""What trains changes during a training: more parameters at milestones, or a new head alone in the last epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import lightning.pytorch as pl
from torch import nn

from training.contract.setup import TrainedModule, UnfreezeStep
from training.model.levels import find_frozen
from training.model.stages import head_of


class UnfreezeAtMilestones(pl.Callback):
    """After each milestone more parameters train. This depends on the epoch alone, so a resume needs no saved state."""

    def __init__(self, frozen: list[nn.Module], steps: dict[int, UnfreezeStep]) -> None:
        self.frozen, self.steps = frozen, steps  # shared with the set-up, not copied

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        unfreeze(self.frozen, self.steps, trainer.current_epoch)
        pl_module.train()  # otherwise Lightning restores the modes from before the validation


def unfreeze(frozen: list[nn.Module], steps: dict[int, UnfreezeStep], epoch: int) -> None:
    """Unfreeze what trains after `epoch` completed epochs; `frozen` then lists the modules that do not."""
    if passed := [step for milestone, step in steps.items() if milestone <= epoch]:
        trained, frozen[:] = passed[-1]
        for parameter in trained:
            parameter.requires_grad_(True)


def find_restart(part: nn.Module) -> Callable[[], None] | None:
    """Return what initialises a module's own parameters again; timm's attention pooling has another name for it."""
    return getattr(part, "reset_parameters", None) or getattr(part, "init_weights", None)


class HeadRetraining(pl.Callback):
    """Freezes everything but the head, which starts again. This depends on the epoch alone, so there is no state."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        module = cast(TrainedModule, pl_module)
        begin = module.recipe.epochs - self.epochs
        if trainer.current_epoch < begin:
            return
        head = head_of(module.model)
        trained = set(head.parameters())
        for parameter in set(module.model.parameters()) - trained:
            parameter.requires_grad_(False)
            parameter.grad = None  # an optimizer moves what has a gradient
        module.plan.frozen[:] = find_frozen(module.model)
        pl_module.train()  # puts the frozen modules into eval mode
        if trainer.current_epoch == begin:
            for part in head.modules():
                if restart := find_restart(part):
                    restart()
            for parameter in trained:  # such as the momentum of the head before
                trainer.optimizers[0].state.pop(parameter, None)
