"""What `auto` means for the batch size and the learning rate: tried out on models of their own, before the training.

Lightning's finders serve neither. Its `lr_find` runs under the recipe's schedule, writes a checkpoint, moves the random
states that the training would have started from, and takes the slope over lr instead of log lr, in which noise at the
lowest rates outweighs any fall. Its batch-size finder wants a loader that it may change.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader

from training.data.pipelines.loaders import Loaders
from training.errors import UserError
from training.loop.classifier import Classifier
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
SMOOTHING = 0.9  # share of the mean loss so far, in each step
FIRST = 10  # of the steps before, the mean says little
FACTORS: dict[str, float] = {"auto": 1.0, "auto/3": 1 / 3, "auto*3": 3.0}
RUN_AWAY = 4.0  # times the lowest loss, where the test ends

Prepare = Callable[[Recipe, tuple[int, ...]], Classifier]

logger = logging.getLogger(__name__)


class RangeTest(pl.Callback):
    """Raise the rate by the same factor from one optimizer step to the next, until the loss runs away (Smith 2017)."""

    def __init__(self) -> None:
        self.lrs = [LOWEST * (HIGHEST / LOWEST) ** (step / (STEPS - 1)) for step in range(STEPS)]
        self.losses: list[float] = []  # the mean over the images of each step

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.shares = [group["lr"] / LOWEST for group in trainer.optimizers[0].param_groups]

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.before: tuple[Any, int] = (0.0, 0)

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, index: int) -> None:
        for group, share in zip(trainer.optimizers[0].param_groups, self.shares, strict=True):
            group["lr"] = share * self.lrs[trainer.global_step]

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        assert isinstance(pl_module, Classifier)
        if trainer.global_step == len(self.losses):
            return  # in the middle of a group of batches
        now = pl_module.loss_sum, pl_module.image_count
        own = float(now[0] - self.before[0]), now[1] - self.before[1]
        loss_sum, count = map(sum, zip(*pl_module.plan.rank.gather(own), strict=True))
        self.losses.append(loss_sum / count)
        self.before = now
        if not self.losses[-1] < RUN_AWAY * min(self.losses):
            trainer.should_stop = True


class FindAgain(pl.Callback):
    """At each milestone of unfreeze, find the base rate anew for what trains from then on.

    Stands behind the techniques' callbacks, so that they have thawed what thaws, and put back what an average replaced.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Classifier)
        recipe, loader = pl_module.recipe, cast(Any, trainer.train_dataloader)
        if trainer.current_epoch not in recipe.unfreeze.milestones:
            return
        batches = pl_module.batches_in(trainer.current_epoch)
        with isolated_process(recipe.seed, self.threads):
            plan = replace(deepcopy(pl_module.plan), callbacks=[], batches_per_step=lambda epoch: batches)
            found = _test_rates(Classifier(_simplify(recipe, LOWEST, recipe.unfreeze.level), plan), loader)
        loader.sampler.set_epoch(trainer.current_epoch)
        set_base_rate(trainer, _round(found * FACTORS[recipe.unfreeze.milestone_lr]))


def set_base_rate(trainer: pl.Trainer, lr: float) -> None:
    """Let the schedule go on from another peak; each group keeps its share. Travels in the checkpoint."""
    schedule: Any = trainer.lr_scheduler_configs[0].scheduler
    groups, before = trainer.optimizers[0].param_groups, max(schedule.base_lrs)
    schedule.base_lrs = [lr * base / before for base in schedule.base_lrs]
    for group, base, factor in zip(groups, schedule.base_lrs, schedule.lr_lambdas, strict=True):
        group["initial_lr"], group["lr"] = base, base * factor(schedule.last_epoch)
    logger.info("From epoch %d on, the base rate is %g.", trainer.current_epoch + 1, lr)


def find_lr(recipe: Recipe, prepare: Prepare, loaders: Loaders, threads: int) -> Recipe:
    """The recipe with a number for `optimizer.lr`; nothing of the search is left behind, random states included.

    Raises:
        UserError: the loss falls at no rate.
    """
    asked = recipe.optimizer.lr
    if not isinstance(asked, str):
        return recipe
    with isolated_process(recipe.seed, threads):
        classifier = prepare(_simplify(recipe, LOWEST, recipe.unfreeze.level), loaders.batch_sizes)
        lr = _round(_test_rates(classifier, loaders.train) * FACTORS[asked])
    logger.info("optimizer.lr=%g: %s, by a range test.", lr, asked)
    return recipe.model_copy(update={"optimizer": recipe.optimizer.model_copy(update={"lr": lr})})


def _test_rates(classifier: Classifier, batches: Any) -> float:
    test = RangeTest()
    _run(make_trainer(classifier, [test], max_steps=STEPS, max_epochs=-1, limit_val_batches=0), classifier, batches)
    return suggest(test.lrs, test.losses)


def _round(lr: float) -> float:
    """To three digits: no range test knows more."""
    return float(f"{lr:.3g}")


def suggest(lrs: list[float], losses: list[float]) -> float:
    """The rate at which the smoothed loss falls fastest over log lr, on its way to where it is lowest.

    Raises:
        UserError: it does not fall.
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
    """The recipe with a number for `batch_size`: the largest power of two of which two training steps fit into memory.

    It is tried at the deepest level that unfreeze comes to, so that it holds after every milestone; and it is no more than
    the `image_count` images of an epoch.

    Raises:
        UserError: there is no room for two images.
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
    """Two, since the optimizer's state comes with the first."""
    classifier = prepare(_simplify(recipe, LOWEST, recipe.unfreeze.deepest), (size, size))
    side = classifier.plan.image_size
    batch = torch.zeros(size, 3, side, side), torch.zeros(size, dtype=torch.long)
    batches: DataLoader[Any] = DataLoader([batch, batch], batch_size=None)  # type: ignore[arg-type]
    _run(make_trainer(classifier, [], max_epochs=1, limit_val_batches=0), classifier, batches)


def _simplify(recipe: Recipe, lr: float, level: str) -> Recipe:
    """The recipe at its start, without what acts over the course of a training or takes long to begin."""
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


def _run(trainer: pl.Trainer, classifier: Classifier, batches: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on loader workers and intervals
        trainer.fit(classifier, batches)
