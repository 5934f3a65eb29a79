"""Checks that a space can be searched: enough epochs for a rung, a finite grid, few draws that conflict."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from spaces.parameters.domains import Choice, IntUniform, Tree, format_value
from spaces.parameters.draws import RandomTrial
from spaces.parameters.views import encode
from spaces.reading.document import Document
from spaces.search import AshaScheduler
from training.errors import UserError
from training.recipe import Recipe, read_recipe
from training.schema import slot_of

if TYPE_CHECKING:
    from spaces.space import Space

DRAWS = 64


def check_feasible(space: Space, document: Document) -> None:
    """Refuse a space that no search could use."""
    if isinstance(scheduler := space.search.scheduler, AshaScheduler):
        _check_first_rung(space, scheduler, document)
        _check_group(scheduler, document)
    if space.search.sampler == "grid":
        try:
            space.grid()
        except UserError as error:
            raise document.error(("search", "sampler"), str(error)) from None
    _check_conflicts(space, document)
    _check_baseline(space, document)
    if space.search.probe_size is not None and space.probe() is None:
        raise document.error(
            ("search", "probe_size"),
            "search.probe_size: this space has no linear probe. Add linear_probe: {c: auto} below recipe:, or leave it out.",
        )


def _check_baseline(space: Space, document: Document) -> None:
    try:
        baseline = space.baselines()[0]
    except UserError as error:
        raise UserError(
            f"{document.name}: the baseline has the fixed values, the choices of search.baseline, and the recipe's default "
            f"for every other search parameter. It is refused: {error}"
        ) from None
    for field in space.search.baseline.model_fields_set:
        tree = space.recipe.get(field, slot_of(Recipe, field).default)
        if encode(tree, getattr(baseline, field)) is None:
            chosen = format_value(baseline.values()[field])
            raise document.error(
                ("search", "baseline", field),
                f"search.baseline.{field}: this space never draws {chosen}. Add it below recipe.{field}, or choose a value "
                "that is there.",
            )


def _check_first_rung(space: Space, scheduler: AshaScheduler, document: Document) -> None:
    epochs = lowest(space.recipe.get("epochs", Recipe().epochs))
    if epochs < scheduler.min_epochs:
        raise document.error(
            ("search", "scheduler", "min_epochs"),
            f"epochs={epochs} is below search.scheduler.min_epochs={scheduler.min_epochs}: no trial could reach the "
            "first rung. Raise epochs or lower min_epochs.",
        )


def _check_group(scheduler: AshaScheduler, document: Document) -> None:
    name, _, field = scheduler.group.partition(".")
    parts = slot_of(Recipe, name).parts if name in Recipe.model_fields else ()
    fields = {field for part in parts for field in part.model_fields} if parts else {""}
    if name not in Recipe.model_fields or field not in fields:
        raise document.error(
            ("search", "scheduler", "group"),
            f"search.scheduler.group={scheduler.group}: a recipe has no such field. Name one, as in unfreeze.level.",
        )


def lowest(tree: Tree) -> int:
    """The smallest whole number among the values of a tree."""
    match tree:
        case Choice():
            return min(map(lowest, tree.options))
        case IntUniform():
            return tree.low
        case _:
            return int(tree)  # type: ignore[arg-type]  # checked against the field's type before


def _check_conflicts(space: Space, document: Document) -> None:
    trial = RandomTrial(seed=0)
    conflicts: Counter[str] = Counter()
    for draws in range(1, DRAWS + 1):
        try:
            read_recipe(space.suggest(trial))
        except UserError as error:
            conflicts[str(error)] += 1
        if draws - conflicts.total() == DRAWS / 2:  # the others may conflict
            return
    sentence, times = conflicts.most_common(1)[0]
    if times == DRAWS:
        raise UserError(f"{document.name}: every recipe of this space conflicts: {sentence}")
    raise UserError(
        f"{document.name}: {conflicts.total()} of {DRAWS} random recipes of this space conflict, "
        f"most of them so: {sentence}"
    )
