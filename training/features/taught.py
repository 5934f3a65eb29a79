"""The logits of a teacher, computed once per machine for each training image where the images repeat in each epoch."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch

from training.data.files.images import ImageData
from training.data.files.pixel_store import cache_limit
from training.data.pipelines.sampling import Draw, ShareBatches
from training.features.stored import FeatureMaker, StoredFeatures
from training.features.use import find_random_input
from training.loop.classifier import Classifier
from training.model.teacher import TrainedTeacher

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _WholeTeacher:
    """The teacher in the form of a frozen part of a model, whose features are its logits."""

    teacher: TrainedTeacher

    @property
    def prefix(self) -> str:
        return f"{self.teacher.model} on {self.teacher.side}"

    def compute_features(self, images: torch.Tensor) -> torch.Tensor:
        return self.teacher.predict(images)

    def weights(self) -> Iterable[tuple[str, torch.Tensor]]:
        input_tensors = {"scale": self.teacher.scale, "bias": self.teacher.bias, "order": self.teacher.order}
        return (input_tensors | self.teacher.model.state_dict()).items()


class TaughtLogits:
    """The stored logits in the order of the training's batches."""

    def __init__(self, stored: StoredFeatures, batches: ShareBatches) -> None:
        self.stored, self.batches = stored, batches
        self.draws: list[list[Draw]] = []

    def begin(self, epoch: int) -> None:
        """Prepare the batches of the epoch after `epoch` completed ones."""
        self.batches.sampler.set_epoch(epoch)
        self.draws = list(self.batches)

    def of(self, batch_index: int) -> torch.Tensor:
        """Return the logits (N, classes) for a batch of this epoch."""
        return self.stored.__getitems__(self.draws[batch_index])[0].values


def store_logits(classifier: Classifier, data: ImageData, batches: ShareBatches, workers: int) -> None:
    """Let a training read its teacher's logits from the store if it would otherwise compute the same ones again."""
    recipe, plan, images = classifier.recipe, classifier.plan, len(data.train)
    obstacle = find_random_input(classifier)
    if plan.lesson is None or obstacle or plan.rank.count > 1 or recipe.precision.mode == "64-true":
        return
    if recipe.epochs * (recipe.data.epoch_size or images) <= images or cache_limit("features") == 0:
        return
    teacher = cast(TrainedTeacher, plan.lesson.teacher)
    teacher.to(torch.device(plan.device), torch.float32)
    maker = FeatureMaker(_WholeTeacher(teacher), recipe, plan.device, workers)
    plain = recipe.without("evaluation_size")  # the training's size of images
    if maker.fits(data.train, plain):
        classifier.taught = TaughtLogits(maker.make(data.train, plain), batches)
        logger.info("The teacher's logits are stored (%d MB).", maker.size_of(data.train, plain) >> 20)
