"""Choose the backbone of a preset: a few batches are trained with each candidate until one is fast enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from search.presets.rules import LADDER, choose_side, count_trials, first_rung
from search.presets.space_text import Choice, write_space
from spaces.load import change_recipe, parse_space
from training.contract.specs import Backbone
from training.errors import UserError
from training.recipe import Recipe


@dataclass(frozen=True)
class Candidate:
    """A backbone with its reason, and the seconds of one epoch and of the start of a trial; infinite: no memory for it."""

    choice: Choice
    epoch_seconds: float
    setup_seconds: float
    epochs: int


def choose_backbone(draft: Choice, others: Sequence[str], seconds: float) -> Candidate:
    """Return the largest backbone with which the fewest trials fit into the time, else the smallest one."""
    if named := [override for override in others if part_of(override) == "backbone"]:
        backbone = change_recipe(Recipe(), named).backbone
        return _measure(_with_backbone(draft, backbone, f"{backbone.name}, as the command says"), others)
    available, problem = _list_available(LADDER[first_rung(draft.preset, draft.machine) :: -1])
    if not available:
        reason = f"test_resnet, pretrained on drawn letters, because no pretrained weights can be had: {problem}"
        return _measure(replace(draft, reason=reason), others)
    too_slow: list[str] = []
    for backbone in available:
        reason = f"{backbone.name}, pretrained on ImageNet"
        if too_slow:
            reason += f", because {' and '.join(too_slow)} would be too slow or too large here"
        found = _measure(_with_backbone(draft, backbone, reason), others)
        if count_fitting(found, seconds) >= draft.preset.trials[0]:
            break
        too_slow.append(backbone.name)
    return found


def _with_backbone(draft: Choice, backbone: Backbone, reason: str) -> Choice:
    from training.model.weights import pretrained_config

    config = pretrained_config(backbone)
    side = choose_side(draft.data, backbone, None if config is None else int(max(config["input_size"][1:])))
    return replace(draft, backbone=backbone, reason=reason, side=side)


def _list_available(names: Sequence[str]) -> tuple[list[Backbone], str]:
    """Return the backbones whose weights are cached or can be fetched, and why the first of the others is not."""
    from training.model.weights import locate_weights

    found, problem = [], ""
    for name in names:
        try:
            locate_weights(Backbone(name=name))
            found.append(Backbone(name=name))
        except UserError as error:
            problem = problem or str(error).partition(": ")[2].split(". ")[0]
    return found, problem


def _measure(choice: Choice, others: Sequence[str]) -> Candidate:
    """Train a few batches of the baseline.

    Raises:
        UserError: it cannot be trained here, for another reason than memory.
    """
    import torch

    from search.planning.cost_model import epoch_seconds
    from training.cost import measure_cost

    recipe = parse_space(write_space(choice, []), choice.preset.name, others).baselines()[0]
    # Random weights take the same time, and need no download.
    untrained = recipe.model_copy(update={"backbone": recipe.backbone.model_copy(update={"weights": "none"})})
    try:
        cost = measure_cost(untrained, "full", choice.machine.resources)
    except torch.OutOfMemoryError:
        return Candidate(choice, math.inf, 0.0, recipe.epochs)
    return Candidate(choice, epoch_seconds(cost), cost.setup_seconds, recipe.epochs)


def count_fitting(found: Candidate, seconds: float, epochs: int | None = None) -> int:
    """Return the number of trials that fit into the time, with the epochs of the candidate unless others are given."""
    slots = found.choice.machine.slots
    return count_trials(seconds, slots, epochs or found.epochs, found.epoch_seconds, found.setup_seconds)


def part_of(override: str) -> str:
    """Return the part of a recipe that an override sets, such as `data`."""
    return override.partition("=")[0].strip().removeprefix("recipe.").split(".")[0]
