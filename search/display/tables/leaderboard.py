"""The best trials of a sweep as a table, with sentences about how certain their order is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from analysis.report import sentences
from ledger.columns import list_columns
from ledger.formatting import format_effect, format_score, plural
from ledger.recipe_text import baseline_of, describe_recipe, format_state
from ledger.record import SweepRecord
from ledger.trials import Trial, Trials
from search.display.terminal import Column, Columns
from training.recipe import Recipe

if TYPE_CHECKING:
    from analysis.effects.technique_effects import Fitted

REASONS = 3  # reasons of failures that are shown at most
CHOICES = 3  # of the best trial, with the largest effects


def leaderboard(trials: Trials, limit: int = 10) -> RenderableType:
    """Return the best trials, completed ones first, and why trials failed."""
    ranked, baseline = trials.ranked(), baseline_of(trials)
    rows = [_leader(rank, trial, trials.metric, baseline) for rank, trial in enumerate(ranked[:limit], start=1)]
    more = [Text(f"… and {len(ranked) - limit} more", style="dim")] if len(ranked) > limit else []
    below = [Text(sentence) for sentence in _describe_failures(trials)]
    space = [Text("")] if rows else []
    # The training time stays longest; in a narrow window later columns are left out first.
    ranks = (2, *range(4, 99))
    listed = [Column(it.title, right=True, rank=rank) for it, rank in zip(list_columns("listed"), ranks, strict=False)]
    table = Columns([*LEADERS, *listed, Column("recipe")], rows, whole=1)
    return Group(table, *more, *space, *below)


LEADERS = [
    Column("#", right=True),
    Column("trial"),
    Column("state"),
    Column("score", right=True),
    Column("epochs", right=True, rank=1),
    Column("best at", right=True, rank=3),
]


def _leader(rank: int, trial: Trial, metric: str, baseline: Recipe) -> list[str]:
    last = trial.reports[-1]
    values = [(column, column.value(trial)) for column in list_columns("listed")]
    return [
        str(rank),
        trial.name,
        format_state(trial.state),
        format_score(metric, last.score, last.standard_error),
        f"{trial.epoch}/{trial.epochs}",
        str(last.best_epoch),
        *("" if value is None else column.text(value) for column, value in values),
        describe_recipe(trial, baseline),
    ]


def _describe_failures(trials: Trials) -> Iterator[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for trial in trials:
        if trial.state in ("failed", "out_of_memory", "diverged"):
            groups.setdefault((format_state(trial.state), trial.reason.rstrip(".")), []).append(trial.name)
    for (state, reason), names in list(groups.items())[:REASONS]:
        who = names[0] if len(names) == 1 else f"{len(names)} trials, {names[0]} the first of them,"
        ended = f"ran {state}" if state == "out of memory" else state
        yield f"{who} {ended}{': ' if reason else ''}{reason}."
    if len(groups) > REASONS:
        yield f"Trials failed for {plural(len(groups) - REASONS, 'more reason')}; the ledger has all of them."


def describe_finding(record: SweepRecord) -> list[str]:
    """Return sentences about the best trial: its lead, other trials that may be as good, its choices."""
    trials = record.trials
    if not any(trial.state == "completed" and trial.score is not None for trial in trials):
        return ["No trial completed, so none can be called the best." if len(trials) else "No trial has started yet."]
    if (made := record.replication) is not None:  # its trials are recipes by seeds, so the best one says nothing
        return [f"This sweep is a replication of {made.of}. See its finding with: sweep {made.kind} {made.of}"]
    from analysis.effects.lead import judge_record

    fitted, lead = judge_record(record)
    return [
        sentences.describe_lead(trials.metric, lead),
        *filter(None, [sentences.describe_rivals(lead)]),
        *(_describe_choices(trials.metric, fitted, int(lead.best)) if lead.verdict in ("open", "clear") else []),
    ]


def _describe_choices(metric: str, fitted: Fitted, trial: int) -> list[str]:
    from analysis.effects.technique_effects import CONFIDENCE, measure_effects

    effects = measure_effects(fitted, trial)
    helpful = effects[effects.effect > 0].sort_values("effect", ascending=False).head(CHOICES)
    if helpful.empty:
        return []
    listed = " · ".join(
        f"{row.parameter}={row.level} {format_effect(metric, row.effect, row.low, row.high)}"
        for row in helpful.itertuples()
    )
    trained = plural(len(fitted.design.scores), "full training")
    return [f"Effects of its choices, with {100 * CONFIDENCE:.0f} % intervals from {trained}: {listed}."]
