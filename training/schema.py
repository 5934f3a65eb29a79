"""The values and parts that a recipe allows in each of its fields, read from its pydantic models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from training.errors import plain_reason


@dataclass(frozen=True, eq=False)
class Slot:
    """One field: it takes a plain value, one kind of part, or one of several kinds that a discriminator distinguishes."""

    info: FieldInfo

    @cached_property
    def discriminator(self) -> str | None:
        return str(self.info.discriminator) if self.info.discriminator else None

    @cached_property
    def parts(self) -> tuple[type[BaseModel], ...]:
        annotation = self.info.annotation
        choices = get_args(annotation) if self.discriminator else (annotation,)
        are_parts = all(isinstance(choice, type) and issubclass(choice, BaseModel) for choice in choices)
        return choices if are_parts else ()

    @cached_property
    def members(self) -> dict[str, type[BaseModel]]:
        """The parts by the value of their discriminator."""
        return {get_args(part.model_fields[self.discriminator or ""].annotation)[0]: part for part in self.parts}

    @cached_property
    def default(self) -> Any:
        """The default as plain values; PydanticUndefined if there is none."""
        value = self.info.get_default(call_default_factory=True)
        return value.model_dump() if isinstance(value, BaseModel) else value

    def part(self, values: Mapping[str, object]) -> type[BaseModel]:
        """The model for a checked mapping of this field."""
        return self.members[str(values[self.discriminator])] if self.discriminator else self.parts[0]

    @cached_property
    def _adapter(self) -> TypeAdapter[object]:
        return TypeAdapter(self.info.rebuild_annotation(), config=ConfigDict(strict=True, allow_inf_nan=False))

    @cached_property
    def literals(self) -> list[str]:
        """The words that the field takes, if it takes one of a list."""
        kinds = [self.info.annotation, *get_args(self.info.annotation)]
        return [str(word) for annotation in kinds if get_origin(annotation) is Literal for word in get_args(annotation)]

    def problem(self, value: object) -> str | None:
        """The reason why a plain value is illegal here, as half a sentence; None if it is legal."""
        try:
            self._adapter.validate_python(value)
        except ValidationError as error:
            first, *others = dict.fromkeys(plain_reason(problem["msg"]) for problem in error.errors())
            return " or ".join([first, *(reason.removeprefix("input should be ") for reason in others)])
        return None


_slots: dict[int, Slot] = {}  # by the id of the field's info, which plugins replace


def slot_of(model: type[BaseModel], field: str) -> Slot:
    """The slot of a model's field."""
    info = model.model_fields[field]
    return _slots.setdefault(id(info), Slot(info))
