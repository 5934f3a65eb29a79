"""What confirmations and ablations find, as types; `to_json` gives the content of `confirm.json` and `ablate.json`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.effects.intervals import Interval
from search.storage.events import TestScored

FORMAT = 1
BASELINE = "baseline"


@dataclass(frozen=True)
class ConfirmedRecipe:
    """One recipe on fresh seeds."""

    label: str  # the number of the searched trial, or `baseline`
    searched: float | None  # the score that the search found
    scores: Sequence[float]  # one for each seed
    interval: Interval  # of the mean over seeds
    ranks: tuple[int, int]  # the best and the worst rank that the scores leave possible; 1 is the best
    ahead_of_baseline: Interval | None  # seed by seed, positive is better; None for the baseline itself

    @property
    def name(self) -> str:
        return "The baseline" if self.label == BASELINE else f"Trial {self.label}'s recipe"


@dataclass(frozen=True)
class Confirmation:
    """What `sweep confirm` found: the recipes, best first, and the winner's score on the test part."""

    sweep: str  # the replication's own name
    of: str  # the sweep that searched
    metric: str
    seeds: tuple[int, ...]
    recipes: Sequence[ConfirmedRecipe]
    notes: Sequence[str]
    test: TestScored

    @property
    def winner(self) -> ConfirmedRecipe:
        return self.recipes[0]

    @property
    def scored_at(self) -> str:
        """When the test part was scored, as a date with minutes in UTC."""
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.test.time))

    def to_json(self) -> dict[str, Any]:
        """Plain values, as in `confirm.json`."""
        test = self.test.model_dump(mode="json", exclude={"event", "time"}) | {"scored_at": self.scored_at}
        plain = asdict(self) | {"test": test, "seeds": list(self.seeds)}
        return {"format": FORMAT, **plain}


@dataclass(frozen=True)
class Worth:
    """What one technique adds in one place; positive is better."""

    interval: Interval
    proven: bool  # the interval that allows for all comparisons excludes 0
    likely: bool  # this interval alone excludes 0


@dataclass(frozen=True)
class TechniqueWorth:
    """What one technique of the winner is worth."""

    technique: str
    value: str  # its fields in the winner
    in_winner: Worth | None  # the winner minus the winner without it; None where it was not measured
    in_baseline: Worth | None  # the baseline with it minus the baseline

    @property
    def order(self) -> float:
        """The most valuable technique has the lowest."""
        measured = self.in_winner or self.in_baseline
        return -measured.interval.mean if measured else float("inf")


@dataclass(frozen=True)
class Ablation:
    """What `sweep ablate` found: the winner's techniques, most valuable first."""

    sweep: str
    of: str
    metric: str
    seeds: tuple[int, ...]
    comparisons: int
    techniques: Sequence[TechniqueWorth]
    recipes: dict[str, Interval]  # the mean over seeds, by the label of the recipe
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as in `ablate.json`."""
        return {"format": FORMAT, **asdict(self), "seeds": list(self.seeds)}
