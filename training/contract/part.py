"""A part of a recipe: an immutable pydantic model with typed, bounded fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from training.contract.view import RecipeView

CODE = "code"  # field of a technique that is not bundled: the version and the hash of its source
Values = Mapping[str, object]  # plain values of a recipe, or of one of its parts
Examples = tuple[Values, ...]
AnyPart = TypeVar("AnyPart", bound="Part")
# Upper bound of counts in a recipe; a larger number is a typing error and would exhaust memory or time.
MOST = 1_000_000


class Part(BaseModel):
    """An immutable part of a recipe. Unknown names and values of another type are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    interactions: ClassVar[str] = ""  # how it behaves together with other techniques; printed on its card
    # Recipes with the part switched on, and with what it needs; the part is the first entry of each. The contract tests
    # train them, the benchmark measures them, and the card shows them.
    examples: ClassVar[Examples] = ()
    changes_weights: ClassVar[bool] = True  # False: it changes only speed, memory or predictions
    has_off: ClassVar[bool] = True  # False: no value of it means off
    places: ClassVar[tuple[str, ...]] = ()  # the fields that may have the path of a file or a folder
    # The fields on which it depends what a machine loads, checks and fetches before its first training.
    prepared_fields: ClassVar[tuple[str, ...] | Literal["all"]] = ()

    def conflict(self, recipe: RecipeView) -> str | None:
        """Return one sentence about a conflict with another part of this recipe; None if there is no conflict."""
        return None

    def as_trained(self, recipe: RecipeView, epoch_steps: Sequence[int]) -> Self:
        """Return a part that is the same for all values with which this recipe trains the same; it need not be legal.

        `epoch_steps` are the optimizer steps of each epoch.
        """
        return self
