"""The settings of a sweep that do not depend on its space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from analysis import EXPERIMENT, TRACKING_URI
from analysis.formatting import mask_secrets
from search.storage.secrets import complete_uri

Share = float | Literal["auto"]  # auto: as many trials at the same time as fit


@dataclass(frozen=True)
class Settings:
    """The settings of a sweep; the ledger keeps them for a resume."""

    tracking_uri: str = TRACKING_URI
    experiment: str = EXPERIMENT
    seed: int = 0
    keep_best: int = 5
    cpus_per_trial: Share | None = None
    gpus_per_trial: Share | None = None
    time_budget_seconds: float | None = None
    address: str | None = None
    max_concurrent: int | None = None
    accelerator: str | None = None
    owner: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    copy_to: str = ""  # the URI under which a copy of the sweep is kept

    @property
    def packs(self) -> bool:
        """Whether the number of trials on a GPU or a machine follows from their measured memory."""
        return "auto" in (self.cpus_per_trial, self.gpus_per_trial)

    @property
    def named_cpus(self) -> float | None:
        """The CPUs of a trial, if the user gave a number."""
        return None if self.cpus_per_trial == "auto" else self.cpus_per_trial

    @property
    def named_gpus(self) -> float | None:
        """The GPUs of a trial, if the user gave a number."""
        return None if self.gpus_per_trial == "auto" else self.gpus_per_trial

    def masked(self) -> Settings:
        """Return the settings with a masked password, as the ledger keeps them."""
        return replace(self, tracking_uri=mask_secrets(self.tracking_uri))

    def completed(self) -> Settings:
        """Return settings from a ledger, with the password from the environment.

        Raises:
            UserError: the environment does not have it.
        """
        return replace(self, tracking_uri=complete_uri(self.tracking_uri))
