"""A space as the lines of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from spaces.parameters.domains import Choice, IntUniform, LogUniform, Uniform, format_value, is_scalar, word_of
from spaces.schema import Slot, slot_of
from training.recipe import Recipe


class Row(NamedTuple):
    technique: str
    hyperparameter: str  # "" where the technique is one value, such as batch_size
    domain: str  # or the fixed value
    condition: str  # the branch it belongs to; "" when it always applies
    is_fixed: bool = False


def list_rows(tree: dict[str, Any]) -> list[Row]:
    """Every hole, and every fixed value that is not the recipe's default."""
    return [row for field, value in tree.items() for row in _rows(value, slot_of(Recipe, field), field, "")]


def _rows(tree: Any, slot: Slot, path: str, condition: str) -> Iterator[Row]:
    technique, _, hyperparameter = path.partition(".")
    match tree:
        case dict():
            part = slot.part(tree)
            for field, value in tree.items():
                if field == slot.discriminator and value != slot.default[field]:
                    yield Row(technique, field, format_value(value), condition, is_fixed=True)
                yield from _rows(value, slot_of(part, field), f"{path}.{field}", condition)
        case Choice():
            name = hyperparameter or slot.discriminator or ""
            yield Row(technique, name, " | ".join(map(_describe_option, tree.options, tree.labels)), condition)
            for option, label in zip(tree.options, tree.labels, strict=True):
                yield from _option_rows(option, label, slot, path, condition)
        case Uniform() | LogUniform() | IntUniform():
            text = f"{word_of(tree)} {format_value([tree.low, tree.high])}"
            yield Row(technique, hyperparameter, text, condition)
        case _ if tree != slot.default:
            yield Row(technique, hyperparameter, format_value(tree), condition, is_fixed=True)


def _option_rows(option: Any, label: str, slot: Slot, path: str, condition: str) -> Iterator[Row]:
    """What a branch adds; the row of the choice has told its label already."""
    if is_scalar(option) or isinstance(option, list):
        return
    branch = f"{path}={label}" if slot.discriminator else f"{path}[{label}]"
    for row in _rows(option, slot, path, f"{condition}, {branch}" if condition else branch):
        is_label = row.is_fixed and label.partition("#")[0] in (f"{row.hyperparameter}={row.domain}", row.domain)
        if not is_label:
            yield row


def _describe_option(option: Any, label: str) -> str:
    return format_value(option) if label.isdigit() else label
