"""Add the classes of plugins to recipes, each with a name and with a hash of its source."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import get_annotations
from types import ModuleType
from typing import Literal, TypeGuard, get_origin

from pydantic import Field

from training.contract.part import CODE, Part
from training.contract.specs import OWN_BACKBONES, OwnBackbone
from training.contract.technique import Technique
from training.errors import UserError
from training.families import FAMILIES, classes_of, extend, snake_case
from training.recipe import Recipe

Plugin = type[Part] | type[OwnBackbone]

# Each base class, with its methods of which a class needs one; the first is named where it lacks all.
METHODS: dict[type, tuple[str, ...]] = {
    FAMILIES["data"].base: ("load(self)",),
    FAMILIES["augmentation"].base: ("transforms(self, interpolation)", "build"),
    FAMILIES["loss"].base: ("losses(self, logits, targets)", "targets", "apply"),
    FAMILIES["optimizer"].base: ("build(self, parameters)",),
    FAMILIES["schedule"].base: ("after_warmup(self, steps, warmup)", "curve", "build"),
    OwnBackbone: ("build(self, class_count, image_size)",),
    Technique: ("apply(self, setup)",),
}
BASES = f"{', '.join(base.__name__ for base in METHODS if base is not Technique)} or Technique"

_origins: dict[str, str] = {}  # the file or package of everything that is registered


def find_kinds(module: ModuleType) -> Iterator[Plugin]:
    """Return the classes that a module adds to recipes."""
    return classes_of(module, tuple(METHODS))


def is_kind(value: object) -> TypeGuard[Plugin]:
    return isinstance(value, type) and issubclass(value, tuple(METHODS))


def register(plugin_class: Plugin, code: str, origin: str) -> None:
    """Add a class to the recipes of this process; a class that was loaded from the same file before is replaced.

    Its name in snake case is the name in recipes. `code` is the version and the hash of its source, and `origin` the
    file or the package that it is from.
    """
    field, name = _find_place(plugin_class)
    key = f"{field}.{name}" if field else name
    if Recipe.plugins().get(key) == code:
        return
    before = _origins.get(key)
    if before is not None and before != origin:
        raise UserError(f"--plugin={origin}: {name} is loaded from {before} already. Give one of the two.")
    known = Recipe.kinds(field) if field in FAMILIES else () if field else Recipe.model_fields
    if before is None and name in known:
        raise UserError(f"--plugin={origin}: a recipe has {key} already. Give {plugin_class.__name__} another name.")
    if problem := _find_problem(plugin_class, field):
        raise UserError(f"--plugin={origin}: {plugin_class.__name__} {problem}.")
    recorded = {CODE: (str, Field(code, description="Version and hash of its source; filled in."))}
    if issubclass(plugin_class, OwnBackbone):
        OWN_BACKBONES[name] = (plugin_class(), code)
    elif field:
        Recipe.add_kind(field, name, FAMILIES[field].named(plugin_class, **recorded), code)
    elif issubclass(plugin_class, Technique):
        Recipe.add_technique(name, extend(plugin_class, **recorded), code)
    _origins[key] = origin


def forget_kinds() -> None:
    """Remove everything that was registered."""
    Recipe.forget_plugins()
    _origins.clear()


def _find_place(plugin_class: Plugin) -> tuple[str | None, str]:
    """Return the field of recipes that gets a class, None for a technique, and the name of the class in recipes."""
    for field, family in FAMILIES.items():
        if issubclass(plugin_class, family.base):
            return field, family.name_of(plugin_class)
    return "backbone" if issubclass(plugin_class, OwnBackbone) else None, snake_case(plugin_class.__name__)


def _find_problem(plugin_class: Plugin, field: str | None) -> str | None:
    base = next(base for base in METHODS if issubclass(plugin_class, base))
    if issubclass(plugin_class, Part):
        key = FAMILIES[field].key if field in FAMILIES else "name"
        declared = get_annotations(plugin_class).keys()
        is_named = field in FAMILIES and get_origin(plugin_class.model_fields[key].annotation) is Literal
        if taken := declared & ({CODE} if is_named else {CODE, key}):
            return f"has a field {min(taken)}, which a recipe uses for itself: rename it"
    if issubclass(plugin_class, Technique) and base is Technique and (problem := _find_problem_when_off(plugin_class)):
        return problem
    first, *others = METHODS[base]
    if all(getattr(plugin_class, name) is getattr(base, name) for name in (first.partition("(")[0], *others)):
        return f"has no method {first}: write it"
    return None


def _find_problem_when_off(technique_class: type[Technique]) -> str | None:
    if missing := [field for field, info in technique_class.model_fields.items() if info.is_required()]:
        return f"has no default for {', '.join(missing)}: the default of every field together means off, so give each"
    if not technique_class.model_fields:
        return "has no field, so it cannot be switched on: give it one, such as enabled: bool = False"
    if technique_class().is_on:
        return "is on with its defaults, which must mean off: change them, or is_on"
    return None
