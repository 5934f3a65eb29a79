"""The learning rate of each optimizer step of a recipe, without training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch.optim.lr_scheduler import LambdaLR

from training.callbacks.weight_average import AveragingRate
from training.data.load_data import load_data
from training.distributed.rank import Rank
from training.loop.classifier import Classifier
from training.process.isolation import isolated_process
from training.recipe import Recipe
from training.resolve import resolve_recipe
from training.train import prepare

# They change no rate, and some of them need a GPU.
RATELESS = ("data_parallel", "activation_checkpointing", "precision", "channels_last", "compilation", "cudnn_benchmark")


@dataclass(frozen=True)
class RateGroup:
    """Parameters with the same learning rate."""

    first: str  # name of the first parameter in the order of the model
    last: str
    numbers: int  # of all its parameters together
    rates: tuple[float, ...]  # learning rate of each optimizer step


@dataclass(frozen=True)
class RatePlan:
    """The optimizer steps of a training and their learning rates; the group with the highest rate comes first."""

    epoch_images: int
    epoch_steps: tuple[int, ...]  # optimizer steps of each epoch
    step_images: tuple[int, ...]  # images of the first step of each epoch
    groups: tuple[RateGroup, ...]
    notes: tuple[str, ...]  # sentences about what is found only in training


def plan_rates(recipe: Recipe) -> RatePlan:
    """Build a training as `train` does, and read the rate of each step. No weights are fetched."""
    data = load_data(recipe.data)
    resolved = resolve_recipe(recipe, data, "cpu")
    notes = _list_notes(resolved)
    optimizer = resolved.optimizer
    if isinstance(optimizer.lr, str):
        optimizer = optimizer.model_copy(update={"lr": 1.0})
    backbone = resolved.backbone.model_copy(update={"weights": "none"})
    plain = resolved.without(*RATELESS).model_copy(update={"backbone": backbone, "optimizer": optimizer})
    with isolated_process(plain.seed, torch.get_num_threads()):
        classifier = prepare(data, "cpu", Rank(0, recipe.data_parallel.devices), plain)
        groups = _read_groups(classifier)
    batches = classifier.plan.batch_sizes
    first = [sum(batches[: classifier.batches_in(epoch)]) for epoch in range(plain.epochs)]
    return RatePlan(sum(batches), tuple(classifier.epoch_steps), tuple(first), groups, notes)


def _list_notes(recipe: Recipe) -> tuple[str, ...]:
    notes = []
    if isinstance(recipe.optimizer.lr, str):
        notes.append(f"optimizer.lr={recipe.optimizer.lr} is found in training: the rates below are multiples of it.")
    if recipe.unfreeze.milestone_lr != "keep":
        notes.append(f"unfreeze.milestone_lr={recipe.unfreeze.milestone_lr} changes the rates after each milestone.")
    return tuple(notes)


def _read_groups(classifier: Classifier) -> tuple[RateGroup, ...]:
    schedule = cast(LambdaLR, classifier.build_optimizer()[1])
    curves = list(schedule.lr_lambdas)
    for callback in classifier.plan.callbacks:
        if isinstance(callback, AveragingRate):
            curves = [callback.change_curve(curve, classifier.epoch_steps) for curve in curves]
    members: dict[tuple[float, ...], list[torch.nn.Parameter]] = {}
    for base, curve, group in zip(schedule.base_lrs, curves, schedule.optimizer.param_groups, strict=True):
        rates = tuple(float(base) * curve(step) for step in range(sum(classifier.epoch_steps)))
        members.setdefault(rates, []).extend(group["params"])
    names = {parameter: name for name, parameter in classifier.model.named_parameters()}
    places = {parameter: place for place, parameter in enumerate(names)}
    groups = []
    for rates, parameters in members.items():
        ordered = sorted(parameters, key=places.__getitem__)
        count = sum(parameter.numel() for parameter in ordered)
        groups.append(RateGroup(names[ordered[0]], names[ordered[-1]], count, rates))
    return tuple(sorted(groups, key=lambda group: -max(group.rates)))
