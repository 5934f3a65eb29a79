"""Checks on a file's values: known names, legal values, and domains with legal ends."""

from __future__ import annotations

from difflib import get_close_matches

from pydantic import BaseModel

from spaces.parameters.domains import WORDS, Choice, Domain, Interval, Steps, Tree, format_value, is_scalar, word_of
from spaces.reading.document import Document, did_you_mean, path_of
from spaces.search import Search
from training.errors import UserError
from training.families import FAMILIES
from training.recipe import Recipe
from training.schema import Slot, slot_of


def check_part(tree: dict[str, Tree], part: type[BaseModel], steps: Steps, document: Document) -> None:
    """Check the mapping of one part and everything inside it."""
    for field, value in tree.items():
        if field not in part.model_fields:
            raise document.error((*steps, field), _unknown(field, part, steps))
        _check(value, slot_of(part, field), (*steps, field), document)


def _check(tree: Tree, slot: Slot, steps: Steps, document: Document) -> None:
    if isinstance(tree, Choice):
        for position, option in enumerate(tree.options):
            _check(option, slot, (*steps, "choice", position), document)
    elif not slot.parts:
        _check_value(tree, slot, steps, document)
    elif not isinstance(tree, dict):
        raise document.error(steps, _not_a_mapping(tree, slot, steps))
    elif slot.discriminator:
        _check_member(tree, slot, steps, document)
    else:
        check_part(tree, slot.parts[0], steps, document)


def _check_member(tree: dict[str, Tree], slot: Slot, steps: Steps, document: Document) -> None:
    path, key = path_of(steps), slot.discriminator or ""
    offered = ", ".join(slot.members)
    if key not in tree:
        known = dict.fromkeys(field for part in slot.parts for field in part.model_fields)
        for field in [field for field in tree if field not in known]:
            near = did_you_mean(field, [*known, *WORDS])
            raise document.error((*steps, field), f"{path} has no {field}; it has {', '.join(known)}.{near}")
        raise document.error(steps, f"{path} has no {key}. Add {key}: one of {offered}.")
    name = tree[key]
    if isinstance(name, Domain):
        raise document.error(
            (*steps, key),
            f"{path}.{key} cannot be searched by itself, because it decides which hyperparameters there are. Write "
            f"{path}: {{choice: [{', '.join(f'{{{key}: {member}}}' for member in list(slot.members)[:2])}]}}.",
        )
    if not is_scalar(name) or name not in slot.members:
        near = did_you_mean(format_value(name), slot.members)
        if path.partition("[")[0] in FAMILIES:
            near += " One of your own is loaded from its file: --plugin FILE."
        raise document.error((*steps, key), f"{path}.{key}={format_value(name)}: there is {offered}.{near}")
    part = slot.members[name]
    if strangers := [field for field in tree if field not in part.model_fields]:
        raise _stranger(strangers[0], tree, part, slot, steps, document)
    check_part(tree, part, steps, document)
    missing = [field for field, info in part.model_fields.items() if info.is_required() and field not in tree]
    if missing:
        whole = "{" + ", ".join([f"{key}: {name}", *(f"{field}: ..." for field in missing)]) + "}"
        raise document.error(
            (*steps, key), f"{path}.{missing[0]} is missing, and {path}.{key}={name} needs it. Write {path}={whole}."
        )


def _stranger(
    field: str, tree: dict[str, Tree], part: type[BaseModel], slot: Slot, steps: Steps, document: Document
) -> UserError:
    path, key = path_of(steps), slot.discriminator or ""
    here, there = document.place((*steps, key)), document.place((*steps, field))
    # An override that changes the kind keeps the fields of the old kind. The user must change the override then.
    if here.is_override and here != there:
        whole = format_value({name: value for name, value in tree.items() if name in part.model_fields})
        return document.error(
            (*steps, key), f"{tree[key]} has no {field}, which {there.text} sets. Set the whole of it: {path}={whole}."
        )
    kinds = [name for name, member in slot.members.items() if field in member.model_fields]
    hint = f" It belongs to {', '.join(kinds)}." if kinds else ""
    return document.error((*steps, field), _unknown(field, part, steps, f" with {key}={tree[key]}") + hint)


def _check_value(tree: Tree, slot: Slot, steps: Steps, document: Document) -> None:
    path = path_of(steps)
    if isinstance(tree, Interval):
        _check_ends(tree, slot, steps, document)
    elif isinstance(tree, dict):
        key = next(iter(tree), "")
        near = did_you_mean(key, WORDS)
        raise document.error(
            (*steps, key) if tree else steps,
            f"{path}={format_value(tree)}: {path} takes a value or a domain, and {key or 'an empty mapping'} is neither. "
            f"Domains are {', '.join(WORDS)}.{near}",
        )
    elif problem := slot.problem(tree):
        near = did_you_mean(format_value(tree), slot.literals) if isinstance(tree, str) else ""
        raise document.error(steps, f"{path}={format_value(tree)}: {problem}.{near}")


def _check_ends(domain: Interval, slot: Slot, steps: Steps, document: Document) -> None:
    """Check both ends: legal values form an interval, so everything between legal ends is legal."""
    number_type = int if word_of(domain) == "int_uniform" else float
    for end in (domain.low, domain.high):
        if (problem := slot.problem(number_type(end))) is None:
            continue
        sentence = f"{path_of(steps)}={format_value(domain)}"
        if number_type is float and end == int(end) and slot.problem(int(end)) is None:
            raise document.error(steps, f"{sentence}: whole numbers are needed here. Use int_uniform or a choice.")
        raise document.error(steps, f"{sentence}: its end {end} is illegal: {problem}.")


def _not_a_mapping(tree: Tree, slot: Slot, steps: Steps) -> str:
    path, part = path_of(steps), slot.parts[0]
    if slot.discriminator:
        kind = tree if is_scalar(tree) and tree in slot.members else slot.default[slot.discriminator]
        example: dict[str, Tree] = {slot.discriminator: kind}
    else:
        field = next(iter(part.model_fields))
        example = {field: slot_of(part, field).default if tree is None else tree}
    what = "nothing" if tree is None else format_value(tree)
    if isinstance(tree, Interval):
        what = f"the domain {word_of(tree)}"
    return f"{path} takes a mapping of its fields, not {what}. Write {path}: {format_value(example)}."


def _unknown(field: str, part: type[BaseModel], steps: Steps, condition: str = "") -> str:
    """The error for an unknown field, with the nearest name: a field or, if a domain is legal here, a word of one."""
    owner = path_of(steps)
    names = list(part.model_fields)
    near = did_you_mean(field, [*names, *WORDS] if owner else names)
    if not owner and field in Search.model_fields:
        near = f" Did you mean search.{field}?"
    if not owner and part is Recipe and not near:
        near = " A technique of your own is loaded from its file: --plugin FILE."
    if part is Recipe:  # it has too many parts to list
        few = ", ".join(get_close_matches(field, names, 3, 0.4) or names[:3])
        return f"a recipe has no {field}; it has {few} and others (sweep space default).{near}"
    return f"{owner or 'a recipe'}{condition} has no {field}; it has {', '.join(names)}.{near}"
