"""A space as the rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spaces.parameters.domains import Choice, IntUniform, LogUniform, Tree, Uniform, format_value, is_scalar, word_of
from spaces.schema import Slot, slot_of
from training.recipe import Recipe


class Row(NamedTuple):
    """One row: `domain` is a domain or a fixed value.

    `hyperparameter` is empty if the technique is one value, such as `batch_size`. `condition` is the option of a choice
    that the row belongs to; empty if the row always applies.
    """

    technique: str
    hyperparameter: str
    domain: str
    condition: str
    is_fixed: bool = False


def list_rows(tree: dict[str, Tree]) -> list[Row]:
    """A row for each search parameter, and for each fixed value that is not the recipe's default."""
    return [row for field, value in tree.items() for row in _rows(value, slot_of(Recipe, field), field, "")]


def _rows(tree: Tree, slot: Slot, path: str, condition: str) -> Iterator[Row]:
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


def _option_rows(option: Tree, label: str, slot: Slot, path: str, condition: str) -> Iterator[Row]:
    """The rows inside an option; its label is already in the row of the choice."""
    if is_scalar(option) or isinstance(option, list):
        return
    branch = f"{path}={label}" if slot.discriminator else f"{path}[{label}]"
    for row in _rows(option, slot, path, f"{condition}, {branch}" if condition else branch):
        is_label = row.is_fixed and label.partition("#")[0] in (f"{row.hyperparameter}={row.domain}", row.domain)
        if not is_label:
            yield row


def _describe_option(option: Tree, label: str) -> str:
    return format_value(option) if label.isdigit() else label
