"""Mean weights: of trainings from one start (a soup, Wortsman et al. 2022b), or of one and its start (WiSE-FT, 2022a)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from training.data.files.images import ImageData
from training.data.pipelines.loaders import make_eval_loader
from training.errors import UserError
from training.evaluate import load_same_data, predict_part, restore_model
from training.loop.metrics import Columns, compare, judge, measure
from training.model.batch_statistics import measuring_statistics
from training.model.build import build_model
from training.model.stages import head_of
from training.recipe import Recipe
from training.score_metrics import is_better

Weights = dict[str, torch.Tensor]
Evaluated = tuple[Weights, Columns, dict[str, float], float]  # with the metrics and the standard error of one of them

ALPHAS = tuple(tenths / 10 for tenths in range(9, -1, -1))


@dataclass(frozen=True)
class Ingredient:
    """One training: its resolved recipe and its best weights, as the library builds the model."""

    name: str
    recipe: Recipe
    weights: Weights


@dataclass(frozen=True)
class Cooked:
    """The mean of some trainings, its validation metrics, and the gain over the first of them with its standard error.

    `scores` has the metric of each share of the trained weights that was tried in a mean with the start; `alpha` is the
    chosen one.
    """

    names: tuple[str, ...]
    weights: Weights
    metrics: dict[str, float]
    standard_error: float
    gain: float
    gain_error: float
    alpha: float | None = None
    scores: dict[float, float] = field(default_factory=dict)


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
    return _finish(chosen, alone, best, metric, len(classes))


def mix_with_start(
    trained: Ingredient, classes: tuple[str, ...], metric: str, alpha: float | None = None, *, device: str = "cpu"
) -> Cooked:
    """Average a training with its pretrained start: alpha · trained + (1 - alpha) · start. The head stays as trained.

    Without `alpha`, it is the best of 0, 0.1, … 1 by the validation metric, the smallest one among equals.
    """
    start = read_start(trained, len(classes))
    data = load_same_data(trained.recipe, classes)
    evaluate = partial(_evaluate, data, len(classes), metric, device)
    alone = best = evaluate([trained])
    chosen, scores = 1.0, {1.0: alone[2][metric]}
    for share in ALPHAS if alpha is None else (alpha,):
        tried = evaluate([trained, start], (share, 1 - share))
        scores[share] = tried[2][metric]
        if alpha is not None or not is_better(metric, best[2][metric], scores[share]):
            chosen, best = share, tried
    return replace(_finish([trained], alone, best, metric, len(classes)), alpha=chosen, scores=scores)


def read_start(trained: Ingredient, class_count: int) -> Ingredient:
    """Return the weights from which a training started. Its head started at random, so this is the trained one."""
    recipe, weights = trained.recipe, trained.weights
    if recipe.backbone.weights == "none":
        raise UserError(
            f"trial {trained.name} has backbone.weights=none, so it started at random weights: there is no pretrained start."
        )
    side = recipe.evaluation_preprocessing.side
    model = build_model(recipe.backbone, class_count, side)
    model_weights = model.state_dict(keep_vars=True)
    head = {id(value) for value in head_of(model).state_dict(keep_vars=True).values()}
    start = {name: value.detach().to(weights[name]) for name, value in model_weights.items() if id(value) not in head}
    if all(torch.equal(value, weights[name]) for name, value in start.items()):
        raise UserError(
            f"trial {trained.name} trained its head alone (unfreeze.level={recipe.unfreeze.level}), so there is nothing to "
            "average: its backbone is the pretrained one. Name another with --trial."
        )
    return Ingredient("start", recipe, weights | start)


def _evaluate(
    data: ImageData,
    class_count: int,
    metric: str,
    device: str,
    chosen: Sequence[Ingredient],
    shares: Sequence[float] | None = None,
) -> Evaluated:
    model = mix(chosen, data, class_count, device, shares)
    columns = judge(*predict_part(model, data.val, chosen[0].recipe, device=device))
    return model.cpu().state_dict(), columns, *measure(columns, class_count, metric)


def _finish(chosen: Sequence[Ingredient], alone: Evaluated, best: Evaluated, metric: str, class_count: int) -> Cooked:
    weights, columns, metrics, error = best
    change = compare(alone[1], columns, class_count, metric)
    return Cooked(tuple(ingredient.name for ingredient in chosen), weights, metrics, error, *change)


def mix(
    ingredients: Sequence[Ingredient],
    data: ImageData,
    class_count: int,
    device: str = "cpu",
    shares: Sequence[float] | None = None,
) -> nn.Module:
    """Return the model with the mean weights, in eval mode; BatchNorm is measured where the trainings' statistics differ."""
    recipe = ingredients[0].recipe
    states = [ingredient.weights for ingredient in ingredients]
    model = restore_model(recipe, average(states, shares), class_count).to(device)
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


def average(states: Sequence[Weights], shares: Sequence[float] | None = None) -> Weights:
    """Return the mean of each tensor, weighted by `shares`; of whole numbers, such as counts, those of the first."""
    parts = torch.tensor(shares or [1 / len(states)] * len(states))
    return {
        name: torch.tensordot(parts.to(value.dtype), torch.stack([state[name] for state in states]), 1)
        if value.is_floating_point()
        else value
        for name, value in states[0].items()
    }


def _differ(values: Sequence[torch.Tensor | None]) -> bool:
    first = values[0]
    return first is not None and any(other is not None and not torch.equal(first, other) for other in values[1:])
