"""The results of `sweep confirm` as sentences."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from analysis.effects.intervals import Interval
from analysis.formatting import format_points, format_score, plural
from search.display.recipe_text import baseline_of, short_recipe
from search.display.tables.columns import Column, Columns
from search.followup.replications.findings import BASELINE, Confirmation, ConfirmedRecipe
from search.followup.replications.replication import Replicated

RECIPES = [Column("rank"), Column("recipe"), Column("score"), Column("difference from the baseline")]


def describe(replicated: Replicated, found: Confirmation) -> list[str]:
    """Return a summary, as one sentence for each result."""
    rows = (f"  {'  '.join(cells)}" for cells in _list_recipes(replicated, found))
    return [_describe_seeds(found), *rows, *_conclude(found)]


def show(replicated: Replicated, found: Confirmation) -> RenderableType:
    """Return the same for the terminal, with the recipes as a table."""
    rows = _list_recipes(replicated, found)
    table = Columns(RECIPES, rows, whole=len(rows))
    return Group(Text(_describe_seeds(found)), Text(""), table, Text(""), *map(Text, _conclude(found)))


def _describe_seeds(found: Confirmation) -> str:
    recipes, seeds = plural(len(found.recipes), "recipe"), plural(len(found.seeds), "fresh seed")
    return f"{recipes} on {seeds}, {found.metric}, 95 % intervals that hold all at once:"


def _list_recipes(replicated: Replicated, found: Confirmation) -> list[list[str]]:
    return [
        [
            format_ranks(recipe),
            recipe.name,
            format_interval(found.metric, recipe.interval),
            differences_of(replicated, recipe),
        ]
        for recipe in found.recipes
    ]


def _conclude(found: Confirmation) -> list[str]:
    best, metric = found.winner, found.metric
    sentences = [*found.notes, judge(found)]
    if best.searched is not None:
        sentences.append(
            f"Its score in the search was {format_score(metric, best.searched)}; "
            f"its mean on fresh seeds is {format_score(metric, best.interval.mean)}."
        )
    return [*sentences, *describe_test(found)]


def judge(found: Confirmation) -> str:
    """Return a sentence about the best recipe and the baseline."""
    best, metric = found.winner, found.metric
    if best.label == BASELINE:
        return "The baseline is the best: no recipe is ahead of it on fresh seeds."
    if (ahead := best.ahead_of_baseline) is None:
        return (
            f"{best.name} is the best; it cannot be compared with the baseline, which did not complete on every seed."
        )
    gap = format_gap(metric, ahead)
    if ahead.low > 0:
        return f"{best.name} beats the baseline by {gap}."
    return (
        f"{best.name} is ahead of the baseline by {gap}. This is not proven, because the interval contains 0; "
        "more seeds would make it narrower."
    )


def describe_test(found: Confirmation) -> list[str]:
    """Return the score on the test part as sentences."""
    results = found.test.results
    before, after = (results["calibration"][name] for name in ("before", "after"))
    sentences = [
        f"Test part, scored {found.scored_at}: accuracy {format_found('val_accuracy', results['accuracy'])}, "
        f"{results['correct']} of {results['images']} images.",
        f"Calibration: ECE {before['ece']:.3f}, Brier {before['brier']:.3f}, NLL {before['nll']:.3f}; at temperature "
        f"{results['temperature']:.2f}: {after['ece']:.3f}, {after['brier']:.3f}, {after['nll']:.3f}.",
    ]
    if times := found.test.openings_before:
        sentences.append(
            f"The test part of this sweep had been scored {times} time{'s' * (times > 1)} before: the more often it is "
            "used, the less it proves."
        )
    return sentences


def format_ranks(recipe: ConfirmedRecipe) -> str:
    """Return the ranks that the scores allow, such as `#1–3`."""
    low, high = recipe.ranks
    return f"#{low}" if low == high else f"#{low}–{high}"


def differences_of(replicated: Replicated, confirmed: ConfirmedRecipe) -> str:
    """Return the differences of a recipe from the baseline, on one line."""
    same = {"seed": 0}  # seeds always differ here, so they are not shown
    recipe, baseline = replicated.by_label[confirmed.label][0].recipe, baseline_of(replicated.trials)
    return short_recipe(recipe.model_copy(update=same), baseline.model_copy(update=same))


def format_found(metric: str, interval: dict[str, float]) -> str:
    """An interval of the test part's results, as the ledger has them."""
    return format_interval(metric, Interval(interval["mean"], interval["low"], interval["high"]))


def format_interval(metric: str, interval: Interval) -> str:
    """Return a mean with its interval, such as `93.1 % (92.0 to 94.2 %)`."""
    return f"{format_score(metric, interval.mean)} ({format_range(metric, interval)})"


def format_gap(metric: str, gap: Interval) -> str:
    """Return a difference with its interval, such as `1.2 points (0.4 to 2.0)`."""
    low, high = (format_points(metric, end).removesuffix(" points") for end in (gap.low, gap.high))
    return f"{format_points(metric, gap.mean)} ({low} to {high})"


def format_range(metric: str, interval: Interval) -> str:
    """Return the ends of an interval."""
    return f"{format_score(metric, interval.low).removesuffix(' %')} to {format_score(metric, interval.high)}"
