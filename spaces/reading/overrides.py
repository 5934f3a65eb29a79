"""`path=value` on the command line, over the values of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from spaces.parameters.domains import WORDS, format_value
from spaces.reading.document import Document, did_you_mean, path_of
from spaces.reading.yaml_values import Place, Steps, parse_yaml
from spaces.schema import Slot, slot_of
from spaces.search import Search
from training.errors import UserError
from training.recipe import Recipe

_SECTIONS: dict[str, type[BaseModel]] = {"recipe": Recipe, "search": Search}


def apply_overrides(document: Document, overrides: Sequence[str]) -> Document:
    """The document with every override applied in order; whether the result makes sense is checked afterwards.

    Raises:
        UserError: an override is malformed, or sets a field inside a hole.
    """
    for override in overrides:
        path, equals, text = override.partition("=")
        names = path.strip().split(".")
        if not equals or not all(names):
            raise UserError(f"{override}: an override is path=value, as in optimizer.lr=0.1.")
        steps: Steps = tuple(names) if names[0] in _SECTIONS else ("recipe", *names)
        section = str(steps[0])
        _refuse_stranger(section, str(names[0]), override)
        value = parse_yaml(text, override)
        inner = _set(document.tree.get(section), None, _SECTIONS[section], (section,), steps[1:], value, override)
        document = replace(
            document, tree={**document.tree, section: inner}, places=_move(document.places, steps, override)
        )
    return document


def is_of_search(override: str) -> bool:
    """Whether an override sets something of the section `search`."""
    return override.partition("=")[0].strip().split(".")[0] == "search"


def _refuse_stranger(section: str, first: str, override: str) -> None:
    """Refuse what stands beside the recipe in a file, or in its other section, before a technique is guessed."""
    if first == "format":
        raise UserError(f"{override}: the format belongs to the file and cannot be set here. Leave it out.")
    if section == "recipe" and first in Search.model_fields:
        raise UserError(f"{override}: a recipe has no {first}. Did you mean search.{override.strip()}?")


def _move(places: dict[Steps, Place], steps: Steps, override: str) -> dict[Steps, Place]:
    """The value at these steps now comes from the override, and so do mappings that were made to hold it."""
    moved = {at: place for at, place in places.items() if at[: len(steps)] != steps}
    for length in range(1, len(steps)):
        moved.setdefault(steps[:length], Place(override, is_override=True))
    return {**moved, steps: Place(override, is_override=True)}


def _set(
    node: Any, slot: Slot | None, part: type[BaseModel] | None, done: Steps, rest: Steps, value: Any, override: str
) -> Any:
    """A copy of the node with the value at the remaining steps; slot and part are None where the path is misspelt."""
    if not rest:
        return value
    if isinstance(node, dict) and len(node) == 1 and next(iter(node)) in WORDS:
        raise UserError(_inside_hole(node, slot, done, rest, value, override))
    if node is not None and not isinstance(node, dict):
        raise UserError(f"{override}: {path_of(done)} is {format_value(node)}, a value that has no parts.")
    values = dict(node or {})
    if slot and slot.discriminator:
        if not values and rest[0] != slot.discriminator and isinstance(slot.default, dict):
            values[slot.discriminator] = slot.default[slot.discriminator]
        part = slot.members.get(values.get(slot.discriminator, ""))
    elif slot:
        part = slot.parts[0] if slot.parts else None
    step = str(rest[0])
    inner = slot_of(part, step) if part and step in part.model_fields else None
    values[step] = _set(values.get(step), inner, None, (*done, step), rest[1:], value, override)
    return values


def _inside_hole(hole: dict[str, Any], slot: Slot | None, done: Steps, rest: Steps, value: Any, override: str) -> str:
    path, word = path_of(done), next(iter(hole))
    if rest[0] in WORDS:
        return f"{override}: replace the whole hole, as in {path}={{{rest[0]}: {format_value(value)}}}."
    if not slot or not slot.parts:
        return (
            f"{override}: {path} is a hole ({word}) for one value, which has no parts. Set it whole, as in {path}=..."
        )
    fields = list(dict.fromkeys(field for part in slot.parts for field in part.model_fields))
    if rest[0] not in fields:
        near = did_you_mean(str(rest[0]), fields)
        return f"{override}: {path} has no {rest[0]}; it has {', '.join(fields)}.{near}"
    inner: Any = value
    for step in reversed(rest):
        inner = {step: inner}
    if slot.discriminator:
        inner = {slot.discriminator: _kind_with(str(rest[0]), hole, slot)} | inner
    return (
        f"{override}: {path} is a {word} between whole techniques here, so one field of it cannot be set alone. "
        f"Set the whole of it, as in {path}={format_value(inner)}."
    )


def _kind_with(field: str, hole: dict[str, Any], slot: Slot) -> str:
    """The first kind that the choice offers and that has this field."""
    options = hole.get("choice")
    offered = [o.get(slot.discriminator) for o in options if isinstance(o, dict)] if isinstance(options, list) else []
    kinds = [kind for kind in [*offered, *slot.members] if kind in slot.members]
    return next((kind for kind in kinds if field in slot.members[kind].model_fields), kinds[0])
