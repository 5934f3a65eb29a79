"""A part of a recipe: an immutable pydantic model with typed, bounded fields."""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

AnyPart = TypeVar("AnyPart", bound="Part")
MOST = 1_000_000  # upper bound of counts in a recipe: more is a typing error, and would need memory or time without end


class RecipeView(Protocol):
    """What a part can read of the recipe it belongs to. `Recipe` itself stands above all parts and satisfies this."""

    @property
    def epochs(self) -> int: ...

    @property
    def batch_size(self) -> int | Literal["auto"]: ...

    def part(self, kind: type[AnyPart]) -> AnyPart: ...


class Part(BaseModel):
    """A part of a recipe: immutable; it refuses unknown names and values of another type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    interactions: ClassVar[str] = ""  # how it behaves beside other techniques; printed on its card

    def conflict(self, recipe: RecipeView) -> str | None:
        """Return one sentence on what in this recipe it cannot be combined with; None where nothing conflicts."""
        return None
