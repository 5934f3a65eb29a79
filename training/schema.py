"""The values and parts that a recipe allows in each of its fields, read from its pydantic models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from training.errors import plain_reason
from training.recipe import AFTER_A_NEW_FIELD


@dataclass(frozen=True, eq=False)
class Slot:
    """One field: it takes a plain value, one kind of part, or one of several kinds that a discriminator distinguishes."""

    parts: tuple[type[BaseModel], ...]
    discriminator: str | None
    info: FieldInfo

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


@cache
def slot_of(model: type[BaseModel], field: str) -> Slot:
    """The slot of a model's field."""
    info = model.model_fields[field]
    annotation = info.annotation
    choices = get_args(annotation) if info.discriminator else (annotation,)
    is_part = all(isinstance(choice, type) and issubclass(choice, BaseModel) for choice in choices)
    return Slot(choices if is_part else (), str(info.discriminator) if info.discriminator else None, info)


AFTER_A_NEW_FIELD.append(slot_of.cache_clear)
