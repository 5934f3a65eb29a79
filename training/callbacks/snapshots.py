"""Keep the weights at certain optimizer steps, and put them into the model one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import lightning.pytorch as pl
import torch

from training.contract.setup import TrainedModule
from training.contract.view import RecipeView

Moments = Callable[[RecipeView, Sequence[int]], list[int]]


class SnapshotKeeper(pl.Callback):
    """Copies the weights after the optimizer steps that `moments` returns."""

    def __init__(self, moments: Moments) -> None:
        self.moments = moments
        self.members: list[list[torch.Tensor]] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        module = cast(TrainedModule, pl_module)
        self.steps = self.moments(module.recipe, module.epoch_steps)
        # A tensor that several layers share is listed once.
        weights = {id(value): value.detach() for value in module.model.state_dict(keep_vars=True).values()}
        self.weights = list(weights.values())
        self.members = [[value.to(module.device) for value in member] for member in self.members]
        self.seen = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: object) -> None:
        step, before = trainer.global_step, self.seen
        self.seen = step
        if step != before and step in self.steps:
            self.members.append([value.clone() for value in self.weights])

    def visit(self) -> Iterator[None]:
        """Put each member into the model in turn, then the model's own weights; without members once, as it is."""
        if not self.members:
            yield
            return
        model_weights = [value.clone() for value in self.weights]
        try:
            for member in self.members:
                self._load(member)
                yield
        finally:
            self._load(model_weights)

    @torch.no_grad()
    def _load(self, values: list[torch.Tensor]) -> None:
        for weight, value in zip(self.weights, values, strict=True):
            weight.copy_(value)

    def state_dict(self) -> dict[str, list[list[torch.Tensor]]]:
        return {"members": self.members}

    def load_state_dict(self, state_dict: dict[str, list[list[torch.Tensor]]]) -> None:
        self.members = state_dict["members"]
