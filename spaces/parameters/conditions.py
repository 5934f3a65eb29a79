"""Conditions that follow from the techniques themselves: an option that conflicts with what is drawn is not offered.

With `unfreeze.level=full` drawn, nothing asks for `lora`: it stays off. So a space needs no language for conditions
across techniques, and a sampler sees them as what they are, holes that some branches do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from spaces.parameters.domains import find_holes, format_value
from spaces.parameters.draws import EveryTrial, Trial, count, draw
from spaces.schema import slot_of
from training.contract.part import AnyPart, Part
from training.recipe import Recipe

_DEFAULT = Recipe()
_OF = " of "
_MOST_WAYS = 1000  # of one technique; with more, conflicts are left to the draw, which is then drawn again


class _Undrawn(AttributeError):
    """What a technique asks for is not drawn yet, so whether it conflicts is open."""


@dataclass(frozen=True)
class Way:
    """One way to fill a field's holes: the option taken of each choice. Intervals stand at their low end."""

    taken: dict[str, Any]
    value: Any


class _Draft:
    """A recipe in the making: the fields that are drawn."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, field: str) -> Any:
        raise _Undrawn(field)

    def part(self, kind: type[AnyPart]) -> AnyPart:
        for value in vars(self).values():
            if isinstance(value, kind):
                return value
        raise _Undrawn(kind.__name__)


def suggest(tree: dict[str, Any], ways: dict[str, list[Way]], trial: Trial) -> dict[str, Any]:
    """Draw a recipe's values, offering for each field only what fits to the fields before it.

    A choice of which one option is left is not asked for. One of which some are left is a parameter of its own, as
    `unfreeze.level of last|most`: a parameter's domain is one and the same in every trial.
    """
    fixed = {field: _read(field, value) for field, value in tree.items() if field not in ways}
    known = {field: getattr(_DEFAULT, field) for field in Recipe.model_fields if field not in tree} | fixed
    values: dict[str, Any] = {}
    for field, part in tree.items():
        fitting = [way for way in ways.get(field, []) if not _conflicts({**known, field: way.value})]
        narrows = 0 < len(fitting) < len(ways.get(field, []))
        values[field] = draw(part, _Narrowed(trial, fitting) if narrows else trial, field)
        known[field] = _read(field, values[field])
    return values


def list_ways(tree: dict[str, Any]) -> dict[str, list[Way]]:
    """For each field with holes, the ways to fill them."""
    return {field: _list_ways(field, part) for field, part in tree.items() if any(find_holes(part))}


def _list_ways(field: str, tree: Any) -> list[Way]:
    if count(tree) > _MOST_WAYS:
        return []
    trial, ways = _Recorded(), []
    while True:
        trial.taken_options = {}
        value = _read(field, draw(tree, trial, field))
        if value is not None:
            ways.append(Way(trial.taken_options, value))
        if not trial.advance():
            return ways


class _Recorded(EveryTrial):
    """Every combination of options, whole numbers at their low end too."""

    taken_options: dict[str, Any]

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        self.taken_options[name] = super().suggest_categorical(name, choices)
        return self.taken_options[name]

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return low


class _Narrowed:
    """A trial that is asked only for options which some fitting way takes."""

    def __init__(self, trial: Trial, ways: list[Way]) -> None:
        self.ways = ways
        self.suggest_float = trial.suggest_float
        self.suggest_int = trial.suggest_int
        self._suggest: Callable[[str, Sequence[Any]], Any] = trial.suggest_categorical

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        left = [option for option in choices if any((name, option) in way.taken.items() for way in self.ways)]
        if len(left) == 1:
            option = left[0]
        elif len(left) == len(choices):
            option = self._suggest(name, choices)
        else:
            option = self._suggest(f"{name}{_OF}{'|'.join(map(format_value, left))}", left)
        self.ways = [way for way in self.ways if (name, option) in way.taken.items()]
        return option


class Retrace:
    """Answers with known parameters, and keeps those that it is asked for."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params
        self.asked: dict[str, Any] = {}

    def _answer(self, name: str, *_: Any, **__: Any) -> Any:
        self.asked[name] = self.params[name if name in self.params else name.rpartition(_OF)[0]]
        return self.asked[name]

    suggest_categorical = suggest_float = suggest_int = _answer


def _conflicts(fields: dict[str, Any]) -> bool:
    """Whether a technique that is on conflicts with others, as far as they are drawn."""
    draft = cast(Recipe, _Draft({field: value for field, value in fields.items() if value is not None}))
    return any(_conflict(part, draft) for part in fields.values() if isinstance(part, Part))


def _conflict(part: Part, draft: Recipe) -> str | None:
    try:
        return part.conflict(draft)
    except _Undrawn:
        return None


def _read(field: str, values: Any) -> Any:
    """A field as a recipe holds it; None where it is illegal by itself, which the recipe will say."""
    slot = slot_of(Recipe, field)
    if not slot.parts:
        return values
    try:
        return slot.part(values).model_validate(values)
    except ValidationError:
        return None
