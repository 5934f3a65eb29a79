"""Data parallelism: each device computes its share of every batch, and gradients are averaged (Li et al. 2020).

With fsdp, each device also stores only its share of the weights and the optimizer's state (Zhao et al. 2023).
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from training.contract.part import Examples
from training.contract.setup import TrainingSetup
from training.contract.technique import Technique
from training.contract.view import RecipeView

SHARDED = ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw")  # optimizers that were tried with fsdp


class DataParallel(Technique):
    interactions: ClassVar[str] = (
        "batch_size counts the images of one forward pass on all devices together, so steps, schedules, lr_scaling and "
        "accumulation mean the same on any number of devices. BatchNorm sees the share of one device, or the whole batch with "
        "sync_batch_norm; mixup, cutmix and fmix mix within a share. A last batch with fewer than two images for each device "
        "is dropped. batch_size=auto works on one device only. fsdp changes memory and time only, except for rounding: use "
        "it with activation_checkpointing for backbones that do not fit into one device. It cannot be combined with "
        "milestone_lr, lora, channels_last, compilation, 16-mixed, adafactor, adam8bit and timm's optimizers. Several devices "
        "help if a batch keeps each busy; the more devices a trial has, the fewer are left for other trials."
    )
    examples: ClassVar[Examples] = (
        {"data_parallel": {"devices": 2}},
        {"data_parallel": {"devices": 2, "strategy": "fsdp"}},
    )
    changes_weights: ClassVar[bool] = False

    devices: int = Field(1, ge=1, le=1024, description="GPUs of a trial; without GPUs, processes that share its CPUs.")
    strategy: Literal["ddp", "fsdp"] = Field(
        "ddp",
        description="ddp: each device stores the whole model; fsdp: its share of the model and of the optimizer's state.",
    )
    sync_batch_norm: bool = Field(False, description="Compute BatchNorm's statistics over all devices together.")

    def apply(self, setup: TrainingSetup) -> None:
        from training.distributed.sync_batch_norm import synchronise

        setup.set_trainer(devices=self.devices)
        if self.sync_batch_norm:
            synchronise(setup.model, setup.device)

    @property
    def breaks_features(self) -> str:
        return "each device computes a share of a batch" if self.devices > 1 else ""

    def conflict(self, recipe: RecipeView) -> str | None:
        field = f"data_parallel.devices={self.devices}"
        if self.devices == 1:
            if not self.is_on:
                return None
            idle = "sync_batch_norm=true" if self.sync_batch_norm else f"strategy={self.strategy}"
            return f"data_parallel.{idle} does nothing with {field}: raise devices, or leave it out."
        if self.sync_batch_norm and recipe.unfreeze.freeze_batch_norm:
            return (
                "data_parallel.sync_batch_norm=true does nothing with unfreeze.freeze_batch_norm=true: leave one out."
            )
        if self.strategy == "fsdp" and (other := _find_undivided(recipe)):
            return f"data_parallel.strategy=fsdp does not work with {other}: leave one out, or use strategy=ddp."
        if recipe.batch_size == "auto":
            return f"batch_size=auto is found by filling one GPU, so it cannot be used with {field}: give a number."
        if recipe.batch_size < 2 * self.devices:
            return (
                f"batch_size={recipe.batch_size} with {field} leaves a device less than the two images that BatchNorm needs: "
                f"raise batch_size to {2 * self.devices}, or take fewer devices."
            )
        return None


def _find_undivided(recipe: RecipeView) -> str | None:
    """Return the first field of a recipe that needs undivided weights or a special layout of them.

    The order is the one in which a space draws the fields, because it calls this before all of them are drawn.
    """
    if str(rate := recipe.unfreeze.milestone_lr).startswith("auto"):
        return f"unfreeze.milestone_lr={rate}"
    if (lora := recipe.lora).is_on:
        return f"lora.rank={lora.rank}"
    if (optimizer := recipe.optimizer.name) not in SHARDED:
        return f"optimizer.name={optimizer}"
    if recipe.precision.mode == "16-mixed":
        return "precision.mode=16-mixed"
    if recipe.channels_last.is_on:
        return "channels_last.enabled=true"
    if (compilation := recipe.compilation).is_on:
        return f"compilation.backend={compilation.backend}"
    return None
