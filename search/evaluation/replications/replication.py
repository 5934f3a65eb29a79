"""A replication: the best recipes of a sweep, or variants of them, each trained on the same fresh seeds in full."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ledger.events import Replication, ReplicationKind, ReplicationTrial
from ledger.folder import SweepFolder
from ledger.formatting import format_seconds, plural
from ledger.record import SweepRecord
from ledger.trials import Trial, Trials
from search.arguments import check_number
from search.core.pace import Pace
from search.evaluation.replications.findings import BASELINE, Ablation, Confirmation
from spaces.search import NoScheduler, Search
from spaces.space import Space
from training.errors import UserError
from training.recipe import Recipe

if TYPE_CHECKING:
    from search.runner.display import Display
    from search.runner.sweep_run import SweepEnd

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
    def by_label(self) -> dict[str, list[Trial]]:
        labelled: dict[str, list[Trial]] = {entry.label: [] for entry in self.event.trials}
        for trial in self.trials:
            labelled[self.event.trials[trial.number].label].append(trial)
        return labelled

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


@dataclass(frozen=True)
class Variants:
    """What a replication trains: recipes by label, one of which is `baseline`, and sentences about what was left out."""

    recipes: dict[str, Recipe]
    notes: Sequence[str] = ()
    keeps_all: bool = False  # whether all trials keep their weights, or only the best one


def replicate(
    source: SweepRecord,
    kind: ReplicationKind,
    seeds: int | None,
    seconds: float | None,
    choose: Callable[[], Variants],
    display: Display,
) -> Replicated:
    """Train what `choose` returns on seeds that `source` never used, as a new sweep; one that exists is finished.

    With `seconds`, it has as many of the `seeds` as are likely to fit.

    Raises:
        Interrupted: it was interrupted.
    """
    from search.runner.interrupt import Interrupted
    from search.runner.start.moved_data import check_images, follow_move
    from search.runner.sweep import resume_sweep
    from search.runner.sweep_run import SweepEnd

    check_searched(source)
    if (record := _open_replication(source, kind, seeds)) is None:
        check_images(source, source.recorded_settings.is_local)
        variants = choose()
        count = choose_seeds(source, list(variants.recipes.values()), seeds or SEEDS, seconds, display.line)
        end = _start(source, kind, count, variants, display)
    elif seconds is not None:
        raise UserError(f"--time-budget: {record.name} exists already. Leave it out, to finish it and to see it.")
    else:
        record = follow_move(record, source)
        ended = [trial for trial in record.trials if trial.ended is not None and trial.state != "interrupted"]
        is_done = len(ended) == len(_replication_of(record).trials)
        end = SweepEnd(record, "completed", 0) if is_done else resume_sweep(record.folder, display)
    if end.state != "completed":
        raise Interrupted(signal.SIGINT, f"Continue with: sweep resume {end.record.called}")
    return read_replication(end.record, source)


def choose_seeds(
    source: SweepRecord, recipes: Sequence[Recipe], seeds: int, seconds: float | None, say: Callable[[str], None]
) -> int:
    """Return how many of the seeds are likely to fit into `seconds`, all without it; `say` gets what will be trained."""
    known = list(map(Pace(source.trials).predict, recipes))
    each = sum(one for one in known if one is not None) / max(1, source.driver.slots)  # on one seed
    if seconds is not None and None in known:
        raise UserError(f"--time-budget: no trial of {source.name} says how long one takes. Give --seeds instead.")
    if seconds is not None and seconds < FEWEST_SEEDS * each:
        raise UserError(
            f"--time-budget: {plural(len(recipes), 'recipe')} on {FEWEST_SEEDS} seeds, the fewest, take about "
            f"{format_seconds(FEWEST_SEEDS * each)}. Give more time."
        )
    seeds = seeds if seconds is None else min(seeds, int(seconds / each))
    time = "" if None in known else f", about {format_seconds(seeds * each)}"
    say(
        f"{plural(len(recipes), 'recipe')} on {plural(seeds, 'fresh seed')}: {plural(len(recipes) * seeds, 'training')}{time}."
    )
    return seeds


@dataclass(frozen=True)
class Conclusion:
    """What a replication found: for programs, as a page, and as a table between sentences.

    `metrics` are for MLflow, at the time `stamp` in seconds since 1970.
    """

    replicated: Replicated
    outcome: Ablation | Confirmation
    page: str  # HTML
    above: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    below: Sequence[str]
    metrics: Mapping[str, float]
    stamp: float


def publish(conclusion: Conclusion, say: Callable[[str], None]) -> None:
    """Write the results as JSON and as a page into the folder of the replication, and log them to its run in MLflow."""
    from search.tracking.own_run import log_results

    record, kind = conclusion.replicated.record, conclusion.replicated.event.kind
    results, html = (record.folder.path / f"{kind}.{ending}" for ending in ("json", "html"))
    texts = {results: json.dumps(conclusion.outcome.to_json(), indent=2) + "\n", html: conclusion.page}
    for path, text in texts.items():
        partial = path.with_name(f"{path.name}.partial")  # on a full disk, the earlier one stays
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    say(f"The page: {html}")
    lines = (conclusion.columns, ["---"] * len(conclusion.columns), *conclusion.rows)
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)  # MLflow shows its description as Markdown
    description = [conclusion.above, table, *conclusion.below]
    log_results(record, conclusion.metrics, [html, results], description, conclusion.stamp, say)


def check_searched(record: SweepRecord) -> None:
    """Refuse a sweep that is running, or that is not a search."""
    name = record.name
    record.refuse_missing()
    if record.folder.is_running():
        raise UserError(f"{name} is running: its best recipe is unknown. Wait, or stop it: sweep stop {record.called}.")
    if (replication := record.replication) is not None:
        raise UserError(f"{name} is itself a replication of {replication.of}. Name {replication.of} instead.")


def _start(
    source: SweepRecord, kind: ReplicationKind, seed_count: int, variants: Variants, display: Display
) -> SweepEnd:
    """Run a new replication on the same machines as `source`.

    All recipes train on one seed before the next seed, so a replication that is interrupted is still balanced.
    """
    from search.runner.sweep import run_sweep

    baseline = variants.recipes[BASELINE]
    seeds = tuple(baseline.seed + number for number in range(1, seed_count + 1))
    trials = tuple(
        ReplicationTrial(
            label=label,
            recipe=recipe.model_copy(update={"seed": seed}),
            origin="baseline" if label == BASELINE else "listed",
        )
        for seed in seeds
        for label, recipe in variants.recipes.items()
    )
    kept = {name: getattr(source.space.search, name) for name in ("metric", "score")}
    search = Search(trials=len(trials), sampler="random", scheduler=NoScheduler(), **kept)  # type: ignore[arg-type]
    folder = replication_folder(source.folder, kind)
    space = Space(folder.name, baseline.model_dump(), search)
    keep_best = len(trials) if variants.keeps_all else 1
    settings = replace(source.recorded_settings.for_driver(), keep_best=keep_best, time_budget_seconds=None)
    event = Replication(
        kind=kind, of=source.name, of_id=source.header.id, seeds=seeds, notes=tuple(variants.notes), trials=trials
    )
    return run_sweep(folder, space, settings, display, [event])


def replication_folder(source: SweepFolder, kind: ReplicationKind) -> SweepFolder:
    """Return the folder of the replication of `source`. It need not exist yet."""
    return SweepFolder(source.path.with_name(f"{source.name}-{kind}"))


def find_replication(source: SweepRecord, kind: ReplicationKind) -> Replicated | None:
    """Return the replication of this kind that exists already."""
    folder = replication_folder(source.folder, kind)
    if not folder.ledger.exists():
        return None
    replicated = read_replication(SweepRecord.open(folder), source)
    if replicated.event.of_id not in ("", source.header.id):
        raise UserError(
            f"{folder.name} is of another sweep that was called {source.name}. Remove it: sweep rm {folder.called}."
        )
    return replicated


def read_replication(record: SweepRecord, source: SweepRecord | None = None) -> Replicated:
    """Return the trials of a replication; `source` is the sweep whose recipes these are, where it is open already."""
    return Replicated(record, _replication_of(record), source)


def _open_replication(source: SweepRecord, kind: ReplicationKind, seeds: int | None) -> SweepRecord | None:
    if (made := find_replication(source, kind)) is None:
        if seeds is not None and seeds < FEWEST_SEEDS:
            raise UserError(f"--seeds={seeds}: an interval needs at least two seeds. Give {FEWEST_SEEDS} or more.")
        check_number("--seeds", seeds, most=MOST_SEEDS)
        return None
    there = len(made.event.seeds)
    if seeds not in (None, there):
        raise UserError(
            f"--seeds={seeds}: {made.record.name} exists already, with {there} seeds. Leave --seeds out to see it, or "
            f"remove it first: sweep rm {made.record.called}."
        )
    return made.record


def _replication_of(record: SweepRecord) -> Replication:
    if (event := record.replication) is None:
        raise UserError(f"{record.name} is no replication. Rename its folder, or remove it: sweep rm {record.called}.")
    return event


def choose_best(source: SweepRecord, count: int) -> list[Trial]:
    """Return the best completed trials with different recipes, best first."""
    chosen: list[Trial] = []
    for trial in source.trials.ranked():
        if trial.state == "completed" and trial.recipe not in [other.recipe for other in chosen]:
            chosen.append(trial)
    if not chosen:
        raise UserError(
            f"{source.name} has no completed trial, so it has no best recipe. Continue with: sweep resume {source.called}."
        )
    return chosen[:count]


def choose_baseline(source: SweepRecord) -> Trial:
    """Return the best completed baseline. Baselines differ in their learning rate."""
    baselines = [trial for trial in source.trials.ranked() if trial.origin == "baseline" and trial.state == "completed"]
    if not baselines:
        raise UserError(
            f"{source.name} has no completed baseline to compare with. Continue with: sweep resume {source.called}."
        )
    return baselines[0]
