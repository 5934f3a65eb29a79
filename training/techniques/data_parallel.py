"""Data parallelism: each device computes its share of every batch, and gradients are averaged (Li et al. 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from training.techniques.base import Technique, TrainingSetup

if TYPE_CHECKING:
    from training.recipe import Recipe


class DataParallel(Technique):
    interactions: ClassVar[str] = (
        "batch_size stays the images of one forward pass over all devices together, so steps, schedules, lr_scaling and "
        "accumulation mean the same on any number of devices. BatchNorm sees one device's share, unless sync_batch_norm lets "
        "it see the whole batch; mixup, cutmix and fmix mix within a share. A last batch with fewer than two images for each "
        "device is dropped. batch_size=auto is found for one device only. It pays where a batch keeps each device busy: a "
        "trial that has more devices leaves fewer for others beside it."
    )

    devices: int = Field(1, ge=1, description="GPUs of one trial; without GPUs, processes that divide its CPUs.")
    sync_batch_norm: bool = Field(False, description="Measure BatchNorm's statistics over all devices, not over each.")

    def apply(self, setup: TrainingSetup) -> None:
        from training.sync_batch_norm import synchronise

        setup.set_trainer(devices=self.devices)
        if self.sync_batch_norm:
            synchronise(setup.model, setup.device)

    def conflict(self, recipe: Recipe) -> str | None:
        field = f"data_parallel.devices={self.devices}"
        if self.devices == 1:
            if not self.sync_batch_norm:
                return None
            return f"data_parallel.sync_batch_norm=true does nothing with {field}: raise devices, or leave it out."
        if recipe.batch_size == "auto":
            return f"batch_size=auto is found by filling one GPU, which says nothing about {field}: give a number."
        if recipe.batch_size < 2 * self.devices:
            return (
                f"batch_size={recipe.batch_size} with {field} leaves a device less than the two images that BatchNorm needs: "
                f"raise batch_size to {2 * self.devices}, or take fewer devices."
            )
        return None
