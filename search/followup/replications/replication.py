"""A replication: some recipes, each trained on the same fresh seeds, without early stopping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from search.arguments import check_number
from search.core.record import SweepRecord
from search.core.trials import Trial, Trials
from search.followup.replications.findings import BASELINE
from search.followup.trial_export import read_weights
from search.storage.events import Replication, ReplicationKind, ReplicationTrial
from search.storage.folder import SweepFolder
from spaces.search import NoScheduler, Search
from spaces.space import Space
from training.errors import UserError
from training.recipe import Recipe

if TYPE_CHECKING:
    from rich.console import Console

    from search.runner.driver import SweepEnd
    from training.loop.checkpoint import Saved

FEWEST_SEEDS, SEEDS, MOST_SEEDS = 2, 5, 1000


@dataclass(frozen=True)
class Replicated:
    """The trials of a replication, grouped by the label of their recipe, in the order of the seeds."""

    record: SweepRecord
    event: Replication
    opened: SweepRecord | None = None  # the sweep whose recipes these are, where it is open already

    @property
    def trials(self) -> Trials:
        return self.record.trials

    @cached_property
    def source(self) -> SweepRecord:
        """The sweep that the recipes come from."""
        return self.opened or SweepRecord.open(SweepFolder(self.record.folder.path.with_name(self.event.of)))

    @cached_property
    def _weights(self) -> dict[int, tuple[Saved | None, str]]:
        return {}

    def weights(self, trial: Trial) -> tuple[Saved | None, str]:
        """A trial's best checkpoint, else why there is none; read once."""
        if trial.number not in self._weights:
            self._weights[trial.number] = read_weights(self.record, trial)
        return self._weights[trial.number]

    @cached_property
    def by_label(self) -> dict[str, list[Trial]]:
        found: dict[str, list[Trial]] = {entry.label: [] for entry in self.event.trials}
        for trial in self.trials:
            found[self.event.trials[trial.number].label].append(trial)
        return found

    def scores(self) -> dict[str, list[float]]:
        """Scores by label, in the order of the seeds.

        A recipe that failed on a seed is left out, because the mean of its other seeds would be too high.
        """
        return {
            label: [trial.score for trial in trials if trial.score is not None]
            for label, trials in self.by_label.items()
            if all(trial.state == "completed" for trial in trials) and len(trials) == len(self.event.seeds)
        }

    def describe_incomplete(self) -> list[str]:
        """Return a sentence for each recipe that is not compared."""
        sentences = []
        for label in self.by_label.keys() - self.scores().keys():
            states = [trial.state.replace("_", " ") for trial in self.by_label[label]]
            lost = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
            sentences.append(f"{label} is not ranked: it must complete on every seed ({lost}).")
        return sorted(sentences)


def check_searched(record: SweepRecord) -> None:
    """Refuse a sweep that is running, or that is not a search.

    Raises:
        UserError: it is running, or a replication.
    """
    name = record.name
    if record.folder.is_running():
        raise UserError(f"{name} is running: its best recipe is not known yet. Wait, or stop it: sweep stop {name}.")
    if (replication := record.replication) is not None:
        raise UserError(f"{name} is itself a replication of {replication.of}. Name {replication.of} instead.")


def replication_folder(source: SweepFolder, kind: ReplicationKind) -> SweepFolder:
    """Return the folder of the replication of `source`. It need not exist yet."""
    return SweepFolder(source.path.with_name(f"{source.name}-{kind}"))


def run_replication(
    source: SweepRecord,
    kind: ReplicationKind,
    recipes: Mapping[str, Recipe],
    *,
    seed_count: int,
    keep_best: int,
    notes: Sequence[str],
    console: Console,
) -> SweepEnd:
    """Train every recipe on `seed_count` seeds that `source` never used, as a new sweep on the same machines.

    Args:
        source: The sweep that the recipes come from.
        kind: The purpose of the replication.
        recipes: Recipes by label; one must have the label `baseline`.
        seed_count: Seeds of each recipe. All recipes train on one seed before the next seed, so a replication that is
            interrupted is still balanced.
        keep_best: Number of completed trials that keep their weights.
        notes: Sentences about what was left out, and why.
        console: Shows the progress.
    """
    from search.runner.sweep import run_sweep

    baseline = recipes[BASELINE]
    seeds = tuple(baseline.seed + number for number in range(1, seed_count + 1))
    trials = tuple(
        ReplicationTrial(
            label=label,
            recipe=recipe.model_copy(update={"seed": seed}),
            origin="baseline" if label == BASELINE else "listed",
        )
        for seed in seeds
        for label, recipe in recipes.items()
    )
    metric = source.space.search.metric
    search = Search(trials=len(trials), metric=metric, sampler="random", scheduler=NoScheduler())  # type: ignore[arg-type]
    folder = replication_folder(source.folder, kind)
    space = Space(folder.name, baseline.model_dump(), search)
    settings = replace(source.settings, keep_best=keep_best, time_budget_seconds=None)
    event = Replication(kind=kind, of=source.name, seeds=seeds, notes=tuple(notes), trials=trials)
    return run_sweep(folder, space, settings, console, [event])


def continue_replication(record: SweepRecord, console: Console) -> SweepEnd:
    """Finish a replication that exists already."""
    from search.runner.driver import SweepEnd
    from search.runner.sweep import resume_sweep

    ended = [trial for trial in record.trials if trial.ended is not None and trial.state != "interrupted"]
    if len(ended) == len(_replication_of(record).trials):
        return SweepEnd(record, "completed", 0)
    return resume_sweep(record.folder, console)


def read_replication(record: SweepRecord, source: SweepRecord | None = None) -> Replicated:
    """Return the trials of a replication; `source` is the sweep whose recipes these are, where it is open already.

    Raises:
        UserError: the sweep is no replication.
    """
    return Replicated(record, _replication_of(record), source)


def open_replication(source: SweepRecord, kind: ReplicationKind, seeds: int | None) -> SweepRecord | None:
    """The replication of this kind that exists already; None where it is to be made.

    Raises:
        UserError: it has another number of seeds, or too few or too many are asked for.
    """
    folder = replication_folder(source.folder, kind)
    if not folder.ledger.exists():
        if seeds is not None and seeds < FEWEST_SEEDS:
            raise UserError(f"--seeds={seeds}: an interval needs at least two seeds. Give {FEWEST_SEEDS} or more.")
        check_number("--seeds", seeds, most=MOST_SEEDS)
        return None
    record = SweepRecord.open(folder)
    there = len(_replication_of(record).seeds)
    if seeds not in (None, there):
        raise UserError(
            f"--seeds={seeds}: {record.name} exists already, with {there} seeds. Leave --seeds out to see it, or remove it "
            f"first: sweep rm {record.name}."
        )
    return record


def _replication_of(record: SweepRecord) -> Replication:
    if (event := record.replication) is None:
        raise UserError(f"{record.name} is not a replication. Rename its folder, or remove it: sweep rm {record.name}.")
    return event
