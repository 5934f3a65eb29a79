"""How a space is searched: the `search` section of its file."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_serializer, model_validator

from training.contract.part import MOST
from training.contract.specs import LARGEST_SIDE
from training.loop.epoch_report import Kept
from training.recipe import AnyRecipe, Recipe

Metric = Literal[
    "val_accuracy",
    "val_balanced_accuracy",
    "val_soft_accuracy",
    "val_soft_balanced_accuracy",
    "val_macro_f1",
    "val_loss",
    "val_ece",
]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class AshaScheduler(_Section):
    """Asynchronous successive halving (Li et al. 2018); docs/search.md gives the reasons for the defaults."""

    name: Literal["asha"] = "asha"
    min_epochs: int = Field(1, ge=1, le=MOST, description="Epochs that every trial runs.")
    reduction_factor: int = Field(2, ge=2, le=1000, description="One trial in this many continues at each rung.")
    rungs: Literal["shares", "epochs"] = Field(
        "shares", description="Rungs as shares of each trial's length, or at the same epochs for all."
    )
    first_share: float = Field(1 / 32, gt=0, lt=1, description="The first rung, as a share of a trial's length.")
    last_share: float = Field(1 / 4, gt=0, lt=1, description="The last rung, as a share of a trial's length.")
    adapt: bool = Field(
        True,
        description="Stop more trials where early scores predict the final ones, fewer where they do not; compare a trial "
        "again when others have arrived.",
    )
    group: str = Field("unfreeze.level", description="Trials are compared with those that share this field's value.")

    @model_validator(mode="after")
    def _order_shares(self) -> Self:
        if self.first_share > self.last_share:
            raise ValueError(
                f"first_share={self.first_share:g} is above last_share={self.last_share:g}; change one of them"
            )
        return self


class NoScheduler(_Section):
    name: Literal["none"] = "none"


class Search(_Section):
    trials: int = Field(16, ge=1, le=MOST, description="Trials to run, baselines included.")
    metric: Metric = Field("val_accuracy", description="The metric used as the score.")
    score: Kept = Field("best", description="The epoch that is scored and whose weights are kept: best or last.")
    sampler: Literal["tpe", "random", "grid"] = Field("tpe", description="The method that proposes the next recipe.")
    scheduler: Annotated[AshaScheduler | NoScheduler, Field(discriminator="name")] = AshaScheduler()
    baseline: AnyRecipe = Field(
        default_factory=Recipe,
        description="The baseline's choices; the recipe's default for every search parameter that is not named.",
    )
    probe_size: int | None = Field(
        None, ge=8, le=LARGEST_SIDE, description="Image size of the linear probe, if it is not that of the baseline."
    )

    @field_serializer("baseline")
    def _keep_named(self, baseline: Recipe) -> dict[str, object]:
        return baseline.model_dump(exclude_unset=True)
