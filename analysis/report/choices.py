"""What a recipe chose in each search parameter, as text: without the fixed values that belong to an option."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from analysis.effects.search_parameters import OTHER, SearchParameter, encode_recipe, list_levels
from spaces.parameters.domains import Choice, find_parameters, format_short, format_value, keep_plain, label_of


@dataclass(frozen=True)
class Option:
    """One option of a search parameter.

    `key` is its name among the options, and `label` its name on a page. `text` is what a choice of it is called, empty
    where the searched fields `inside` say all.
    """

    key: str
    label: str
    text: str
    inside: Sequence[str]


def list_options(parameter: SearchParameter) -> list[Option]:
    """The options of a search parameter; none if it is an interval."""
    if not isinstance(parameter.domain, Choice):
        return []
    labels = {level.option: level.label for level in list_levels(parameter) if not level.detail}
    options = []
    for key, tree in zip(parameter.domain.labels, parameter.domain.options, strict=True):
        inside = [".".join([parameter.name, *map(str, steps)]) for steps, _ in find_parameters(tree)]
        shown = labels[key]
        if key != label_of(tree, -1):  # its label names its place
            shown = "" if (plain := keep_plain(tree)) is None else format_value(plain)
        options.append(Option(key, labels[key], f"{parameter.name}={shown}" if shown else "", inside))
    return options


def list_changes(
    parameters: Sequence[SearchParameter], recipe: Mapping[str, object], baseline: Mapping[str, object]
) -> list[str]:
    """What a flat recipe chose otherwise than the baseline's, one text for each search parameter or other field."""
    changes = []
    for parameter in parameters:
        chosen, before = (list(describe_choice(parameter, flat)) for flat in (recipe, baseline))
        if chosen != before:
            changes.append(" ".join(chosen))
    names = [parameter.name for parameter in parameters]
    others = [field for field in recipe if not any(_is_inside(field, name) for name in names)]
    return changes + [
        f"{field}={format_short(recipe[field])}"
        for field in others
        if recipe[field] not in (None, baseline.get(field)) and recipe[field] == recipe[field]
    ]


def name_choice(parameter: SearchParameter, flat: Mapping[str, object]) -> str:
    """What a flat recipe chose in one search parameter, for a table that has its name above."""
    texts = [text.removeprefix(f"{parameter.name}=") for text in describe_choice(parameter, flat)]
    return ", ".join(text.removeprefix(f"{parameter.name}.") for text in texts)


def describe_choice(parameter: SearchParameter, flat: Mapping[str, object]) -> Iterator[str]:
    """What a flat recipe chose in one search parameter, as overrides."""
    fields = [parameter.name]
    if isinstance(parameter.domain, Choice):
        taken = encode_recipe([parameter], flat).get(parameter.name, OTHER)
        option = next((option for option in list_options(parameter) if option.key == taken), None)
        if option and option.text:
            yield option.text
        fields = list(option.inside) if option else fields
    for name in fields:
        yield from (
            f"{field}={format_short(value)}"
            for field, value in flat.items()
            if _is_inside(field, name) and value == value  # null is a value; NaN is that of a field the recipe lacks
        )


def _is_inside(field: str, name: str) -> bool:
    return field == name or field.startswith(f"{name}.")
