"""Distillation: learn the predictions of a trained model beside the labels (Hinton et al. 2015, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import Lesson, TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView

if TYPE_CHECKING:
    import torch


class Distillation(Technique):
    interactions: ClassVar[str] = (
        "The teacher sees each image as the student does, cropped, augmented and mixed (Beyer et al. 2022), so it costs a "
        "forward pass in each step, and training starts at the images, not at stored features. Images are normalised and "
        "resized for it. "
        "class_balance=weights and label_smoothing apply to the labels' term alone. The student's export and checkpoints do "
        "not have the teacher. Longer trainings gain more. For the best trial of a sweep as a teacher, export it: it has seen "
        "the same training images, and neither those of validation nor of test."
    )
    places: ClassVar[tuple[str, ...]] = ("teacher",)
    prepared_fields: ClassVar[tuple[str, ...] | Literal["all"]] = ("teacher",)
    examples: ClassVar[Examples] = ({"distillation": {"teacher": "exports/teacher"}},)

    teacher: str | None = Field(
        None, min_length=1, description="Folder of an export or trial, or best.ckpt; null: off."
    )
    weight: float = Field(0.5, gt=0, le=1, description="Weight of the teacher; the rest is that of the labels.")
    temperature: float = Field(
        2.0,
        gt=0,
        le=100,
        description="Both predictions are made softer by it; the term is multiplied by its square, so that the gradient stays.",
    )

    def apply(self, setup: TrainingSetup) -> None:
        assert self.teacher is not None
        assert setup.read_teacher is not None
        setup.lesson = Lesson(setup.read_teacher(self.teacher), self.join)

    def join(self, loss: torch.Tensor, logits: torch.Tensor, teacher_logits: torch.Tensor) -> torch.Tensor:
        """Return the loss with the teacher's term: the mean divergence of the images, for logits (N, classes)."""
        import torch
        from torch.nn import functional as F

        dtype = torch.promote_types(logits.dtype, torch.float32)
        student, given = ((values.to(dtype) / self.temperature).log_softmax(1) for values in (logits, teacher_logits))
        divergence = F.kl_div(student, given, log_target=True, reduction="batchmean")
        return (1 - self.weight) * loss + self.weight * self.temperature**2 * divergence

    def conflict(self, recipe: RecipeView) -> str | None:
        if self.teacher is None and self.is_on:
            return "distillation.weight and temperature do nothing without distillation.teacher: name one."
        return None
