"""The baseline: the file's fixed values, and the recipe's default for every search parameter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel

from spaces.parameters.domains import Choice, IntUniform, LogUniform, Tree, Uniform, find_parameters
from spaces.schema import Slot, slot_of
from training.errors import UserError
from training.recipe import Recipe, read_recipe
from training.techniques.optimization.optimizer import AutoLr


def build_baselines(tree: dict[str, Tree]) -> list[Recipe]:
    """The baseline at three learning rates: its own, a third of it, and three times it.

    Raises:
        UserError: Its techniques conflict.
    """
    base = _build(tree)
    lr = base.optimizer.lr
    rates = [lr, *(rate for rate in get_args(AutoLr) if rate != lr)] if isinstance(lr, str) else [lr, lr / 3, lr * 3]
    optimizers = [base.optimizer.model_copy(update={"lr": rate}) for rate in rates]
    return [base.model_copy(update={"optimizer": optimizer}) for optimizer in optimizers]


def _build(tree: dict[str, Tree]) -> Recipe:
    values = fill_defaults(tree)
    try:
        return read_recipe(values)
    except UserError as error:
        conflict = error
    # A fixed value may need a searched one, as the algorithm of clipping needs its value. Then the technique stays off.
    for left_out in _mixed(tree):
        try:
            return read_recipe({field: value for field, value in values.items() if field not in left_out})
        except UserError:
            continue
    raise conflict


def _mixed(tree: dict[str, Tree]) -> Iterator[set[str]]:
    """The techniques with both fixed and searched fields: each by itself, then all of them."""
    fields = [field for field, value in tree.items() if isinstance(value, dict) and any(find_parameters(value))]
    yield from ({field} for field in fields)
    yield set(fields)


def fill_defaults(tree: dict[str, Tree], part: type[BaseModel] = Recipe) -> dict[str, Tree]:
    """Plain values, with the recipe's default for every search parameter."""
    return {field: _fill(value, slot_of(part, field)) for field, value in tree.items()}


def _fill(tree: Tree, slot: Slot) -> Tree:
    match tree:
        case dict():
            return fill_defaults(tree, slot.part(tree))
        case Choice() | Uniform() | LogUniform() | IntUniform():
            return slot.default
        case _:
            return tree
