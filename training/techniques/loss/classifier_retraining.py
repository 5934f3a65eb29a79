"""Classifier retraining for long tails: a new head on the frozen backbone, with balanced classes (Kang et al. 2020, cRT)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from pydantic import Field

from training.contract.part import MOST, Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView
from training.errors import UserError


class ClassifierRetraining(Technique):
    interactions: ClassVar[str] = (
        "Long tails hurt the head more than the features, so the features are trained on all images as they come, and only "
        "the head with every class equally often. Before the last epochs the head gets random weights again, the rest of the "
        "model freezes, and the schedule, which has ended, begins again. Scores fall there at first; use val_balanced_accuracy "
        "or val_macro_f1 as the metric, because val_accuracy favours frequent classes and so an epoch before. A trial that is "
        "stopped before those epochs has trained without it. class_balance and loss.name=logit_adjusted would correct the same "
        "imbalance twice, and averages would contain two heads: both are refused."
    )
    examples: ClassVar[Examples] = ({"classifier_retraining": {"epochs": 2}},)

    epochs: int = Field(
        0, ge=0, le=MOST, description="Number of last epochs in which a new head trains alone; 0: off.", examples=[1]
    )

    def apply(self, setup: TrainingSetup) -> None:
        from training.callbacks.unfreezing import HeadRetraining, find_restart
        from training.callbacks.weight_average import AveragingRate
        from training.model.stages import head_of

        head = head_of(setup.model)
        restartable = {p for part in head.modules() if find_restart(part) for p in part.parameters(recurse=False)}
        if missing := set(head.parameters()) - restartable:
            raise UserError(
                f"classifier_retraining.epochs={self.epochs}: {len(missing)} tensors in the head of "
                f"{type(setup.model).__name__} belong to modules without reset_parameters, so it cannot start again. Set 0."
            )
        setup.callbacks.extend([HeadRetraining(self.epochs), AveragingRate(self.change_curve)])

    def change_curve(self, curve: Callable[[int], float], epoch_steps: Sequence[int]) -> Callable[[int], float]:
        """Return the factor on lr: the whole schedule until the retraining, and the whole schedule again."""
        total, begin = sum(epoch_steps), sum(epoch_steps[: -self.epochs])

        def factor(step: int) -> float:
            done, steps = (step, begin) if step < begin else (step - begin, total - begin)
            return curve(round(done * total / steps))

        return factor

    def conflict(self, recipe: RecipeView) -> str | None:
        if not self.epochs:
            return None
        field, unfreeze = f"classifier_retraining.epochs={self.epochs}", recipe.unfreeze
        if self.epochs >= recipe.epochs:
            return f"{field} leaves nothing of epochs={recipe.epochs} to train the features: lower it."
        if unfreeze.deepest == "last" and not recipe.lora.is_on:
            return f"{field}: unfreeze.level=last trains the head alone in all epochs. Use class_balance.name=sampler."
        if unfreeze.milestones and unfreeze.milestones[-1] >= recipe.epochs - self.epochs:
            return f"{field} freezes the backbone before unfreeze.milestones={unfreeze.milestones}: lower one of them."
        if recipe.class_balance.is_on:
            name = recipe.class_balance.name
            return f"{field} and class_balance.name={name} would correct the same imbalance twice: set name=none."
        if recipe.loss.name == "logit_adjusted":
            return f"{field} and loss.name=logit_adjusted would correct the same imbalance twice: set another loss."
        averages = {
            "averaging": recipe.averaging.is_on,
            "snapshots": recipe.snapshots.is_on,
            "optimizer.name=schedule_free": recipe.optimizer.name == "schedule_free",
        }
        if on := next((name for name, is_on in averages.items() if is_on), None):
            return f"{field} starts a new head, and {on} would average it with the one before: leave one out."
        if recipe.data_parallel.strategy == "fsdp":
            return f"{field} cannot start a head again that data_parallel.strategy=fsdp has divided: use ddp."
        return None
