"""Snapshots: an ensemble of the weights at the minima of a cyclic learning rate, from one training (Huang et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView


class Snapshots(Technique):
    interactions: ClassVar[str] = (
        "It needs schedule cosine_restarts, at a rate that moves the weights far in each cycle; the rate of the training is "
        "otherwise unchanged. Probabilities are averaged, not weights as by averaging swa at the same minima. The exported "
        "model holds all members: its size and the time of a prediction grow by their number, and so does validation. "
        "Until the first minimum the weights themselves are scored, then the members so far, so the score does not change "
        "between two minima and early rungs compare trials without it."
    )
    examples: ClassVar[Examples] = (
        {"snapshots": {"members": 2}, "schedule": {"name": "cosine_restarts", "cycles": 2}, "epochs": 4},
    )
    changes_weights: ClassVar[bool] = False

    members: int = Field(0, ge=0, le=20, description="Number of last minima whose predictions are averaged; 0: off.")

    def apply(self, setup: TrainingSetup) -> None:
        from training.callbacks.snapshots import SnapshotKeeper

        setup.members = SnapshotKeeper(self.moments)
        setup.callbacks.append(setup.members)

    def moments(self, recipe: RecipeView, epoch_steps: Sequence[int]) -> list[int]:
        """Return the optimizer steps after which the weights become a member."""
        # A test of the batch size or the learning rate has another schedule, without minima.
        return recipe.schedule.minima(epoch_steps)[-self.members :]

    def conflict(self, recipe: RecipeView) -> str | None:
        if not self.is_on:
            return None
        field, schedule = f"snapshots.members={self.members}", recipe.schedule
        if self.members == 1:
            return f"{field}: an ensemble has at least 2 members. Set 2 or more, or 0."
        if not schedule.cycle_count:
            return f"{field} needs the minima of schedule.name=cosine_restarts: set that schedule, or members=0."
        if self.members > schedule.cycle_count:
            return f"{field}: schedule.cycles={schedule.cycle_count} has only so many minima. Lower members or raise cycles."
        if recipe.averaging.is_on:
            return f"{field} would replace the average of averaging: set averaging.name=none, or members=0."
        if (devices := recipe.data_parallel.devices) > 1:
            return f"{field} works on one device, not on data_parallel.devices={devices}: set 1."
        return None
