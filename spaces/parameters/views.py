"""Queries on a space: the parameters of a recipe, the values of a path, and the space without some values."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from pydantic import BaseModel

from spaces.parameters.domains import Choice, IntUniform, LogUniform, Scalar, Tree, Uniform
from spaces.parameters.draws import Params, join
from training.contract.part import CODE
from training.recipe import Recipe
from training.schema import Slot, slot_of

Value = Scalar | tuple[Scalar, ...] | Uniform | LogUniform  # a value that a path can take


class Gone:
    """Stands for a tree of which no value is left."""


GONE: Final = Gone()


def encode(tree: Tree, value: object, name: str = "") -> Params | None:
    """The parameters that draw this value from the tree; None if no draw gives it.

    Args:
        tree: Values and domains.
        value: A recipe, a part of one, or a plain value.
        name: The name of the tree as a parameter.
    """
    match tree:
        case dict():
            return _encode_part(tree, value, name)
        case Choice():
            for key, label, option in zip(tree.keys, tree.labels, tree.options, strict=True):
                if (params := encode(option, value, f"{name}[{label}]")) is not None:
                    return {name: key, **params}
            return None
        case Uniform() | LogUniform() | IntUniform():
            if isinstance(value, bool) or not isinstance(value, int | float) or not tree.low <= value <= tree.high:
                return None
            if not isinstance(tree, IntUniform):
                return {name: float(value)}
            return {name: int(value)} if value == int(value) else None
        case _:
            return {} if value == tree else None


def _encode_part(tree: dict[str, Tree], value: object, name: str) -> Params | None:
    fields = type(value).model_fields if isinstance(value, BaseModel) else {}
    if not tree.keys() <= fields.keys():
        return None
    params: Params = {}
    for field, info in fields.items():
        inner = getattr(value, field)
        if field not in tree:
            if field != CODE and inner != info.get_default(call_default_factory=True):
                return None
            continue
        if (inner_params := encode(tree[field], inner, join(name, field))) is None:
            return None
        params |= inner_params
    return params


def prune(
    tree: dict[str, Tree], part: type[BaseModel], steps: list[str], values: Collection[object]
) -> dict[str, Tree] | Gone:
    """The tree of a recipe or of a part of one, without these values in the choices at a path, given as its steps."""
    field, *rest = steps
    if field not in part.model_fields:
        return tree  # The field belongs to another kind of this technique.
    slot = slot_of(part, field)
    left = _prune(tree.get(field, slot.default), slot, rest, values)
    if isinstance(left, Gone):
        return GONE
    return {**tree, field: left} if field in tree else tree


def _prune(tree: Tree, slot: Slot, steps: list[str], values: Collection[object]) -> Tree | Gone:
    match tree:
        case Choice():
            kept = (_prune(option, slot, steps, values) for option in tree.options)
            options = tuple(option for option in kept if not isinstance(option, Gone))
            return Choice(options) if options else GONE
        case dict() if steps:
            return prune(tree, slot.part(tree), steps, values)
        case IntUniform() if any(isinstance(value, int | float) and tree.low <= value <= tree.high for value in values):
            return _prune(Choice(tuple(range(tree.low, tree.high + 1))), slot, steps, values)
        case _:
            return GONE if not steps and tree in values else tree


def values_at(tree: dict[str, Tree], path: str, part: type[BaseModel] = Recipe) -> Iterator[Value]:
    """Every value that a path takes in the tree: fixed, from a domain, or the default."""
    field, _, rest = path.partition(".")
    if field in part.model_fields:
        slot = slot_of(part, field)
        yield from _values(tree.get(field, slot.default), slot, rest)


def _values(tree: Tree, slot: Slot, path: str) -> Iterator[Value]:
    match tree:
        case Choice():
            for option in tree.options:
                yield from _values(option, slot, path)
        case dict():
            if path:
                yield from values_at(tree, path, slot.part(tree))
        case IntUniform():
            yield from range(tree.low, tree.high + 1)
        case list():
            yield tuple(tree)  # type: ignore[arg-type]  # the lists of a recipe hold plain values
        case _:
            yield tree
