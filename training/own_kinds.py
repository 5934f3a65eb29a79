"""Register the user's own techniques, data and backbones: classes with a name, and with a hash of their source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Literal, TypeVar, cast, get_args

from pydantic import BaseModel, Field, create_model

from training.contract.part import CODE
from training.contract.specs import OWN_BACKBONES, OwnBackbone, OwnData
from training.contract.technique import Technique
from training.errors import UserError
from training.recipe import Recipe

Kind = type[Technique] | type[OwnData] | type[OwnBackbone]
AnyModel = TypeVar("AnyModel", bound=BaseModel)

_DATA = [part.model_fields["name"].default for part in get_args(Recipe.model_fields["data"].annotation)]

_origins: dict[str, str] = {}  # the file or package of everything that is registered


def find_kinds(module: ModuleType) -> Iterator[Kind]:
    """Return the classes that a module defines, without those that it imports or whose name begins with _."""
    for name, value in vars(module).items():
        if is_kind(value) and value.__module__ == module.__name__ and not name.startswith("_"):
            yield value


def is_kind(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Technique | OwnData | OwnBackbone)


def register(kind: Kind, code: str, origin: str) -> None:
    """Add a class to the recipes of this process; a class that was loaded from the same file before is replaced.

    Args:
        kind: The class; its name in snake case is the name in recipes.
        code: The version and the hash of its source.
        origin: The file or the package that it is from.

    Raises:
        UserError: the name exists already, or the class lacks something.
    """
    name = name_of(kind)
    key = name if issubclass(kind, Technique) else f"{'data' if issubclass(kind, OwnData) else 'backbone'}.{name}"
    if Recipe.own().get(key) == code:
        return
    before = _origins.get(key)
    if before is not None and before != origin:
        raise UserError(f"--with={origin}: {name} is loaded from {before} already. Give one of the two.")
    if before is None and name in _bundled(kind):
        raise UserError(f"--with={origin}: a recipe has {key} already. Give the class {kind.__name__} another name.")
    if problem := _find_problem(kind):
        raise UserError(f"--with={origin}: {kind.__name__} {problem}.")
    if issubclass(kind, Technique):
        Recipe.add_technique(name, _record(kind, code), code)
    elif issubclass(kind, OwnData):
        Recipe.add_data(name, _record(kind, code, name), code)
    else:
        OWN_BACKBONES[name] = (kind(), code)
    _origins[key] = origin


def forget_kinds() -> None:
    """Remove everything that was registered."""
    Recipe.forget_own()
    _origins.clear()


def name_of(kind: Kind) -> str:
    """Return the name in a recipe: `InputNoise` is `input_noise`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind.__name__).lower()


def _bundled(kind: Kind) -> set[str]:
    if issubclass(kind, Technique):
        return set(Recipe.model_fields)
    return set(_DATA) if issubclass(kind, OwnData) else set()


def _record(kind: type[AnyModel], code: str, name: str | None = None) -> type[AnyModel]:
    """Return the class with a field for its version and hash and, for data, with the name that selects it."""
    fields: dict[str, Any] = {CODE: (str, Field(code, description="Version and hash of its source; filled in."))}
    if name is not None:
        fields = {"name": (Literal[name], name), **fields}
    made = create_model(kind.__name__, __base__=kind, __module__=kind.__module__, __doc__=kind.__doc__, **fields)
    return cast(type[AnyModel], made)


def _find_problem(kind: Kind) -> str | None:
    """Return what is wrong with a class, as the rest of a sentence."""
    if issubclass(kind, OwnBackbone):
        return (
            "has no method build(self, class_count, image_size): write it" if kind.build is OwnBackbone.build else None
        )
    if taken := {CODE, "name"} & vars(kind).get("__annotations__", {}).keys():
        return f"has a field {min(taken)}, which a recipe uses for itself: rename it"
    if issubclass(kind, OwnData):
        return "has no method load(self): write it" if kind.load is OwnData.load else None
    if missing := [field for field, info in kind.model_fields.items() if info.is_required()]:
        return (
            f"has no default for {', '.join(missing)}: the default of every field together means off, so give each one"
        )
    if not kind.model_fields:
        return "has no field, so it cannot be switched on: give it one, such as enabled: bool = False"
    if kind().is_on:
        return "is on with its defaults, which must mean off: change them, or is_on"
    return "has no method apply(self, setup): write it" if kind.apply is Technique.apply else None
