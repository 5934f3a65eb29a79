"""Validate and save an average of the weights: one that is kept here, or one that the optimizer keeps itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import lightning.pytorch as pl
import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import get_ema_multi_avg_fn

from training.contract.schedule import Curve
from training.contract.setup import TrainedModule
from training.contract.view import RecipeView
from training.distributed.progress import mark
from training.distributed.sharding import divide_like, gather_whole
from training.loop.checkpoint import Saved
from training.model.batch_statistics import measuring_statistics

Shares = Callable[[RecipeView, Sequence[int]], Callable[[int], float]]


class WeightAverage(pl.Callback):
    """Validate, score and save the average in place of the weights, from the first average on.

    Lightning's callbacks load the average for the validation alone, or only after the training, so the saved weights
    would differ from the scored ones. Here the two are swapped before the validation and again before the next epoch.
    The score of each epoch is therefore the score of what is saved: the average if there is one, else the weights. A
    scheduler that compares trials early relies on that.
    """

    def __init__(self, shares: Shares, refresh_batch_norm: bool) -> None:
        self.shares = shares
        self.refreshes = refresh_batch_norm
        self.has_begun = self.is_in_place = self.has_changed = False
        self.saved: list[torch.Tensor] | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        module = cast(TrainedModule, pl_module)
        self.share = self.shares(module.recipe, module.epoch_steps)
        # A tensor that several layers share is listed once.
        weights = {id(value): value.detach() for value in module.model.state_dict(keep_vars=True).values()}
        self.weights = list(weights.values())
        if self.saved is None:
            self.beside = [value.clone() for value in self.weights]
        else:
            self.beside = [divide_like(value, weight) for value, weight in zip(self.saved, self.weights, strict=True)]
        self.seen = trainer.global_step

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.is_in_place:
            self._swap()

    @torch.no_grad()
    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: object) -> None:
        step, before = trainer.global_step, self.seen
        self.seen = step
        if step == before or not (share := self.share(step)):
            return
        kept = []
        if adapters := cast(TrainedModule, pl_module).plan.adapters:  # a product of averages is no average of products
            kept = [value.clone() for value in self.weights]
            adapters.fold(cast(TrainedModule, pl_module).model)
        # A sharded model has plain tensors as well.
        for tensor_type in {(type(value), value.dtype) for value in self.weights}:
            average, weights = (
                [value for value in side if (type(value), value.dtype) == tensor_type]
                for side in (self.beside, self.weights)
            )
            if tensor_type[1].is_floating_point:
                get_ema_multi_avg_fn(1 - share)(average, weights, 0)
            else:  # counts are not averaged: the latest value is copied
                for count, latest in zip(average, weights, strict=True):
                    count.copy_(latest)
        for weights, value in zip(self.weights, kept, strict=False):
            weights.copy_(value)
        self.has_begun = self.has_changed = True

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.has_begun:
            self._swap()
            if adapters := cast(TrainedModule, pl_module).plan.adapters:
                adapters.clear(cast(TrainedModule, pl_module).model)
            if self.refreshes and self.has_changed:
                refresh_batch_norm(trainer, cast(TrainedModule, pl_module))
            self.has_changed = False

    @torch.no_grad()
    def _swap(self) -> None:
        for average, weights in zip(self.beside, self.weights, strict=True):
            before = weights.clone()
            weights.copy_(average)
            average.copy_(before)
        self.is_in_place = not self.is_in_place

    def state_dict(self) -> dict[str, object]:
        return {
            "has_begun": self.has_begun,
            "is_in_place": self.is_in_place,
            "beside": [gather_whole(value) for value in self.beside],
        }

    def load_state_dict(self, state_dict: Saved) -> None:
        self.has_begun, self.is_in_place = state_dict["has_begun"], state_dict["is_in_place"]
        self.saved = state_dict["beside"]


class AveragingRate(pl.Callback):
    """Change the learning rate after the start of averaging."""

    def __init__(self, change_curve: Callable[[Curve, Sequence[int]], Curve]) -> None:
        self.change_curve = change_curve

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        schedule = cast(LambdaLR, trainer.lr_scheduler_configs[0].scheduler)
        steps = cast(TrainedModule, pl_module).epoch_steps
        schedule.lr_lambdas = [self.change_curve(curve, steps) for curve in schedule.lr_lambdas]


@torch.no_grad()
def refresh_batch_norm(trainer: pl.Trainer, classifier: TrainedModule) -> None:
    """Recompute BatchNorm's statistics on an epoch of training images without mixing (Izmailov et al. 2018, section 3.2)."""
    frozen = set(classifier.plan.frozen)
    layers = (module for module in classifier.model.modules() if isinstance(module, _BatchNorm))
    norms = [norm for norm in layers if norm.track_running_stats and norm not in frozen]
    if not norms:
        return
    with measuring_statistics(norms):
        for batch in cast(Iterable[object], trainer.train_dataloader):
            converted = trainer.precision_plugin.convert_input(batch)
            images, _ = trainer.strategy.batch_to_device(converted, classifier.device)
            with trainer.precision_plugin.forward_context():
                classifier(images)
            mark()


class OwnAverage(pl.Callback):
    """Switches the optimizer between its two points: where gradients are taken, and the average that it keeps.

    A resume begins with the average, as every epoch does.
    """

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.optimizers[0].train()  # type: ignore[attr-defined]

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.optimizers[0].eval()  # type: ignore[attr-defined]
        refresh_batch_norm(trainer, cast(TrainedModule, pl_module))  # they were measured at the other point
