"""Method cards: a summary of each technique, from its code and its measured costs (Mitchell et al. 2019)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from types import UnionType
from typing import Annotated, Literal, TypedDict, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from spaces.load import load_space
from spaces.parameters.domains import Tree, format_value, unparse
from spaces.reading.document import did_you_mean
from spaces.reading.yaml_values import dump_yaml
from training.contract.own_parts import list_codes, list_own
from training.contract.part import CODE
from training.errors import UserError
from training.examples import list_examples
from training.families import FAMILIES
from training.recipe import Recipe
from training.schema import Slot, slot_of

COSTS = Path(__file__).parent / "costs.json"  # written by benchmarks/techniques.py --save
SPACE = "full"
NOT_MEASURED = "Not measured yet."

_DOCSTRING = re.compile(r"(?P<title>[^:]+): (?P<effect>.+) \((?P<source>[^()]*\d{4}[^()]*)\)\.")
_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


@dataclass(frozen=True)
class Hyperparameter:
    """A hyperparameter as text; `kind` is the kind of the technique that has it, such as adamw, or empty."""

    kind: str
    name: str
    legal: str
    default: str
    description: str


class Gain(TypedDict):
    """The difference in accuracy to the baseline, from 0 to 1, with its 95 % interval."""

    mean: float
    low: float
    high: float


class MeasuredCost(TypedDict):
    """One measurement in the file of costs; all of it is relative to the baseline."""

    technique: str
    model: str
    values: str
    time: list[float]  # per image, one entry for each round
    memory: float
    accuracy: Gain | None


class Costs(TypedDict):
    """The file that the benchmark of techniques writes."""

    machine: str
    costs: list[MeasuredCost]


@dataclass(frozen=True)
class Card:
    """All that is known about one technique.

    `name` is the field of a recipe, `kinds` has a sentence for each kind if there are several, `example` switches it on and
    has the form of overrides, `domain` is YAML from the full space, and `costs` is empty if none were measured.
    """

    name: str
    title: str
    effect: str
    source: str
    interactions: str
    kinds: dict[str, str]
    hyperparameters: tuple[Hyperparameter, ...]
    example: str
    domain: str
    costs: tuple[MeasuredCost, ...]


def read_cards() -> list[Card]:
    """One card for each technique of a recipe, in order of application."""
    return [_read_card(name) for name in technique_names()]


def find_card(name: str) -> Card:
    """The card of one technique."""
    names = technique_names()
    if name not in names:
        raise UserError(
            f"{name}: there is no such technique.{did_you_mean(name.partition('.')[0], names)} There are {', '.join(names)}."
        )
    return _read_card(name)


def technique_names() -> list[str]:
    """The fields of a recipe that are techniques, in order of application."""
    own = list_own()
    return [
        name
        for name in Recipe.model_fields
        if name in own
        or any(part.__module__.startswith("training.techniques.") for part in slot_of(Recipe, name).parts)
    ]


def _read_card(name: str) -> Card:
    slot = slot_of(Recipe, name)
    main = FAMILIES[name].base if name in FAMILIES else slot.parts[0]
    docstring = (sys.modules[main.__module__].__doc__ or "").split("\n\n")[0].replace("\n", " ")
    parsed = _DOCSTRING.fullmatch(docstring.strip())
    plugin = list_codes().get(name)
    if parsed is not None:
        idea = parsed.groupdict()
    elif plugin:
        effect = (slot.parts[0].__doc__ or docstring or "a technique of your own").split("\n")[0].rstrip(".")
        idea = {"title": slot.parts[0].__name__, "effect": effect, "source": plugin}
    else:
        raise ValueError(f"{main.__module__}: its docstring must read 'Name: what it does (authors year).'")
    notes = dict.fromkeys(part.interactions for part in (main, *slot.parts))  # type: ignore[attr-defined]
    kinds = {kind: part.__doc__ or "" for kind, part in slot.members.items()} if slot.discriminator else {}
    return Card(
        name,
        **idea,
        interactions=" ".join(filter(None, notes)),
        kinds=kinds,
        hyperparameters=tuple(_list_hyperparameters(slot)),
        example=" ".join(f"{part}={format_value(values)}" for part, values in next(list_examples(name), {}).items()),
        domain=dump_yaml({name: unparse(full_space()[name])}) if name in full_space() else "",
        costs=tuple(cost for cost in read_costs()["costs"] if cost["technique"] == name),
    )


def _list_hyperparameters(slot: Slot) -> list[Hyperparameter]:
    members = slot.members if slot.discriminator else {"": slot.parts[0]}
    return [
        Hyperparameter(kind, field, _describe_legal(info), _describe_default(info), info.description or "")
        for kind, part in members.items()
        for field, info in part.model_fields.items()
        if field not in (slot.discriminator, CODE)
    ]


def _describe_default(info: FieldInfo) -> str:
    return "required" if info.is_required() else format_value(info.get_default(call_default_factory=True))


def _describe_legal(info: FieldInfo) -> str:
    """The legal values in words, such as `last, most or full`, `true or false` or `whole number ≥ 1`."""
    if info.annotation is bool:
        return "true or false"
    if get_origin(info.annotation) is Literal:
        *others, last = map(format_value, get_args(info.annotation))
        return f"{', '.join(others)} or {last}" if others else last
    is_union = get_origin(info.annotation) in (Union, UnionType)
    words = [_word(annotation) for annotation in (get_args(info.annotation) if is_union else (info.annotation,))]
    return f"{' or '.join(dict.fromkeys(words))} {_bounds(info.metadata)}".strip()


def _word(annotation: object) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(map(format_value, get_args(annotation)))
    if get_origin(annotation) is Annotated:
        bare, *rules = get_args(annotation)
        rules = [rule for info in rules for rule in (info.metadata if isinstance(info, FieldInfo) else [info])]
        return f"{_word(bare)} {_bounds(rules)}".strip()
    words: dict[object, str] = {int: "whole number", float: "number", str: "text", type(None): "null"}
    return words.get(annotation, "list")


def _bounds(rules: Iterable[object]) -> str:
    bounds: dict[str, str] = {}
    for rule in rules:
        for key, sign in _SIGNS.items():
            if hasattr(rule, key):
                bounds[key[0]] = f"{sign} {getattr(rule, key):g}"  # the narrower bound of a subclass comes later
    return ", ".join(bounds.values())


@cache
def full_space() -> dict[str, Tree]:
    """The recipe of the space that searches every technique."""
    return load_space(SPACE).recipe


@cache
def read_costs() -> Costs:
    """The results of the last saved benchmark: one cost for each value of a technique on each model."""
    return json.loads(COSTS.read_text(encoding="utf-8")) if COSTS.exists() else {"machine": "", "costs": []}


def share_fields(card: Card) -> list[tuple[str, Hyperparameter]]:
    """The hyperparameters, each with the names of its kinds; kinds with the same bounds and default share an entry."""
    shared: dict[tuple[str, ...], list[Hyperparameter]] = {}
    for field in card.hyperparameters:
        shared.setdefault((field.name, field.legal, field.default, field.description), []).append(field)
    kinds = [[field.kind for field in fields] for fields in shared.values()]
    names = ["all" if some == list(card.kinds) and len(some) > 1 else ", ".join(some) for some in kinds]
    return [(name, fields[0]) for name, fields in zip(names, shared.values(), strict=True)]


def describe_measurement() -> str:
    """How the costs of a card were measured."""
    return (
        f"relative to the baseline, with no other value tuned, as measured on {read_costs()['machine']}; accuracy with "
        "its 95 % interval over seeds."
    )


def describe_gain(gain: Gain | None) -> str:
    """A difference in accuracy in points; a dash if it was not measured."""
    if gain is None:
        return "–"
    return f"{100 * gain['mean']:+.1f} ± {50 * (gain['high'] - gain['low']):.1f} points"


def describe_times(values: Sequence[float]) -> str:
    """The median and, with several rounds, the range: another process can slow down one round."""
    if len(values) < 2:
        return f"{values[0]:.2f}×" if values else "–"
    return f"{median(values):.2f}× ({min(values):.2f}-{max(values):.2f})"
