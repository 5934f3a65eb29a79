"""Train and validate on stored features where a part of the model is frozen and its input is always the same."""

from __future__ import annotations

import logging
from pathlib import Path

import lightning.pytorch as pl

from training.callbacks.unfreezing import unfreeze
from training.contract.own_parts import list_own
from training.contract.technique import Technique
from training.data.files.images import ImageData
from training.data.files.pixel_store import LIMIT_VARIABLES, cache_limit
from training.data.pipelines.loaders import Loaders
from training.features.split import NoSplit, split_model
from training.features.stored import FeatureMaker, SwitchedLoader
from training.loop.checkpoint import read_checkpoint
from training.loop.classifier import Classifier
from training.loop.stopwatch import Stopwatch
from training.recipe import Recipe

FROZEN_LEVELS = {"last", "most", "middle"}  # levels at which all first modules of a model are frozen

logger = logging.getLogger(__name__)


class FeatureUse(pl.Callback):
    """Decides at the start, and at each milestone of unfreeze, what trains and validates on features."""

    def __init__(
        self, classifier: Classifier, data: ImageData, loaders: Loaders, workers: int, stopwatch: Stopwatch
    ) -> None:
        self.classifier, self.data, self.workers, self.stopwatch = classifier, data, workers, stopwatch
        self.train = SwitchedLoader(lambda: loaders.train, loaders.train_batches)
        self.val = SwitchedLoader(lambda: loaders.val, loaders.val_batches)
        self.is_on = False

    def begin(self, epoch: int, checkpoint: Path | None) -> None:
        """Begin a training, or continue it after `epoch` completed epochs from a checkpoint."""
        recipe, plan = self.classifier.recipe, self.classifier.plan
        if FROZEN_LEVELS.isdisjoint(recipe.unfreeze.levels):
            return
        if obstacle := find_obstacle(recipe):
            logger.info("No features are stored: %s.", obstacle)
            return
        self.is_on = True
        if checkpoint is not None:  # Lightning loads it too late: features are those of its weights
            unfreeze(plan.frozen, plan.unfreeze_steps, epoch)
            self.classifier.train()
            saved = read_checkpoint(checkpoint, ["state_dict"], mmap=True)
            self.classifier.on_load_checkpoint(saved)
            self.classifier.load_state_dict(saved["state_dict"])
        self._begin_level(epoch)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.is_on and trainer.current_epoch in self.classifier.recipe.unfreeze.milestones:
            self._begin_level(trainer.current_epoch)

    def _begin_level(self, epoch: int) -> None:
        """Divide the model as it is after `epoch` completed epochs, and use features wherever that is valid."""
        self.train.features = self.val.features = self.classifier.split = None
        recipe, device = self.classifier.recipe, self.classifier.plan.device
        self.stopwatch.start("train")
        try:
            self.classifier.to(device)
            self.classifier.split = split_model(self.classifier.model)
            self._use(FeatureMaker(self.classifier.split, recipe, device, self.workers), epoch)
        except NoSplit as reason:
            logger.info("From epoch %d on, everything starts at the images: %s.", epoch + 1, reason)
        finally:
            self.prepare_images()
            self.stopwatch.stop()

    def prepare_images(self) -> None:
        """Prepare the images that are needed now, not during an epoch."""
        for loader in (self.train, self.val):
            if loader.features is None:
                loader.find_images()

    def _use(self, maker: FeatureMaker, epoch: int) -> None:
        recipe, data = self.classifier.recipe, self.data
        plain = recipe.without("evaluation_size")  # the training's size of images
        trained = self._find_obstacle_in_training(epoch)
        parts = [(self.val, data.val, recipe, None), (self.train, data.train, plain, trained)]
        for loader, part, prepared, obstacle in parts:
            name = "training" if loader is self.train else "validation"
            if obstacle is None and not maker.fits(part, prepared):
                size, limit = maker.size_of(part, prepared) >> 20, cache_limit("features") >> 20
                obstacle = f"{size} MB are more than half of {LIMIT_VARIABLES['features']}={limit}"
            if obstacle is None:
                loader.use(maker.make(part, prepared), recipe, maker.device)
                size = maker.size_of(part, prepared) >> 20
                logger.info("From epoch %d on, %s starts at stored features (%d MB).", epoch + 1, name, size)
            else:
                logger.info("From epoch %d on, %s starts at the images: %s.", epoch + 1, name, obstacle)

    def _find_obstacle_in_training(self, epoch: int) -> str | None:
        recipe, images = self.classifier.recipe, len(self.data.train)
        if changing := find_random_input(self.classifier):
            return changing
        if self.classifier.plan.lesson:
            return "the teacher of distillation needs its images"
        # The whole level, also of a resumed training, which then makes the same choice.
        milestones = [0, *recipe.unfreeze.milestones, recipe.epochs]
        begin, end = max(m for m in milestones if m <= epoch), min(m for m in milestones if m > epoch)
        if (end - begin) * (recipe.data.epoch_size or images) < images:
            return "this level ends before each image was used once"
        return None


def find_obstacle(recipe: Recipe) -> str | None:
    """Return the reason for which a recipe cannot use features; None if it can."""
    if cache_limit("features") == 0:
        return f"{LIMIT_VARIABLES['features']}=0"
    own = list_own()
    for name, technique in recipe.parts():
        if not isinstance(technique, Technique) or not technique.is_on:
            continue
        if reason := technique.breaks_features:
            return f"{name}: {reason}"
        if name in own and not technique.keeps_features:
            return f"{name} is not bundled, and does not declare keeps_features = True"
    return None


def find_random_input(classifier: Classifier) -> str | None:
    """Return what makes training images differ from epoch to epoch, or from the validation; None if nothing does."""
    recipe, plan = classifier.recipe, classifier.plan
    if recipe.random_crop.name != "none" or recipe.flip.probability or recipe.augmentation.policy != "none":
        return "its images are cropped, flipped or augmented at random"
    if plan.batch_transforms or plan.mixers:
        return "its batches are resized, erased or mixed"
    return "DALI decodes its images in another way" if recipe.augmentation.backend == "dali" else None
