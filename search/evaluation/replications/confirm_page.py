"""The results of `sweep confirm` as sentences, as the rows of a table, and as a page."""

from __future__ import annotations

from analysis.effects.seed_intervals import Interval
from analysis.held_out.score_page import format_found, format_interval, format_range, render_score
from analysis.report.page import Chart, Section, Verdict, interval_chart, interval_row, render_page
from ledger.events import TestScored
from ledger.formatting import format_points, format_score, label_of, plural, unit_of
from ledger.recipe_text import baseline_of, short_recipe
from search.evaluation.replications.findings import BASELINE, Confirmation, ConfirmedRecipe, describe_time
from search.evaluation.replications.replication import Replicated

METHOD = (
    "Only seeds that the search never used count, so luck in the search does not help a recipe here. Intervals are "
    "Student's t over seeds at 95 %, with the noise pooled over the recipes, widened so that all hold at once (Bonferroni "
    "over the {count} recipes): the interval of the best recipe is valid although it was picked among them. The ranks are "
    "all ranks that the differences per seed allow, as in randomized blocks (Mogstad et al. 2024). They are about new "
    "seeds on the same validation images."
)
TEST_METHOD = (
    "The winner's model with the best validation score was scored on the test split, which is used for nothing else. The "
    "interval of its accuracy is Wilson's, over test images. The temperature was fitted on the validation split; it "
    "changes probabilities but never a prediction."
)
NO_TEST = "The data have no test split, so no score on images that nobody chose by."


def render(replicated: Replicated, confirmation: Confirmation) -> str:
    """Return the page as HTML."""
    finding = judge(confirmation.metric, confirmation.winner)
    chart, recipes = _recipe_chart(replicated, confirmation), _recipe_table(replicated, confirmation)
    sections = [
        Section("", [finding, *confirmation.notes], verdict=find_verdict(confirmation)),
        Section("Recipes on fresh seeds", [METHOD.format(count=len(confirmation.recipes))], [chart], *recipes),
    ]
    if (test := confirmation.test) is not None:
        picture = replicated.record.folder.path / "worst.png"
        worst = picture.read_bytes() if picture.exists() else b""
        text = [*describe_test(test), TEST_METHOD]
        sections += render_score("Test split", text, test.results, test.classes, worst)
    return render_page(f"{replicated.event.of}, confirmed", sections)


def _recipe_chart(replicated: Replicated, confirmation: Confirmation) -> Chart:
    metric, rows = confirmation.metric, []
    for recipe in confirmation.recipes:
        changes = differences_of(replicated, recipe)
        text = f"{recipe.name}, {format_ranks(recipe)}\n{format_interval(metric, recipe.interval)}\n{changes}"
        points = [
            (score, f"{recipe.name}\nseed {seed}: {format_score(metric, score)}\n{changes}")
            for seed, score in zip(confirmation.seeds, recipe.scores, strict=True)
        ]
        group = 1 if recipe.label == BASELINE else 0
        rows.append(interval_row(recipe.name, group, recipe.interval, unit_of(metric), text, points))
    caption = "The mean of each recipe with its 95 % interval; each diamond is one seed (orange: the baseline)."
    return interval_chart(caption, label_of(metric), rows, 46, zero=False)


def _recipe_table(replicated: Replicated, confirmation: Confirmation) -> tuple[list[str], list[list[str]]]:
    metric, more = confirmation.metric, ["95 % interval", "ahead of the baseline", "in the search", "by seed"]
    head = ["rank", "recipe", metric, *more, "changes to the baseline"]
    rows = [
        [
            format_ranks(recipe),
            recipe.name.replace(" ", "\N{NO-BREAK SPACE}"),
            format_score(metric, recipe.interval.mean),
            format_range(metric, recipe.interval),
            format_gap(metric, recipe.ahead_of_baseline) if recipe.ahead_of_baseline else "–",
            format_score(metric, recipe.searched),
            ", ".join(format_score(metric, score) for score in recipe.scores),
            differences_of(replicated, recipe),
        ]
        for recipe in confirmation.recipes
    ]
    return head, rows


def describe_seeds(confirmation: Confirmation) -> str:
    """Return the sentence above the recipes."""
    others = [recipe for recipe in confirmation.recipes if recipe.label != BASELINE]
    trained = ["The baseline"] if len(others) < len(confirmation.recipes) else []
    trained += [plural(len(others), "recipe")] if others else []
    seeds = plural(len(confirmation.seeds), "fresh seed")
    return f"{' and '.join(trained)} on {seeds}, {confirmation.metric}, 95 % intervals that hold all at once:"


def list_recipes(replicated: Replicated, confirmation: Confirmation) -> list[list[str]]:
    """Return the rank, the name, the score and the differences from the baseline of each recipe."""
    return [
        [
            format_ranks(recipe),
            recipe.name,
            format_interval(confirmation.metric, recipe.interval),
            differences_of(replicated, recipe),
        ]
        for recipe in confirmation.recipes
    ]


def describe_winner(confirmation: Confirmation) -> list[str]:
    """Return the sentences below the recipes."""
    best, metric = confirmation.winner, confirmation.metric
    sentences = [*confirmation.notes, judge(metric, best)]
    if best.searched is not None:
        sentences.append(
            f"Its score in the search was {format_score(metric, best.searched)}; "
            f"its mean on fresh seeds is {format_score(metric, best.interval.mean)}."
        )
    return [*sentences, *(describe_test(confirmation.test) if confirmation.test else [NO_TEST])]


def judge(metric: str, best: ConfirmedRecipe) -> str:
    """Return a sentence about the best recipe and the baseline: the terminal, the page and the model card have it."""
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


def find_verdict(confirmation: Confirmation) -> Verdict:
    """Return whether the gain of the best recipe over the baseline is proven, by the interval of that gain."""
    ahead = confirmation.winner.ahead_of_baseline
    return "none" if ahead is None else "proven" if ahead.low > 0 else "open"


def describe_test(test: TestScored) -> list[str]:
    """Return the score on the test split as sentences."""
    results = test.results
    before, after = (results["calibration"][name] for name in ("before", "after"))
    sentences = [
        f"Test split, scored {describe_time(test)}: accuracy {format_found(results['accuracy'])}, "
        f"{results['correct']} of {results['images']} images.",
        f"Calibration: ECE {before['ece']:.3f}, Brier {before['brier']:.3f}, NLL {before['nll']:.3f}; at temperature "
        f"{results['temperature']:.2f}: {after['ece']:.3f}, {after['brier']:.3f}, {after['nll']:.3f}.",
    ]
    if times := test.openings_before:
        sentences.append(
            f"The test split of this sweep had been scored {times} time{'s' * (times > 1)} before: the more often it is "
            "used, the less it proves."
        )
    return sentences


def format_ranks(recipe: ConfirmedRecipe) -> str:
    """Return the ranks that the scores allow, such as `#1–3`."""
    low, high = recipe.ranks
    return f"#{low}" if low == high else f"#{low}–{high}"


def differences_of(replicated: Replicated, confirmed: ConfirmedRecipe) -> str:
    """Return the differences of a recipe from the baseline, on one line."""
    recipe, baseline = replicated.by_label[confirmed.label][0].recipe, baseline_of(replicated.trials)
    return short_recipe(recipe.without("seed"), baseline.without("seed"))  # seeds always differ here


def format_gap(metric: str, gap: Interval) -> str:
    """Return a difference with its interval, such as `1.2 points (0.4 to 2.0)`."""
    low, high = (format_points(metric, end).removesuffix(" points") for end in (gap.low, gap.high))
    return f"{format_points(metric, gap.mean)} ({low} to {high})"
