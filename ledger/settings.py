"""The settings of a sweep that do not depend on its space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ledger import EXPERIMENT, TRACKING_URI
from ledger.formatting import mask_secrets
from ledger.secrets import complete_uri
from ledger.trust import DEBUG, check_trusted, is_trusted, remember


@dataclass(frozen=True)
class Settings:
    """The settings of a sweep; the ledger keeps them for a resume."""

    tracking_uri: str = TRACKING_URI
    experiment: str = EXPERIMENT
    seed: int = 0
    keep_best: int = 5
    cpus_per_trial: float | None = None
    gpus_per_trial: float | None = None
    time_budget_seconds: float | None = None
    address: str | None = None
    max_concurrent: int | None = None
    accelerator: str | None = None
    owner: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    copy_to: str = ""  # the URI under which a copy of the sweep is kept

    @property
    def is_local(self) -> bool:
        """Whether the trials run on this machine alone."""
        return self.address in (None, DEBUG)

    def masked(self) -> Settings:
        """Return the settings as the ledger keeps them: with a masked password, and without a debugger."""
        address = None if self.is_local else self.address
        return replace(self, tracking_uri=mask_secrets(self.tracking_uri), address=address)

    def completed(self) -> Settings:
        """Return settings from a ledger, with the password from the environment."""
        kept, uri = self.tracking_uri, complete_uri(self.tracking_uri)
        check_trusted("--tracking-uri", kept if is_trusted("--tracking-uri", kept) else uri)
        return replace(self, tracking_uri=uri)

    def for_driver(self) -> Settings:
        """Return settings from a ledger, as `completed`, to run trials with them."""
        check_trusted("--address", self.address)
        check_trusted("--copy-to", self.copy_to)
        return self.completed()

    def remember(self) -> None:
        """Remember the places of settings that a user gave, after they answered."""
        remember(self.tracking_uri, self.address, self.copy_to)
