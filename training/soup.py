"""The mean of the weights of trainings from one start (a soup, Wortsman et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from training.data.files.images import ImageData
from training.data.pipelines.loaders import make_eval_loader
from training.evaluate import load_same_data, predict_part, restore_model
from training.loop.metrics import Columns, compare, judge, measure
from training.model.batch_statistics import measuring_statistics
from training.recipe import Recipe
from training.score_metrics import is_better

Weights = dict[str, torch.Tensor]
Evaluated = tuple[Weights, Columns, dict[str, float], float]  # with the metrics and the standard error of one of them


@dataclass(frozen=True)
class Ingredient:
    """One training: its resolved recipe and its best weights, as the library builds the model."""

    name: str
    recipe: Recipe
    weights: Weights


@dataclass(frozen=True)
class Cooked:
    """The mean of some trainings, its validation metrics, and the gain over the first of them with its standard error."""

    names: tuple[str, ...]
    weights: Weights
    metrics: dict[str, float]
    standard_error: float
    gain: float
    gain_error: float


def cook(ingredients: Sequence[Ingredient], classes: tuple[str, ...], metric: str, *, device: str = "cpu") -> Cooked:
    """Add one training after the other to the mean, and keep each that does not make the validation metric worse.

    The ingredients are trainings from the same start on the same data, best first. The first one's recipe gives the
    preprocessing.
    """
    first = ingredients[0]
    evaluate = partial(_evaluate, load_same_data(first.recipe, classes), len(classes), metric, device)
    chosen, alone = [first], evaluate([first])
    best = alone
    for ingredient in ingredients[1:]:
        tried = evaluate([*chosen, ingredient])
        if not is_better(metric, best[2][metric], tried[2][metric]):
            chosen, best = [*chosen, ingredient], tried
    weights, columns, metrics, error = best
    gain, gain_error = compare(alone[1], columns, len(classes), metric)
    names = tuple(ingredient.name for ingredient in chosen)
    return Cooked(names, weights, metrics, error, gain, gain_error)


def _evaluate(data: ImageData, class_count: int, metric: str, device: str, chosen: Sequence[Ingredient]) -> Evaluated:
    model = mix(chosen, data, class_count, device)
    columns = judge(*predict_part(model, data.val, chosen[0].recipe, device=device))
    return model.cpu().state_dict(), columns, *measure(columns, class_count, metric)


def mix(ingredients: Sequence[Ingredient], data: ImageData, class_count: int, device: str = "cpu") -> nn.Module:
    """Return the model with the mean weights, in eval mode; BatchNorm is measured where the trainings' statistics differ."""
    recipe = ingredients[0].recipe
    states = [ingredient.weights for ingredient in ingredients]
    model = restore_model(recipe, average(states), class_count).to(device)
    norms = [
        module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and _differ([state.get(f"{name}.running_mean") for state in states])
    ]
    if norms:
        with torch.no_grad(), measuring_statistics(norms):
            for images, _ in make_eval_loader(data.train, recipe, workers=0, device=device):
                model(images.to(device))
    return model


def average(states: Sequence[Weights]) -> Weights:
    """Return the mean of each tensor; of whole numbers, such as counts, those of the first."""
    return {
        name: torch.stack([state[name] for state in states]).mean(0) if value.is_floating_point() else value
        for name, value in states[0].items()
    }


def _differ(values: Sequence[torch.Tensor | None]) -> bool:
    first = values[0]
    return first is not None and any(other is not None and not torch.equal(first, other) for other in values[1:])
