"""How a space is searched: the `search` section of its file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from training.ranking import MAXIMISED

Metric = Literal["val_accuracy", "val_balanced_accuracy", "val_macro_f1", "val_loss", "val_ece"]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class AshaScheduler(_Section):
    """Asynchronous successive halving (Li et al. 2018)."""

    name: Literal["asha"] = "asha"
    min_epochs: int = Field(1, ge=1, description="Epochs that every trial gets.")
    reduction_factor: int = Field(3, ge=2, description="One in this many goes on at each rung.")


class NoScheduler(_Section):
    name: Literal["none"] = "none"


class Search(_Section):
    trials: int = Field(16, ge=1, description="Trials to run, baselines included.")
    metric: Metric = Field("val_accuracy", description="The score.")
    sampler: Literal["tpe", "random", "grid"] = Field("tpe", description="Who names the next recipe.")
    scheduler: Annotated[AshaScheduler | NoScheduler, Field(discriminator="name")] = AshaScheduler()

    @property
    def maximise(self) -> bool:
        return self.metric in MAXIMISED
