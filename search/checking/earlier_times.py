"""Estimate the time of a sweep from earlier sweeps with the same data and backbone; nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from ledger.folder import list_folders
from ledger.record import SweepRecord
from ledger.trials import UNFINISHED, Trial
from spaces.space import Space
from training.errors import UserError
from training.score_metrics import COST


@dataclass(frozen=True)
class EarlierTimes:
    """The time of a sweep by the pace of earlier ones."""

    epoch_seconds: float  # the median time of an epoch in the earlier sweeps
    share: float  # of its epochs that a trial ran there, on average; 1 without early stopping
    full: float  # seconds of the sweep if every trial runs to its end
    seconds: float  # seconds if trials are stopped as early as there
    sweeps: tuple[str, ...]  # names of the earlier sweeps


def estimate_seconds(space: Space, digest: str, storage: Path, slots: int) -> EarlierTimes | None:
    """Return the time that a sweep will take with `slots` trials at the same time, by sweeps in the storage folder.

    None if there is none with data of this digest and with the backbone of the baseline.
    """
    baselines = space.baselines()
    by_sweep = dict(_list_earlier(storage, digest, baselines[0].backbone.name))
    trials = [trial for trials in by_sweep.values() for trial in trials]
    if not trials:
        return None
    epoch = median(_cost(trial) / trial.epoch for trial in trials)
    stopped_early = space.search.scheduler.name == "asha"
    shares = [trial.epoch / trial.epochs for trial in trials if trial.origin != "baseline"]
    share = mean(shares) if stopped_early and shares else 1.0
    lengths = [recipe.epochs for recipe in baselines][: space.search.trials]
    others = (space.search.trials - len(lengths)) * lengths[0]
    full, early = ((sum(lengths) + others * part) * epoch / slots for part in (1.0, share))
    return EarlierTimes(epoch, share, full, early, tuple(by_sweep))


def _list_earlier(storage: Path, digest: str, backbone: str) -> Iterator[tuple[str, list[Trial]]]:
    """Return the trials that ended, of each sweep with this data and backbone."""
    for folder in list_folders(storage):
        try:
            record = SweepRecord.open(folder)
            dataset = record.header.dataset or {}
        except UserError:  # `sweep list` reports damaged sweeps
            continue
        if dataset.get("digest") != digest:
            continue
        trials = [trial for trial in record.trials if trial.state not in UNFINISHED and trial.reports]
        if same := [trial for trial in trials if trial.recipe.backbone.name == backbone]:
            yield folder.name, same


def _cost(trial: Trial) -> float:
    return sum(trial.reports[-1].metrics.get(part) or 0.0 for part in COST)
