"""Find the batch size and the learning rate for `auto` before the training, on separate models.

Lightning's batch-size finder does not fit: it needs a loader whose batch size it can change.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import cast

import lightning.pytorch as pl
import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from training.data.pipelines.loaders import Loaders, choose_eval_batch
from training.data.pipelines.sampling import ShareBatches
from training.distributed.progress import OTHER_SECONDS, allowing
from training.errors import UserError
from training.features.stored import SwitchedLoader
from training.loop.auto_values.range_test import NoRate, fit_quietly, run_range_test
from training.loop.classifier import Batch, Classifier
from training.loop.stopwatch import Stopwatch
from training.loop.trainer import make_trainer
from training.process.isolation import isolated_process
from training.process.resources import read_gpu_limit
from training.recipe import Recipe
from training.techniques.model.unfreeze import Unfreeze
from training.techniques.optimization.accumulation import Accumulation

SAFE_RATE = 1e-7  # stands for a rate that is not known yet
FULLEST = 0.9  # of the memory that a training may use
FALLBACK = 0.01  # of the rate before a milestone or of the highest tested one, where the range test finds none
SHARES: dict[str, float] = {"keep/3": 1 / 3, "keep/10": 0.1, "keep/30": 1 / 30, "keep/100": 0.01}
FACTORS: dict[str, float] = {"auto": 1.0, "auto/3": 1 / 3, "auto*3": 3.0}

Prepare = Callable[..., Classifier]  # a recipe, and the images of its epoch, if they are not the recipe's

logger = logging.getLogger(__name__)


class MilestoneRate(pl.Callback):
    """At each milestone of unfreeze, set or find the base rate for the parameters that train from then on.

    It runs after the techniques' callbacks, when they have unfrozen parameters and replaced an average by the weights.
    """

    def __init__(self, threads: int, stopwatch: Stopwatch) -> None:
        self.threads, self.stopwatch = threads, stopwatch

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Classifier)
        recipe = pl_module.recipe
        if trainer.current_epoch not in recipe.unfreeze.milestones:
            return
        asked, before = recipe.unfreeze.milestone_lr, read_base_rate(trainer)
        if isinstance(asked, str) and asked in SHARES:
            set_base_rate(trainer, before * SHARES[asked])
            return
        if not isinstance(asked, str):
            assert isinstance(recipe.optimizer.lr, float)  # resolved
            # The start was optimizer.lr, which techniques may have multiplied. At a second milestone it is set already.
            if trainer.current_epoch == recipe.unfreeze.milestones[0]:
                set_base_rate(trainer, before * asked / recipe.optimizer.lr)
            return
        self.stopwatch.start("finder")  # the reporter starts the next part
        loader = cast(SwitchedLoader, trainer.train_dataloader)
        batches = pl_module.batches_in(trainer.current_epoch)
        with isolated_process(recipe.seed, self.threads), allowing(OTHER_SECONDS):
            plan = replace(deepcopy(pl_module.plan), callbacks=[], batches_per_step=lambda epoch: batches)
            copy = Classifier(simplify(recipe, recipe.unfreeze.level), plan)
            try:
                rate = run_range_test(copy, loader.find_images())
            except NoRate as none:
                # The model is at a minimum already, and the rate of the head alone would drive it away from there.
                logger.info("The loss falls at no rate of the range test, so a low one is used.")
                rate = FALLBACK * min(before, none.highest)
        assert isinstance(loader.batch_sampler, ShareBatches)
        loader.batch_sampler.sampler.set_epoch(trainer.current_epoch)
        set_base_rate(trainer, _round(rate * FACTORS[asked]))


def read_base_rate(trainer: pl.Trainer) -> float:
    return float(max(cast(LambdaLR, trainer.lr_scheduler_configs[0].scheduler).base_lrs))


def set_base_rate(trainer: pl.Trainer, lr: float) -> None:
    """Change the peak of the running schedule; each group keeps its share. The checkpoint contains the change."""
    schedule = cast(LambdaLR, trainer.lr_scheduler_configs[0].scheduler)
    groups, before = trainer.optimizers[0].param_groups, read_base_rate(trainer)
    schedule.base_lrs = [lr * base / before for base in schedule.base_lrs]
    for group, base, factor in zip(groups, schedule.base_lrs, schedule.lr_lambdas, strict=True):
        group["initial_lr"], group["lr"] = base, base * factor(schedule.last_epoch)
    logger.info("From epoch %d on, the base rate is %g.", trainer.current_epoch + 1, lr)


def find_lr(recipe: Recipe, prepare: Prepare, loaders: Loaders, threads: int) -> Recipe:
    """Return the recipe with a number for `optimizer.lr`. The test leaves no trace, not even in random states."""
    asked = recipe.optimizer.lr
    if not isinstance(asked, str):
        return recipe
    with isolated_process(recipe.seed, threads):
        found = run_range_test(prepare(simplify(recipe, recipe.unfreeze.level)), loaders.train)
    lr = _round(found * FACTORS[asked])
    logger.info("optimizer.lr=%g: %s, by a range test.", lr, asked)
    return recipe.model_copy(update={"optimizer": recipe.optimizer.model_copy(update={"lr": lr})})


def _round(lr: float) -> float:
    """Round to three digits: a range test is no more precise."""
    return float(f"{lr:.3g}")


def find_batch_size(recipe: Recipe, prepare: Prepare, threads: int, image_count: int) -> Recipe:
    """Return the recipe with a number for `batch_size`: the largest power of two with which training fits into memory.

    A tenth of the memory stays free. Each test takes two steps and an evaluation, with the average of the weights if
    there is one. It uses the last level that unfreeze reaches, so that the size also fits after every milestone. The
    size is at most `image_count`, the number of images in an epoch.
    """
    if recipe.batch_size != "auto":
        return recipe

    def fits(size: int) -> bool:
        try:
            with isolated_process(recipe.seed, threads):
                return _try_steps(recipe, prepare, size)
        except torch.OutOfMemoryError:
            pass
        gc.collect()  # not within, where the error still holds the model and its gradients
        torch.cuda.empty_cache()
        return False

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


def _try_steps(recipe: Recipe, prepare: Prepare, size: int) -> bool:
    """Take two steps, because the first one creates the optimizer's state, then evaluate; return if memory is left."""
    # Small images of the first epochs would make a batch fit that does not fit later.
    simple = simplify(recipe, recipe.unfreeze.deepest).without("progressive_resizing")
    sized = simple.model_copy(update={"averaging": recipe.averaging, "batch_size": size})
    classifier = prepare(sized, 2 * size)
    if classifier.plan.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    side = classifier.plan.image_size
    evaluated = classifier.plan.evaluated_size or side

    def load(count: int, images: int, side: int) -> DataLoader[Batch]:
        batch = torch.zeros(images, 3, side, side), torch.zeros(images, dtype=torch.long)
        return DataLoader([batch] * count, batch_size=None)  # type: ignore[arg-type]

    trainer = make_trainer(classifier, [], epochs=1)
    fit_quietly(trainer, classifier, load(2, size, side), load(1, choose_eval_batch(sized), evaluated))
    # With the gaps between tensors, which the limit counts. A training has batches of several sizes, which leave more.
    return classifier.plan.device == "cpu" or torch.cuda.max_memory_reserved() <= FULLEST * read_gpu_limit()


def simplify(recipe: Recipe, level: str) -> Recipe:
    """Return the recipe as it is at the start, without techniques that change over time or take long to start."""
    norms = {"freeze_batch_norm": recipe.unfreeze.freeze_batch_norm and level != "last"}
    norms["adapt_statistics"] = recipe.unfreeze.adapt_statistics and level == recipe.unfreeze.level
    left_out = ("schedule", "averaging", "classifier_retraining", "lr_scaling", "compilation", "linear_probe")
    plain = recipe.without(*left_out)
    return plain.model_copy(
        update={
            "optimizer": recipe.optimizer.model_copy(update={"lr": SAFE_RATE}),
            "accumulation": Accumulation(batches=recipe.accumulation.batches_in(0)),
            "unfreeze": Unfreeze.model_validate({"level": level, **norms}),
        }
    )
