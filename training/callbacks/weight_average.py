"""An average of the weights beside the model, and in its place whenever the model is judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import get_ema_multi_avg_fn

from training.contract.part import RecipeView
from training.contract.setup import TrainedModule
from training.distributed.sharding import divide_like, gather_whole

Shares = Callable[[RecipeView, Sequence[int]], Callable[[int], float]]
Curve = Callable[[int], float]


class WeightAverage(pl.Callback):
    """From the first average on, each epoch is validated, scored, kept and checkpointed with the average in the model's place.

    Lightning's callbacks put it there for the validation alone, or only once the training is over, so that what is kept
    would be other weights than those that were scored. Here the two change places before the validation and again before
    the next epoch. A scheduler that compares trials early so sees at each epoch the score of what would be kept if the
    trial ended there: the average where there is one, else the weights themselves.
    """

    def __init__(self, shares: Shares, refresh_batch_norm: bool) -> None:
        self.shares = shares
        self.refreshes = refresh_batch_norm
        self.has_begun = self.is_in_place = self.has_changed = False
        self.saved: list[torch.Tensor] | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        module = cast(TrainedModule, pl_module)
        self.share = self.shares(module.recipe, module.epoch_steps)
        # Weights that a model shares between layers come once.
        weights = {id(value): value.detach() for value in module.model.state_dict(keep_vars=True).values()}
        self.weights = list(weights.values())
        if self.saved is None:
            self.beside = [value.clone() for value in self.weights]
        else:
            self.beside = [divide_like(value, own) for value, own in zip(self.saved, self.weights, strict=True)]
        self.seen = trainer.global_step

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.is_in_place:
            self._change_places()

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step, before = trainer.global_step, self.seen
        self.seen = step
        if step == before or not (share := self.share(step)):
            return
        for kind in {(type(value), value.dtype) for value in self.weights}:  # of a sharded model not all are sharded
            average, weights = (
                [value for value in side if (type(value), value.dtype) == kind] for side in (self.beside, self.weights)
            )
            if kind[1].is_floating_point:
                get_ema_multi_avg_fn(1 - share)(average, weights, 0)
            else:  # counts, of which the latest are right
                for count, latest in zip(average, weights, strict=True):
                    count.copy_(latest)
        self.has_begun = self.has_changed = True

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.has_begun:
            self._change_places()
            if self.refreshes and self.has_changed:
                refresh_batch_norm(trainer, cast(TrainedModule, pl_module))
            self.has_changed = False

    @torch.no_grad()
    def _change_places(self) -> None:
        for average, weights in zip(self.beside, self.weights, strict=True):
            before = weights.clone()
            weights.copy_(average)
            average.copy_(before)
        self.is_in_place = not self.is_in_place

    def state_dict(self) -> dict[str, Any]:
        return {
            "has_begun": self.has_begun,
            "is_in_place": self.is_in_place,
            "beside": [gather_whole(value) for value in self.beside],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.has_begun, self.is_in_place = state_dict["has_begun"], state_dict["is_in_place"]
        self.saved = state_dict["beside"]


class AveragingRate(pl.Callback):
    """The learning rate from the start of averaging on."""

    def __init__(self, change_curve: Callable[[Curve, Sequence[int]], Curve]) -> None:
        self.change_curve = change_curve

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        schedule: Any = trainer.lr_scheduler_configs[0].scheduler
        steps = cast(TrainedModule, pl_module).epoch_steps
        schedule.lr_lambdas = [self.change_curve(curve, steps) for curve in schedule.lr_lambdas]


@torch.no_grad()
def refresh_batch_norm(trainer: pl.Trainer, classifier: TrainedModule) -> None:
    """Measure BatchNorm's statistics anew on an epoch of training images, unmixed (Izmailov et al. 2018, section 3.2).

    As torch's `update_bn`, which would also overwrite the statistics of frozen layers and train with dropout.
    """
    norms = _find_measuring(classifier.model, classifier.plan.frozen)
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over all batches
        norm.train()
    loader: Any = trainer.train_dataloader
    for batch in loader:
        converted = trainer.precision_plugin.convert_input(batch)
        images, _ = trainer.strategy.batch_to_device(converted, classifier.device)
        with trainer.precision_plugin.forward_context():
            classifier(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def _find_measuring(model: nn.Module, frozen: list[nn.Module]) -> list[_BatchNorm]:
    left_alone = {id(module) for module in frozen}
    norms = (module for module in model.modules() if isinstance(module, _BatchNorm) and id(module) not in left_alone)
    return [norm for norm in norms if norm.track_running_stats]
