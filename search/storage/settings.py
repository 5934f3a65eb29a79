"""How a sweep runs, whatever it searches."""

from __future__ import annotations

from dataclasses import dataclass, replace

from analysis import EXPERIMENT, TRACKING_URI
from analysis.formatting import mask_secrets
from search.storage.secrets import complete_uri


@dataclass(frozen=True)
class Settings:
    """How a sweep runs; the ledger keeps it for a resume."""

    tracking_uri: str = TRACKING_URI
    experiment: str = EXPERIMENT
    seed: int = 0
    keep_best: int = 5
    cpus_per_trial: float | None = None
    gpus_per_trial: float | None = None
    time_budget_seconds: float | None = None
    address: str | None = None

    def masked(self) -> Settings:
        """Settings as the ledger keeps them: a password stays in the environment."""
        return replace(self, tracking_uri=mask_secrets(self.tracking_uri))

    def completed(self) -> Settings:
        """Settings from a ledger, with the password that they lack from the environment.

        Raises:
            UserError: it is not there.
        """
        return replace(self, tracking_uri=complete_uri(self.tracking_uri))
