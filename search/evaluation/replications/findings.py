"""The results of confirmations and ablations as types; `to_json` gives the content of `confirm.json` and `ablate.json`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from analysis.effects.seed_intervals import Interval
from ledger.events import TestScored

FORMAT = 1
BASELINE = "baseline"


@dataclass(frozen=True)
class ConfirmedRecipe:
    """One recipe on fresh seeds."""

    label: str  # number of the trial in the search, or `baseline`
    searched: float | None  # score in the search
    scores: Sequence[float]  # one score for each seed
    interval: Interval  # interval of the mean over seeds
    ranks: tuple[int, int]  # best and worst rank that the scores allow; 1 is the best
    ahead_of_baseline: Interval | None  # computed per seed, positive is better; None for the baseline itself
    is_baseline: bool = False  # `baseline`, or another baseline of the search

    @property
    def name(self) -> str:
        if self.label == BASELINE:
            return "The baseline"
        return f"Trial {self.label}'s recipe{' (a baseline)' if self.is_baseline else ''}"


@dataclass(frozen=True)
class Confirmation:
    """The results of `sweep confirm`: the recipes, best first, and the winner's score on the test split, if there is one."""

    sweep: str  # name of the replication
    of: str  # name of the searched sweep
    metric: str
    seeds: tuple[int, ...]
    recipes: Sequence[ConfirmedRecipe]
    notes: Sequence[str]
    test: TestScored | None

    @property
    def winner(self) -> ConfirmedRecipe:
        return self.recipes[0]

    def to_json(self) -> dict[str, object]:
        """Plain values, as in `confirm.json`."""
        test = None
        if self.test is not None:
            test = self.test.model_dump(mode="json", exclude={"event", "time"})
            test["scored_at"] = describe_time(self.test)
        return {"format": FORMAT, **asdict(self), "test": test, "seeds": list(self.seeds)}


def describe_time(test: TestScored) -> str:
    """Return the time at which the test split was scored, with minutes, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(test.time))


@dataclass(frozen=True)
class Worth:
    """The effect of one technique on one recipe; positive is better."""

    interval: Interval
    proven: bool  # the interval with the correction for all comparisons excludes 0
    likely: bool  # the interval without that correction excludes 0


@dataclass(frozen=True)
class TechniqueWorth:
    """The effect of one technique in the winner and in the baseline."""

    technique: str
    value: str  # its fields in the winner
    in_winner: Worth | None  # the winner minus the winner without the technique; None if not measured
    in_baseline: Worth | None  # the baseline with the technique minus the baseline; None if not measured

    @property
    def order(self) -> float:
        """A number to sort by: the technique with the largest effect has the lowest."""
        measured = self.in_winner or self.in_baseline
        return -measured.interval.mean if measured else float("inf")


@dataclass(frozen=True)
class Ablation:
    """The results of `sweep ablate`: the winner's techniques, the one with the largest effect first."""

    sweep: str
    of: str
    metric: str
    seeds: tuple[int, ...]
    comparisons: int
    techniques: Sequence[TechniqueWorth]
    recipes: dict[str, Interval]  # interval of the mean over seeds, by label of the recipe
    notes: Sequence[str]

    def to_json(self) -> dict[str, object]:
        """Plain values, as in `ablate.json`."""
        return {"format": FORMAT, **asdict(self), "seeds": list(self.seeds)}
