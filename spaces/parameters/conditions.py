"""Conditions between techniques: options that conflict with values drawn before them are never sampled.

After `unfreeze.level=full` is drawn, `lora` stays off and is not sampled. A space therefore needs no language for
conditions across techniques: the sampler sees conditional parameters, as inside the options of a choice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from pydantic import ValidationError

from spaces.parameters.domains import Scalar, Tree, find_parameters, format_value
from spaces.parameters.draws import EveryTrial, OptunaTrial, Params, count, draw, draw_every
from training.contract.technique import can_conflict, find_conflict
from training.recipe import Recipe
from training.schema import slot_of

_OF = " of "
# One combination of options for a field's choices, and the field's value with intervals at their low end.
Assignment = tuple[Params, object]
_MOST_ASSIGNMENTS = 1000  # If one technique has more, its conflicts are found after the draw, and it is drawn again.


class _Undrawn(AttributeError):
    """A technique reads a field that is not drawn yet, so it is unknown whether it conflicts."""


class _Draft:
    """A partial recipe: the fields that are drawn so far. `asked` are those that were read."""

    def __init__(self, fields: dict[str, object]) -> None:
        self._fields = fields
        self.asked: set[str] = set()

    def __getattr__(self, field: str) -> object:
        self.asked.add(field)
        if (value := self._fields.get(field)) is None:
            raise _Undrawn(field)
        return value


class _Drawn:
    """The fields that are drawn so far. A part is asked for conflicts again only after a field that it reads is drawn."""

    def __init__(self, fields: dict[str, object]) -> None:
        self.fields = fields
        self._readers: defaultdict[str, set[str]] = defaultdict(set)
        self._conflict = any(self._finds_conflict(field, fields) for field in fields)

    def refuses(self, field: str, value: object) -> bool:
        """Whether there is a conflict if a field has this value."""
        fields = {**self.fields, field: value}
        return self._conflict or any(self._finds_conflict(name, fields) for name in (field, *self._readers[field]))

    def add(self, field: str, value: object) -> None:
        self._conflict = self.refuses(field, value)
        self.fields[field] = value

    def _finds_conflict(self, name: str, fields: dict[str, object]) -> bool:
        if not can_conflict(part := fields[name]):
            return False
        draft, found = _Draft(fields), None
        with suppress(_Undrawn):
            found = find_conflict(name, part, cast(Recipe, draft))
        for field in draft.asked:
            self._readers[field].add(name)
        return found is not None


def suggest(tree: dict[str, Tree], assignments: dict[str, list[Assignment]], trial: OptunaTrial) -> dict[str, Tree]:
    """Draw a recipe's values; each field is drawn only from the options that fit the fields before it.

    A choice with one option left is not sampled. A choice with some options left is a parameter of its own, such as
    `unfreeze.level of last|most`, because a parameter must have the same domain in every trial.

    Args:
        tree: The recipe with its domains.
        assignments: The assignments of each searched field, as `list_assignments` gives them.
        trial: Suggests a value for each search parameter.
    """
    fixed = {field: _read(field, value) for field, value in tree.items() if field not in assignments}
    default = Recipe()
    drawn = _Drawn({field: getattr(default, field) for field in Recipe.model_fields if field not in tree} | fixed)
    values: dict[str, Tree] = {}
    for field, part in tree.items():
        listed = assignments.get(field, [])
        fitting = [taken for taken, value in listed if len(listed) > 1 and not drawn.refuses(field, value)]
        narrows = 0 < len(fitting) < len(listed)
        values[field] = draw(part, _Narrowed(trial, fitting) if narrows else trial, field)
        if field in assignments:
            drawn.add(field, _read(field, values[field]))
    return values


def list_assignments(tree: dict[str, Tree]) -> dict[str, list[Assignment]]:
    """The assignments of each field that has search parameters."""
    return {field: _list_assignments(field, part) for field, part in tree.items() if any(find_parameters(part))}


def _list_assignments(field: str, tree: Tree) -> list[Assignment]:
    if count(tree) > _MOST_ASSIGNMENTS:
        return []
    drawn = draw_every(lambda trial: _read(field, draw(tree, trial, field)), _EveryOption())
    return [(taken, value) for taken, value in drawn if value is not None]


class _EveryOption(EveryTrial):
    """Draws every combination of options; whole numbers give their low end, as intervals do."""

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return low


class _Narrowed:
    """A trial that chooses only among options which occur in a fitting assignment."""

    def __init__(self, trial: OptunaTrial, fitting: list[Params]) -> None:
        self.trial, self.fitting = trial, fitting
        self.suggest_float, self.suggest_int = trial.suggest_float, trial.suggest_int

    def suggest_categorical(self, name: str, choices: Sequence[Scalar]) -> Scalar:
        offered = {taken[name] for taken in self.fitting if name in taken}
        left = [option for option in choices if option in offered]
        if len(left) == 1:
            option = left[0]
        elif len(left) == len(choices):
            option = self.trial.suggest_categorical(name, choices)
        else:
            option = self.trial.suggest_categorical(f"{name}{_OF}{'|'.join(map(format_value, left))}", left)
        self.fitting = [taken for taken in self.fitting if (name, option) in taken.items()]
        return option


class Retrace:
    """Suggests known values, and records in `used` the parameters that a draw with them has."""

    def __init__(self, params: Params) -> None:
        self.params = params
        self.used: Params = {}

    def _answer(self, name: str, *_: object, **__: object) -> Any:
        self.used[name] = self.params[name if name in self.params else name.rpartition(_OF)[0]]
        return self.used[name]

    suggest_categorical = suggest_float = suggest_int = _answer


def _read(field: str, values: Tree) -> object:
    """The field's value in a recipe; None if it is illegal, which the recipe's own validation reports."""
    slot = slot_of(Recipe, field)
    if not slot.parts:
        return values
    try:
        return slot.part(cast(dict[str, Tree], values)).model_validate(values)
    except ValidationError:
        return None
