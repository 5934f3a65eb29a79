"""Example recipes of each technique, as its own file declares them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from training.contract.part import Part, Values
from training.errors import UserError
from training.recipe import Recipe, read_recipe
from training.schema import slot_of


def list_examples(field: str) -> Iterator[Values]:
    """The values of example recipes for every kind of a technique; this technique is the first entry of each."""
    slot = slot_of(Recipe, field)
    kinds = cast(dict[str, type[Part]], slot.members if slot.discriminator else {"": slot.parts[0]})
    for kind, part in kinds.items():
        plain = {field: {slot.discriminator: kind}}
        if part.examples:
            yield from part.examples
        elif kind and _is_on(field, plain):
            yield plain  # most kinds of an optimizer or of a loss need nothing else


def _is_on(field: str, values: Values) -> bool:
    try:
        return getattr(read_recipe(values), field) != getattr(Recipe(), field)
    except UserError:  # it has a field without a default
        return False
