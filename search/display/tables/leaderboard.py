"""The best trials of a sweep as a table, with sentences about how certain their order is."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from analysis.formatting import format_score, format_seconds, plural
from search.core.trials import Trial, Trials
from search.display.recipe_text import baseline_of, describe_recipe, format_state
from search.display.significance import compare_with_baseline, describe_frozen, describe_ties
from search.display.tables.columns import Column, Columns
from training.recipe import Recipe
from training.score_metrics import COST

REASONS = 3  # reasons of failures that are shown at most


def leaderboard(trials: Trials, limit: int = 10, *, lead: bool = True) -> RenderableType:
    """Return the best trials, completed ones first, and sentences about how certain their order is.

    Without `lead`, the sentence about the best trial and the baseline is left out.
    """
    ranked, baseline = trials.ranked(), baseline_of(trials)
    rows = [_leader(rank, trial, trials.metric, baseline) for rank, trial in enumerate(ranked[:limit], start=1)]
    more = [Text(f"… and {len(ranked) - limit} more", style="dim")] if len(ranked) > limit else []
    sentences = [
        *_describe_failures(trials),
        *describe_ties(trials),
        *(compare_with_baseline(trials) if lead else []),
        *describe_frozen(trials),
    ]
    space = [Text("")] if rows else []
    return Group(Columns(LEADERS, rows, whole=1), *more, *space, *(Text(sentence) for sentence in sentences))


LEADERS = [
    Column("#", right=True),
    Column("trial"),
    Column("state"),
    Column("score", right=True),
    Column("epochs", right=True, rank=1),
    Column("best at", right=True, rank=3),
    Column("training", right=True, rank=2),
    Column("recipe"),
]


def _leader(rank: int, trial: Trial, metric: str, baseline: Recipe) -> list[str]:
    last = trial.reports[-1]
    return [
        str(rank),
        trial.name,
        format_state(trial.state),
        format_score(metric, last.score, last.standard_error),
        f"{trial.epoch}/{trial.epochs}",
        str(last.best_epoch),
        format_seconds(sum(last.metrics.get(part) or 0.0 for part in COST)),
        describe_recipe(trial, baseline),
    ]


def _describe_failures(trials: Trials) -> Iterator[str]:
    """Return a sentence for each reason of failures."""
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
