"""The recipe that a search has to beat: the file's fixed values, and the default in every hole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from spaces.parameters.domains import Choice, IntUniform, LogUniform, Uniform, find_holes
from spaces.schema import Slot, slot_of
from training.errors import UserError
from training.recipe import Recipe, read_recipe
from training.techniques.optimization.optimizer import AutoLr


def build_baselines(tree: dict[str, Any]) -> list[Recipe]:
    """The baseline at its learning rate, at a third of it and at three times it, so that it had its chance.

    Raises:
        UserError: its techniques conflict.
    """
    base = _build(tree)
    lr = base.optimizer.lr
    rates = [lr, *(rate for rate in get_args(AutoLr) if rate != lr)] if isinstance(lr, str) else [lr, lr / 3, lr * 3]
    optimizers = [base.optimizer.model_copy(update={"lr": rate}) for rate in rates]
    return [base.model_copy(update={"optimizer": optimizer}) for optimizer in optimizers]


def _build(tree: dict[str, Any]) -> Recipe:
    values = fill_defaults(tree)
    try:
        return read_recipe(values)
    except UserError as error:
        conflict = error
    # A fixed value may make sense only beside what is searched, as clipping's algorithm does beside its value: then
    # the whole technique stays off.
    for left_out in _mixed(tree):
        try:
            return read_recipe({field: value for field, value in values.items() if field not in left_out})
        except UserError:
            continue
    raise conflict


def _mixed(tree: dict[str, Any]) -> Iterator[set[str]]:
    """The techniques that are partly fixed and partly searched: each alone, then all."""
    fields = [field for field, value in tree.items() if isinstance(value, dict) and any(find_holes(value))]
    yield from ({field} for field in fields)
    yield set(fields)


def fill_defaults(tree: dict[str, Any], part: type[BaseModel] = Recipe) -> dict[str, Any]:
    """Plain values: the recipe's default in every hole."""
    return {field: _fill(value, slot_of(part, field)) for field, value in tree.items()}


def _fill(tree: Any, slot: Slot) -> Any:
    match tree:
        case dict():
            return fill_defaults(tree, slot.part(tree))
        case Choice() | Uniform() | LogUniform() | IntUniform():
            return slot.default
        case _:
            return tree
