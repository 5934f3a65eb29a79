"""The range test: raise the learning rate step by step until the loss diverges (Smith 2017, section 3.3).

Lightning's `lr_find` does not fit. It runs under the recipe's schedule, writes a checkpoint and changes the random states
with which the training starts. It also takes the slope over lr instead of log lr, so noise at the lowest rates outweighs
any fall.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable

import lightning.pytorch as pl
import numpy as np
import torch

from training.contract.optimizer import Optimizer
from training.errors import UserError
from training.loop.classifier import Batch, Classifier
from training.loop.trainer import make_trainer

BELOW, ABOVE = 2000.0, 200.0  # lowest and highest rate, relative to the default rate of the optimizer
EPOCH_SHARE = 0.5  # at most this share of an epoch's steps is tested, but not fewer than FEWEST_STEPS
FEWEST_STEPS, MOST_STEPS = 40, 70
SMOOTHED_DECADES = 0.8  # the smoothed loss mostly has the steps of this range of rates, as powers of ten
RUN_AWAY = 4.0  # the test ends when the smoothed loss exceeds its lowest value by this factor


class NoRate(UserError):
    """The training loss falls at no learning rate of the test; `highest` is the one at which the test ended."""

    def __init__(self, sentence: str, highest: float) -> None:
        super().__init__(sentence)
        self.highest = highest


def list_rates(optimizer: Optimizer, epoch_steps: int) -> list[float]:
    """Return the rates to test, rising by a constant factor; `epoch_steps` are the optimizer steps of one epoch."""
    usual = type(optimizer).model_fields["lr"].default
    steps = min(MOST_STEPS, max(FEWEST_STEPS, int(EPOCH_SHARE * epoch_steps)))
    return [usual / BELOW * (BELOW * ABOVE) ** (step / (steps - 1)) for step in range(steps)]


class RangeTest(pl.Callback):
    """Take one optimizer step at each rate, until the loss diverges."""

    def __init__(self, lrs: list[float]) -> None:
        self.lrs = lrs
        self.losses: list[float] = []  # mean over the images of each step
        self.first = round(memory_of(lrs))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        groups = trainer.optimizers[0].param_groups
        self.shares = [group["lr"] / max(group["lr"] for group in groups) for group in groups]

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.before: tuple[torch.Tensor | float, int] = (0.0, 0)

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: object) -> None:
        for group, share in zip(trainer.optimizers[0].param_groups, self.shares, strict=True):
            group["lr"] = share * self.lrs[trainer.global_step]

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: object) -> None:
        assert isinstance(pl_module, Classifier)
        if trainer.global_step == len(self.losses):
            return  # the optimizer step is not complete yet
        now = pl_module.loss_sum, pl_module.image_count
        local = float(now[0] - self.before[0]), now[1] - self.before[1]
        loss_sum, count = map(sum, zip(*pl_module.plan.rank.gather(local), strict=True))
        self.losses.append(loss_sum / count)
        self.before = now
        # A single batch is no sign: the loss of a model that has learned differs by more than this factor between batches.
        smooth = smooth_losses(self.losses, memory_of(self.lrs))[self.first - 1 :]
        if not math.isfinite(self.losses[-1]) or (smooth and smooth[-1] > RUN_AWAY * min(smooth)):
            trainer.should_stop = True


def run_range_test(classifier: Classifier, batches: Iterable[Batch]) -> float:
    """Train a model at rising rates, and return the one at which its loss falls fastest."""
    test = RangeTest(list_rates(classifier.recipe.optimizer, classifier.epoch_steps[0]))
    trainer = make_trainer(classifier, [test], steps=len(test.lrs))
    fit_quietly(trainer, classifier, batches)
    return suggest(test.lrs, test.losses)


def suggest(lrs: list[float], losses: list[float]) -> float:
    """Return the rate at which the smoothed loss falls fastest over log lr, before its minimum.

    `lrs` rise by a constant factor from step to step; `losses` are the training losses of the steps.

    Raises:
        NoRate: the loss does not fall.
    """
    memory = memory_of(lrs)
    first = round(memory)  # the first step whose smoothed loss is reliable
    smooth = smooth_losses(losses, memory)
    lowest = first + int(np.argmin(smooth[first:])) if len(smooth) > first else first
    if lowest == first:
        raise NoRate(
            f"optimizer.lr=auto: the training loss falls at no rate from {lrs[0]:g} to {lrs[-1]:g}. Give a number.",
            lrs[len(losses) - 1],
        )
    return lrs[min(range(first, lowest), key=lambda step: smooth[step + 1] - smooth[step - 1])]


def memory_of(lrs: list[float]) -> float:
    """Return the steps whose losses a smoothed loss mostly has."""
    return SMOOTHED_DECADES / math.log10(lrs[1] / lrs[0])


def smooth_losses(losses: list[float], memory: float) -> list[float]:
    """Return the exponential mean of the finite losses at each step, without a bias at the start."""
    mean, smooth = 0.0, []
    for step, loss in enumerate(losses, start=1):
        if math.isfinite(loss):
            mean += (loss - mean) / memory
            smooth.append(mean / (1 - (1 - 1 / memory) ** step))
    return smooth


def fit_quietly(
    trainer: pl.Trainer, classifier: Classifier, batches: Iterable[Batch], evaluated: Iterable[Batch] | None = None
) -> None:
    """Fit without Lightning's advice on loader workers and intervals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(classifier, batches, evaluated)
