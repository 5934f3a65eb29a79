"""Find the batch size and the learning rate for `auto` before the training, on separate models.

Lightning's finders do not fit. Its `lr_find` runs under the recipe's schedule, writes a checkpoint and changes the random
states with which the training starts. It also takes the slope over lr instead of log lr, so noise at the lowest rates
outweighs any fall. Its batch-size finder needs a loader whose batch size it can change.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import replace
from typing import cast

import lightning.pytorch as pl
import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from training.data.pipelines.loaders import Loaders, choose_eval_batch
from training.data.pipelines.sampling import ShareSampler
from training.errors import UserError
from training.loop.classifier import Batch, Classifier
from training.loop.stopwatch import Stopwatch
from training.loop.trainer import make_trainer
from training.process.isolation import isolated_process
from training.recipe import Recipe
from training.techniques.compute.compilation import Compilation
from training.techniques.model.unfreeze import Unfreeze
from training.techniques.optimization.accumulation import Accumulation
from training.techniques.optimization.averaging import NoAveraging
from training.techniques.optimization.lr_scaling import LrScaling
from training.techniques.optimization.schedule import Constant

LOWEST, HIGHEST, STEPS = 1e-7, 10.0, 100
SMOOTHING = 0.9  # weight of the previous mean loss in each step
FIRST = 10  # first step whose smoothed loss is reliable
FACTORS: dict[str, float] = {"auto": 1.0, "auto/3": 1 / 3, "auto*3": 3.0}
RUN_AWAY = 4.0  # the test ends when the loss exceeds the lowest loss by this factor

Prepare = Callable[[Recipe, tuple[int, ...]], Classifier]

logger = logging.getLogger(__name__)


class RangeTest(pl.Callback):
    """Multiply the rate by a constant factor after each optimizer step, until the loss diverges (Smith 2017)."""

    def __init__(self) -> None:
        self.lrs = [LOWEST * (HIGHEST / LOWEST) ** (step / (STEPS - 1)) for step in range(STEPS)]
        self.losses: list[float] = []  # mean over the images of each step

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.shares = [group["lr"] / LOWEST for group in trainer.optimizers[0].param_groups]

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.before: tuple[torch.Tensor | float, int] = (0.0, 0)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: object, index: int
    ) -> None:
        for group, share in zip(trainer.optimizers[0].param_groups, self.shares, strict=True):
            group["lr"] = share * self.lrs[trainer.global_step]

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: object) -> None:
        assert isinstance(pl_module, Classifier)
        if trainer.global_step == len(self.losses):
            return  # the optimizer step is not complete yet
        now = pl_module.loss_sum, pl_module.image_count
        own = float(now[0] - self.before[0]), now[1] - self.before[1]
        loss_sum, count = map(sum, zip(*pl_module.plan.rank.gather(own), strict=True))
        self.losses.append(loss_sum / count)
        self.before = now
        if not self.losses[-1] < RUN_AWAY * min(self.losses):
            trainer.should_stop = True


class FindAgain(pl.Callback):
    """At each milestone of unfreeze, find the base rate again for the parameters that train from then on.

    It runs after the techniques' callbacks, when they have unfrozen parameters and replaced an average by the weights.
    """

    def __init__(self, threads: int, stopwatch: Stopwatch) -> None:
        self.threads, self.stopwatch = threads, stopwatch

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Classifier)
        recipe, loader = pl_module.recipe, cast("DataLoader[Batch]", trainer.train_dataloader)
        if trainer.current_epoch not in recipe.unfreeze.milestones:
            return
        self.stopwatch.start("finder")  # the reporter starts the next part
        batches = pl_module.batches_in(trainer.current_epoch)
        with isolated_process(recipe.seed, self.threads):
            plan = replace(deepcopy(pl_module.plan), callbacks=[], batches_per_step=lambda epoch: batches)
            found = _test_rates(Classifier(_simplify(recipe, LOWEST, recipe.unfreeze.level), plan), loader)
        cast(ShareSampler, loader.sampler).set_epoch(trainer.current_epoch)
        set_base_rate(trainer, _round(found * FACTORS[recipe.unfreeze.milestone_lr]))


def set_base_rate(trainer: pl.Trainer, lr: float) -> None:
    """Change the peak of the running schedule; each group keeps its share. The checkpoint contains the change."""
    schedule = cast(LambdaLR, trainer.lr_scheduler_configs[0].scheduler)
    groups, before = trainer.optimizers[0].param_groups, max(schedule.base_lrs)
    schedule.base_lrs = [lr * base / before for base in schedule.base_lrs]
    for group, base, factor in zip(groups, schedule.base_lrs, schedule.lr_lambdas, strict=True):
        group["initial_lr"], group["lr"] = base, base * factor(schedule.last_epoch)
    logger.info("From epoch %d on, the base rate is %g.", trainer.current_epoch + 1, lr)


def find_lr(recipe: Recipe, prepare: Prepare, loaders: Loaders, threads: int) -> Recipe:
    """Return the recipe with a number for `optimizer.lr`. The test leaves no trace, not even in random states.

    Raises:
        UserError: the loss does not fall at any rate.
    """
    asked = recipe.optimizer.lr
    if not isinstance(asked, str):
        return recipe
    with isolated_process(recipe.seed, threads):
        classifier = prepare(_simplify(recipe, LOWEST, recipe.unfreeze.level), loaders.batch_sizes)
        lr = _round(_test_rates(classifier, loaders.train) * FACTORS[asked])
    logger.info("optimizer.lr=%g: %s, by a range test.", lr, asked)
    return recipe.model_copy(update={"optimizer": recipe.optimizer.model_copy(update={"lr": lr})})


def _test_rates(classifier: Classifier, batches: Iterable[Batch]) -> float:
    test = RangeTest()
    _run(make_trainer(classifier, [test], max_steps=STEPS, max_epochs=-1, limit_val_batches=0), classifier, batches)
    return suggest(test.lrs, test.losses)


def _round(lr: float) -> float:
    """Round to three digits: a range test is no more precise."""
    return float(f"{lr:.3g}")


def suggest(lrs: list[float], losses: list[float]) -> float:
    """Return the rate at which the smoothed loss falls fastest over log lr, before its minimum.

    Args:
        lrs: The learning rate of each step, rising by a constant factor.
        losses: The training loss of each step.

    Raises:
        UserError: the loss does not fall.
    """
    mean, smooth = 0.0, []
    for step, loss in enumerate(losses, start=1):
        if math.isfinite(loss):
            mean = SMOOTHING * mean + (1 - SMOOTHING) * loss
            smooth.append(mean / (1 - SMOOTHING**step))
    lowest = smooth.index(min(smooth))
    if lowest <= FIRST:
        raise UserError(
            f"optimizer.lr=auto: the training loss falls at no rate from {LOWEST:g} to {HIGHEST:g}. Give a number."
        )
    return lrs[min(range(FIRST, lowest), key=lambda step: smooth[step + 1] - smooth[step - 1])]


def find_batch_size(recipe: Recipe, prepare: Prepare, threads: int, image_count: int) -> Recipe:
    """Return the recipe with a number for `batch_size`: the largest power of two with which training fits into memory.

    Each test takes two steps and an evaluation, with the average of the weights if there is one. It uses the last level
    that unfreeze reaches, so that the size also fits after every milestone. The size is at most `image_count`, the number
    of images in an epoch.

    Raises:
        UserError: the memory is too small for two images.
    """
    if recipe.batch_size != "auto":
        return recipe

    def fits(size: int) -> bool:
        try:
            with isolated_process(recipe.seed, threads):
                _try_steps(recipe, prepare, size)
        except torch.OutOfMemoryError:
            return False
        return True

    size = 1
    while 2 * size <= image_count and fits(2 * size):
        size *= 2
    if size == 1:
        raise UserError(
            "batch_size=auto: not even 2 images fit into the GPU's memory. Take a smaller backbone.name or "
            "preprocessing.image_size."
        )
    logger.info("batch_size=%d: the largest power of two that fits.", size)
    return recipe.model_copy(update={"batch_size": size})


def _try_steps(recipe: Recipe, prepare: Prepare, size: int) -> None:
    """Take two steps, because the first one creates the optimizer's state, then evaluate."""
    simple = _simplify(recipe, LOWEST, recipe.unfreeze.deepest)
    sized = simple.model_copy(update={"averaging": recipe.averaging, "batch_size": size})
    classifier = prepare(sized, (size, size))
    side = classifier.plan.image_size

    def load(count: int, images: int) -> DataLoader[Batch]:
        batch = torch.zeros(images, 3, side, side), torch.zeros(images, dtype=torch.long)
        return DataLoader([batch] * count, batch_size=None)  # type: ignore[arg-type]

    _run(make_trainer(classifier, [], max_epochs=1), classifier, load(2, size), load(1, choose_eval_batch(sized)))


def _simplify(recipe: Recipe, lr: float, level: str) -> Recipe:
    """Return the recipe as it is at the start, without techniques that change over time or take long to start."""
    return recipe.model_copy(
        update={
            "optimizer": recipe.optimizer.model_copy(update={"lr": lr}),
            "accumulation": Accumulation(batches=recipe.accumulation.batches_in(0)),
            "unfreeze": Unfreeze.model_validate({"level": level}),
            "schedule": Constant(),
            "averaging": NoAveraging(),
            "lr_scaling": LrScaling(),
            "compilation": Compilation(),
        }
    )


def _run(
    trainer: pl.Trainer, classifier: Classifier, batches: Iterable[Batch], evaluated: Iterable[Batch] | None = None
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning gives advice on loader workers and intervals
        trainer.fit(classifier, batches, evaluated)
