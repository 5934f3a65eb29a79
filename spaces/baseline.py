"""The baseline: the file's fixed values, the choices of `search.baseline`, and the recipe's defaults for the rest."""

from __future__ import annotations

from typing import get_args

from pydantic import BaseModel

from spaces.parameters.domains import DISCRIMINATORS, Domain, Tree, find_parameters
from training.contract.optimizer import AutoLr
from training.errors import UserError
from training.recipe import Recipe, read_recipe
from training.schema import slot_of


def build_baselines(tree: dict[str, Tree], chosen: Recipe) -> list[Recipe]:
    """The baseline at its own learning rate, and, where rates are searched, at a third of it and at three times it.

    Args:
        tree: A recipe with its domains.
        chosen: The section `search.baseline`; only the fields that its file sets are used.
    """
    base = _build(tree, chosen.model_dump(exclude_unset=True))
    searches_rate = any(steps in ((), ("lr",)) for steps, _ in find_parameters(tree.get("optimizer")))
    if _has_probe(tree) or not searches_rate:
        return [base]  # other rates are trials like others, or none
    lr = base.optimizer.lr
    rates = [lr, *(rate for rate in get_args(AutoLr) if rate != lr)] if isinstance(lr, str) else [lr, lr / 3, lr * 3]
    optimizers = [base.optimizer.model_copy(update={"lr": rate}) for rate in rates]
    return [base.model_copy(update={"optimizer": optimizer}) for optimizer in optimizers]


def build_probe(tree: dict[str, Tree], chosen: Recipe, size: int | None) -> Recipe | None:
    """The logistic regression on frozen features, if recipes may start at it. In its one epoch nothing trains.

    `size` is that of its images; None: that of the baseline's.
    """
    if not _has_probe(tree):
        return None
    base = _build(tree, chosen.model_dump(exclude_unset=True))
    fields = ("data", "backbone", "preprocessing", "seed", "batch_size", "loss", "precision", "channels_last")
    kept = base.model_dump(include=set(fields))
    if size is not None:
        kept["preprocessing"]["image_size"] = size
    probe = {"c": "auto", "trains": False}
    return read_recipe({**kept, "epochs": 1, "unfreeze": {"level": "last"}, "linear_probe": probe})


def _has_probe(tree: dict[str, Tree]) -> bool:
    part = tree.get("linear_probe", {})
    return any(find_parameters(part)) or (isinstance(part, dict) and part.get("c", "off") != "off")


def _build(tree: dict[str, Tree], chosen: dict[str, Tree]) -> Recipe:
    values = fill_defaults(tree)
    values |= {field: _choose(values.get(field), part) for field, part in chosen.items()}
    try:
        return read_recipe(values)
    except UserError as error:
        conflict = error
    # A fixed value may need a searched one, as the algorithm of clipping needs its value. Then the technique stays off.
    mixed = [field for field, value in tree.items() if isinstance(value, dict) and any(find_parameters(value))]
    for left_out in [*({field} for field in mixed), set(mixed)]:  # each by itself, then all of them
        try:
            return read_recipe({field: value for field, value in values.items() if field not in left_out})
        except UserError:
            continue
    raise conflict


def _choose(default: Tree, chosen: Tree) -> Tree:
    """The chosen value; a part keeps the other fields of a default of the same kind."""
    if not isinstance(default, dict) or not isinstance(chosen, dict):
        return chosen
    is_same_kind = all(default[key] == chosen[key] for key in DISCRIMINATORS if key in default and key in chosen)
    return {**default, **chosen} if is_same_kind else chosen


def fill_defaults(tree: dict[str, Tree], part: type[BaseModel] = Recipe) -> dict[str, Tree]:
    """Plain values, with the recipe's default for every search parameter."""
    filled = {}
    for field, value in tree.items():
        slot = slot_of(part, field)
        if isinstance(value, dict):
            value = fill_defaults(value, slot.part(value))
        filled[field] = slot.default if isinstance(value, Domain) else value
    return filled
