"""Placeholders for what a sweep has from plugins that are not loaded: its values can be shown, but nothing can be trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from pydantic import ConfigDict

from spaces.parameters.domains import WORDS
from spaces.reading.document import parse_document
from training.contract.own_parts import PLACEHOLDER, OwnPart, list_codes
from training.contract.part import CODE, Part, Values
from training.contract.specs import OwnBackbone
from training.contract.technique import Technique
from training.contract.view import RecipeView
from training.errors import UserError
from training.families import FAMILIES, extend
from training.process.text_files import parse_json
from training.recipe import Recipe

# The values of each part that was found, by what it is: input_noise, data.shapes, backbone.small_net.
Found = dict[str, list[Values]]
_DEFAULTS = {"lr": 0.01}  # the other baselines have a third of it, and three times it


def add_placeholders(line: bytes) -> set[str]:
    """Give the recipes of this process a placeholder for each part that a line of a ledger names and no plugin has loaded.

    Returns:
        What these parts are, such as `technique input_noise`. A damaged line names none.
    """
    found: Found = {}
    if f'"{CODE}":'.encode() in line or b'"space":' in line:
        try:
            values = parse_json(line)
            _find_recorded(values, found)
            _find_written(values.get("space"), found)
        except (ValueError, UserError, RecursionError, AttributeError):  # whoever decodes the line says what is wrong
            return set()
    for key, parts in found.items():
        _register(key, parts)
    return {key.replace(".", " ") if "." in key else f"technique {key}" for key in found}


def _find_recorded(values: object, found: Found) -> None:
    """Find the parts in the recipes of an event, at any depth: each has the version of its plugin."""
    if isinstance(values, list):
        for value in values:
            _find_recorded(value, found)
    elif isinstance(values, dict):
        for field, value in values.items():
            if isinstance(value, dict) and CODE in value:
                _note(field, value, found, {})  # whatever values it has are taken
            else:
                _find_recorded(value, found)


def _find_written(text: object, found: Found) -> None:
    tree = parse_document(str(text), "the space").tree if text else {}
    search = tree.get("search")
    for section in (tree.get("recipe"), search.get("baseline") if isinstance(search, dict) else None):
        for field, value in section.items() if isinstance(section, dict) else ():
            for part in _list_mappings(value):
                _note(field, part, found, part)


def _note(field: str, part: Values, found: Found, values: Values) -> None:
    key = field
    if field in FAMILIES or field == "backbone":
        name = part.get(FAMILIES[field].key if field in FAMILIES else "name")
        key = f"{field}.{name}"
        is_known = name in Recipe.kinds(field) if field in FAMILIES else part.get("source") != "own"
        is_known |= key in list_codes()
    else:
        is_known = field in Recipe.model_fields
    if not is_known or list_codes().get(key) == PLACEHOLDER:
        found.setdefault(key, []).append(values)


def _list_mappings(value: object) -> list[Values]:
    """Return a mapping that is no domain, or those among the options of a choice."""
    if not isinstance(value, dict):
        return []
    if isinstance(options := value.get("choice"), list):
        return [mapping for option in options for mapping in _list_mappings(option)]
    return [] if value.keys() & WORDS else [value]


def _register(key: str, parts: Sequence[Values]) -> None:
    family, _, name = key.rpartition(".")
    if family == "backbone":
        Recipe.add(key, OwnPart(OwnBackbone, PLACEHOLDER))
        return
    info = Recipe.model_fields.get(name)
    before = Recipe.kinds(family).get(name) if family else cast(type[Part] | None, info and info.annotation)
    if before and all(part.keys() <= before.model_fields.keys() for part in parts):
        return
    base = before or (FAMILIES[family].base if family else Technique)
    made = extend(_set_free(base), **_list_fields(base, parts))
    if family:
        made = extend(made, **{FAMILIES[family].key: (Literal[name], name)})
    Recipe.add(key, OwnPart(made, PLACEHOLDER))


def _set_free(base: type[Part]) -> type[Part]:
    class Placeholder(base):  # type: ignore[valid-type,misc]
        model_config = ConfigDict(extra="allow")

        def conflict(self, recipe: RecipeView) -> str | None:
            return None

    return Placeholder


def _list_fields(base: type[Part], parts: Sequence[Values]) -> dict[str, object]:
    """Return a field for each value of these parts, and for each that the base requires; a mapping is a part in it."""
    fields: dict[str, object] = {}
    required = [name for name, info in base.model_fields.items() if info.is_required()]
    for name in dict.fromkeys([*required, CODE, *(name for part in parts for name in part)]):
        if name in base.model_fields and name not in required:
            continue
        inner = [mapping for part in parts for mapping in _list_mappings(part.get(name))]
        nested = extend(_set_free(Part), **_list_fields(Part, inner)) if inner else None
        fields[name] = (nested, nested()) if nested else (object, _DEFAULTS.get(name))
    return fields
