"""The families of a recipe: parts of which there are several kinds, each a class that one file adds."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from inspect import get_annotations
from types import ModuleType
from typing import Any, Literal, NamedTuple

from pydantic import create_model

from training.contract.optimizer import Optimizer
from training.contract.part import AnyPart, Part
from training.contract.policy import Policy
from training.contract.schedule import Schedule
from training.contract.specs import Data
from training.techniques.loss.losses import Loss


class Family(NamedTuple):
    """The bundled kinds are the classes derived from `base` in the modules of `folder`."""

    base: type[Part]
    folder: str

    @property
    def key(self) -> str:
        """The field by which a recipe names the kind."""
        return "policy" if self.base is Policy else "name"

    def bundled(self) -> dict[str, type[Part]]:
        """The bundled kinds by name. A new file in the folder is found by itself."""
        kinds = {}
        folder = import_module(self.folder)
        for module in pkgutil.iter_modules(folder.__path__, f"{self.folder}."):
            for part_class in classes_of(import_module(module.name), self.base):
                if (name := self.name_of(part_class)) in kinds:
                    raise ValueError(f"{module.name}: {part_class.__name__} has the name of another kind, {name}")
                kinds[name] = self.named(part_class)
        return kinds

    def name_of(self, part_class: type[Part]) -> str:
        """The name of a kind in a recipe: the one that it declares, else it follows from the name of the class."""
        if self.declares_name(part_class):
            return str(part_class.model_fields[self.key].default)
        return snake_case(part_class.__name__)

    def declares_name(self, part_class: type[Part]) -> bool:
        return self.key in get_annotations(part_class)

    def named(self, part_class: type[Part], **fields: object) -> type[Part]:
        """Return the class with its name as a field, and with further fields in the form of `create_model`."""
        if not self.declares_name(part_class):
            name = self.name_of(part_class)
            fields = {self.key: (Literal[name], name), **fields}
        return extend(part_class, **fields)


FAMILIES = {
    "data": Family(Data, "training.data.sources"),
    "augmentation": Family(Policy, "training.techniques.data"),
    "loss": Family(Loss, "training.techniques.loss"),
    "optimizer": Family(Optimizer, "training.techniques.optimization"),
    "schedule": Family(Schedule, "training.techniques.optimization"),
}


def classes_of(module: ModuleType, base: type | tuple[type, ...]) -> Iterator[type]:
    """Return the classes that a module derives from a base, without those that it imports or whose name begins with _."""
    for name, value in vars(module).items():
        is_own = isinstance(value, type) and value.__module__ == module.__name__ and not name.startswith("_")
        if is_own and issubclass(value, base) and value is not base:
            yield value


def snake_case(name: str) -> str:
    """`InputNoise` is `input_noise`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def extend(part_class: type[AnyPart], **fields: Any) -> type[AnyPart]:
    """Return the class with further fields, in the form of `create_model`."""
    if not fields:
        return part_class
    return create_model(
        part_class.__name__, __base__=part_class, __module__=part_class.__module__, __doc__=part_class.__doc__, **fields
    )
