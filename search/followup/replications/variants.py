"""Build the recipes of an ablation: the winner with one technique off, and the baseline with one technique on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from search.followup.replications.findings import BASELINE
from training.errors import UserError
from training.recipe import Recipe, read_recipe

WINNER = "winner"
SHARED = ("data", "seed")  # the same in every recipe of a sweep
# These have no off value, so the baseline's value is used.
BASE = ("preprocessing", "backbone", "epochs", "batch_size", "optimizer")


@dataclass(frozen=True)
class Variants:
    """Recipes by label, with `winner` and `baseline` first; the compared techniques; notes about what was left out."""

    recipes: dict[str, Recipe]
    techniques: list[str]
    notes: list[str]


def build_variants(winner: Recipe, baseline: Recipe, sweep: str) -> Variants:
    """Switch each technique that is on in the winner, or in which it differs from the baseline, one at a time.

    Raises:
        UserError: there is no such technique.
    """
    recipes, notes, techniques = {WINNER: winner, BASELINE: baseline}, [], []
    for field, value, off in _switches(winner, baseline):
        techniques.append(field)
        changes = [(f"without {field}", winner, off)]
        if value != getattr(baseline, field):
            changes.append((f"with {field}", baseline, value))
        else:
            notes.append(f"{field} is on in the baseline too, so its effect there is not measured.")
        for label, recipe, new in changes:
            changed = _exchange(recipe, field, new)
            if isinstance(changed, Recipe):
                recipes[label] = changed
            else:
                base = WINNER if recipe is winner else BASELINE
                notes.append(f"The {base} {label} is left out, because that combination is invalid: {changed}")
    if not techniques:
        raise UserError(
            "The best recipe is the baseline with no technique on, so there is nothing to switch. "
            f"Continue the search until another recipe is best: sweep extend {sweep} --trials N."
        )
    return Variants(recipes, techniques, notes)


def _switches(winner: Recipe, baseline: Recipe) -> Iterator[tuple[str, Any, Any]]:
    """Yield each field with the winner's value and the value that means off."""
    for field, info in Recipe.model_fields.items():
        if field in SHARED:
            continue
        value = getattr(winner, field)
        off = getattr(baseline, field) if field in BASE else info.get_default(call_default_factory=True)
        if field == "augmentation":  # the data loading backend is not a technique
            off = off.model_copy(update={"backend": value.backend})
        if value != off:
            yield field, value, off


def _exchange(recipe: Recipe, field: str, value: Any) -> Recipe | str:
    """Return the recipe with another value of one field, or the reason why that is invalid."""
    values = recipe.model_dump()
    values[field] = value.model_dump() if hasattr(value, "model_dump") else value
    try:
        return read_recipe(values)
    except UserError as error:
        return str(error)
