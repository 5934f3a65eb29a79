"""Overrides: `path=value` on the command line replaces a value of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from pydantic import BaseModel

from spaces.parameters.domains import WORDS, Steps, Tree, format_value
from spaces.reading.document import Document, did_you_mean, path_of
from spaces.reading.yaml_values import Place, parse_yaml
from spaces.search import Search
from training.errors import UserError
from training.recipe import Recipe
from training.schema import Slot, slot_of

_SECTIONS: dict[str, type[BaseModel]] = {"recipe": Recipe, "search": Search}


def apply_overrides(document: Document, overrides: Sequence[str]) -> Document:
    """The document with every override applied in order; its values are checked later."""
    for override in overrides:
        path, equals, text = override.partition("=")
        names = path.strip().split(".")
        if not equals or not all(names):
            raise UserError(f"{override}: an override is path=value, as in optimizer.lr=0.1.")
        steps: Steps = tuple(names) if names[0] in _SECTIONS else ("recipe", *names)
        section = str(steps[0])
        if names[0] == "format":  # this and the next would else be taken for misspelt techniques
            raise UserError(f"{override}: the format belongs to the file and cannot be set here. Leave it out.")
        if section == "recipe" and names[0] in Search.model_fields:
            raise UserError(f"{override}: a recipe has no {names[0]}. Did you mean search.{override.strip()}?")
        value = parse_value(text, override)
        inner = _set(document.tree.get(section), None, _SECTIONS[section], (section,), steps[1:], value, override)
        tree = {**document.tree, section: inner}
        if section == "recipe" and len(steps) > 1:
            tree = _forget_choice(tree, str(steps[1]))
        document = replace(document, tree=tree, places=_move(document.places, steps, override))
    return document


def parse_value(text: str, override: str) -> Tree:
    """The value of an override. A `~` alone is the home folder, as in a shell, and not YAML's null."""
    return "~" if text.strip() == "~" else parse_yaml(text, override)


def _forget_choice(tree: dict[str, Tree], field: str) -> dict[str, Tree]:
    """Remove the baseline's choice for a field that an override changes, because the space may no longer draw it."""
    search = tree.get("search")
    baseline = search.get("baseline") if isinstance(search, dict) else None
    if not isinstance(search, dict) or not isinstance(baseline, dict) or field not in baseline:
        return tree
    kept = {name: value for name, value in baseline.items() if name != field}
    return {**tree, "search": {**search, "baseline": kept}}


def is_of_search(override: str) -> bool:
    """Whether an override sets a field of the section `search`."""
    return override.partition("=")[0].strip().split(".")[0] == "search"


def _move(places: dict[Steps, Place], steps: Steps, override: str) -> dict[Steps, Place]:
    """Make the override the source of the value at these steps, and of mappings that were added to hold it."""
    moved = {at: place for at, place in places.items() if at[: len(steps)] != steps}
    for length in range(1, len(steps) + 1):
        moved.setdefault(steps[:length], Place(override, is_override=True))
    return moved


def _set(
    node: Tree, slot: Slot | None, part: type[BaseModel] | None, done: Steps, rest: Steps, value: Tree, override: str
) -> Tree:
    """A copy of the node with the value at the remaining steps; slot and part are None if the path is misspelt."""
    if not rest:
        return value
    if isinstance(node, dict) and len(node) == 1 and next(iter(node)) in WORDS:
        raise UserError(_inside_domain(node, slot, done, rest, value, override))
    if node is not None and not isinstance(node, dict):
        raise UserError(f"{override}: {path_of(done)} is {format_value(node)}, a value that has no fields.")
    values = dict(node or {})
    if slot and slot.discriminator:
        if not values and rest[0] != slot.discriminator and isinstance(slot.default, dict):
            values[slot.discriminator] = slot.default[slot.discriminator]
        part = slot.members.get(str(values.get(slot.discriminator)))
    elif slot:
        part = slot.parts[0] if slot.parts else None
    step = str(rest[0])
    inner = slot_of(part, step) if part and step in part.model_fields else None
    values[step] = _set(values.get(step), inner, None, (*done, step), rest[1:], value, override)
    return values


def _inside_domain(
    domain: dict[str, Tree], slot: Slot | None, done: Steps, rest: Steps, value: Tree, override: str
) -> str:
    path, word = path_of(done), next(iter(domain))
    if rest[0] in WORDS:
        return f"{override}: replace the whole domain, as in {path}={{{rest[0]}: {format_value(value)}}}."
    if not slot or not slot.parts:
        return (
            f"{override}: {path} has a domain ({word}) of plain values, which have no fields. "
            f"Set {path} itself, as in {path}=..."
        )
    fields = list(dict.fromkeys(field for part in slot.parts for field in part.model_fields))
    if rest[0] not in fields:
        near = did_you_mean(str(rest[0]), fields)
        return f"{override}: {path} has no {rest[0]}; it has {', '.join(fields)}.{near}"
    inner = value
    for step in reversed(rest):
        inner = {str(step): inner}
    if slot.discriminator:
        member: dict[str, Tree] = {slot.discriminator: _kind_with(str(rest[0]), domain, slot)}
        inner = member | cast(dict[str, Tree], inner)
    return (
        f"{override}: {path} is a {word} between complete techniques here, so one field of it cannot be set alone. "
        f"Set all of it, as in {path}={format_value(inner)}."
    )


def _kind_with(field: str, domain: dict[str, Tree], slot: Slot) -> str:
    """The first kind that the choice offers and that has this field."""
    options = domain.get("choice")
    listed = options if isinstance(options, list) else []
    offered = [option.get(slot.discriminator or "") for option in listed if isinstance(option, dict)]
    kinds = [str(kind) for kind in [*offered, *slot.members] if kind in slot.members]
    return next((kind for kind in kinds if field in slot.members[kind].model_fields), kinds[0])
