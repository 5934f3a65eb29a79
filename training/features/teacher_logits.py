"""The logits of a teacher, computed once per machine for each training image where the images repeat in each epoch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from training.data.pipelines.sampling import Draw, ShareBatches
from training.features.stored import StoredFeatures
from training.model.teacher import TrainedTeacher


@dataclass(frozen=True)
class WholeTeacher:
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


class TeacherLogits:
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
