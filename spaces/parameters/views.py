"""Walks over a tree with holes: where a recipe lies in it, which values a path takes, what is left without some."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, cast

from pydantic import BaseModel

from spaces.parameters.domains import Choice, IntUniform, LogUniform, Uniform, format_value
from spaces.parameters.draws import join
from spaces.schema import Slot, slot_of
from training.errors import UserError
from training.recipe import Recipe

_GONE = object()


def encode(tree: Any, value: Any, name: str = "") -> dict[str, Any] | None:
    """The parameters that draw this value from the tree; None when none do."""
    match tree:
        case dict():
            return _encode_part(tree, value, name)
        case Choice():
            for key, label, option in zip(tree.keys, tree.labels, tree.options, strict=True):
                found = encode(option, value, f"{name}[{label}]")
                if found is not None:
                    return {name: key, **found}
            return None
        case Uniform() | LogUniform() | IntUniform():
            if isinstance(value, bool | str) or value is None or not tree.low <= value <= tree.high:
                return None
            if not isinstance(tree, IntUniform):
                return {name: float(value)}
            return {name: int(value)} if value == int(value) else None
        case _:
            return {} if value == tree else None


def _encode_part(tree: dict[str, Any], value: Any, name: str) -> dict[str, Any] | None:
    fields = type(value).model_fields
    if not tree.keys() <= fields.keys():
        return None
    params: dict[str, Any] = {}
    for field, info in fields.items():
        inner = getattr(value, field)
        if field not in tree:
            if inner != info.get_default(call_default_factory=True):
                return None
            continue
        found = encode(tree[field], inner, join(name, field))
        if found is None:
            return None
        params |= found
    return params


def prune(tree: dict[str, Any], path: str, values: Collection[Any]) -> dict[str, Any]:
    """The tree without these values at a path.

    Raises:
        UserError: nothing would be left there.
    """
    left = _prune_part(tree, Recipe, path.split("."), values)
    if left is _GONE:
        offered = ", ".join(sorted(map(format_value, values_at(tree, path))))
        raise UserError(f"{path}: nothing is left of what the space offers ({offered}). Offer another value.")
    return cast(dict[str, Any], left)


def _prune_part(tree: dict[str, Any], part: type[BaseModel], steps: list[str], values: Collection[Any]) -> Any:
    field, *rest = steps
    if field not in part.model_fields:
        return tree  # a field of another kind of this technique
    slot = slot_of(part, field)
    left = _prune(tree.get(field, slot.default), slot, rest, values)
    if left is _GONE:
        return _GONE
    return {**tree, field: left} if field in tree else tree


def _prune(tree: Any, slot: Slot, steps: list[str], values: Collection[Any]) -> Any:
    match tree:
        case Choice():
            kept = (_prune(option, slot, steps, values) for option in tree.options)
            options = tuple(option for option in kept if option is not _GONE)
            return Choice(options) if options else _GONE
        case dict() if steps:
            return _prune_part(tree, slot.part(tree), steps, values)
        case IntUniform() if any(tree.low <= value <= tree.high for value in values):
            return _prune(Choice(tuple(range(tree.low, tree.high + 1))), slot, steps, values)
        case _:
            return _GONE if not steps and tree in values else tree


def values_at(tree: dict[str, Any], path: str, part: type[BaseModel] = Recipe) -> Iterator[Any]:
    """Every value that a path takes in the tree: fixed, of a domain, or the default."""
    field, _, rest = path.partition(".")
    if field in part.model_fields:
        slot = slot_of(part, field)
        yield from _values(tree.get(field, slot.default), slot, rest)


def _values(tree: Any, slot: Slot, path: str) -> Iterator[Any]:
    match tree:
        case Choice():
            for option in tree.options:
                yield from _values(option, slot, path)
        case dict() if path:
            yield from values_at(tree, path, slot.part(tree))
        case IntUniform():
            yield from range(tree.low, tree.high + 1)
        case list():
            yield tuple(tree)
        case _:
            yield tree
