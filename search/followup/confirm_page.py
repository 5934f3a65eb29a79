"""The results of `sweep confirm`, as sentences for the terminal and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.effects.intervals import Interval
from analysis.formatting import format_points, format_score
from analysis.report.page import Section, render_page
from search.display.recipe_text import baseline_of, short_recipe
from search.followup.findings import BASELINE, Confirmation, ConfirmedRecipe
from search.followup.replication import Replicated
from search.storage.folder import SweepFolder

METHOD = (
    "Only seeds that the search never used count, so luck in the search does not help a recipe here. Intervals are "
    "Student's t over seeds at 95 %, with the noise pooled over the recipes, widened so that all hold at once (Bonferroni "
    "over the {count} recipes): the interval of the best recipe is valid although it was picked among them. The ranks are "
    "all ranks that the differences per seed allow, as in randomized blocks (Mogstad et al. 2024). They are about new "
    "seeds on the same validation images."
)
TEST_METHOD = (
    "The winner's model with the best validation score was scored on the test part, which is used for nothing else. The "
    "interval of its accuracy is Wilson's, over test images. The temperature was fitted on the validation part; it "
    "changes probabilities but never a prediction."
)


def describe(replicated: Replicated, found: Confirmation) -> list[str]:
    """Return a summary, as one sentence for each result."""
    best, metric = found.winner, found.metric
    sentences = [
        f"{len(found.recipes)} recipes on {len(found.seeds)} fresh seeds, {metric}, 95 % intervals that hold all at once:"
    ]
    sentences += [
        f"  {_ranks(recipe)}  {recipe.name}  {_format_interval(metric, recipe.interval)}  {_short(replicated, recipe)}"
        for recipe in found.recipes
    ]
    sentences += [*found.notes, _judge(found)]
    if best.searched is not None:
        sentences.append(
            f"Its score in the search was {format_score(metric, best.searched)}; "
            f"its mean on fresh seeds is {format_score(metric, best.interval.mean)}."
        )
    return [*sentences, *_describe_test(found)]


def _judge(found: Confirmation) -> str:
    best, metric = found.winner, found.metric
    if best.label == BASELINE:
        return "The baseline is the best: no recipe is ahead of it on fresh seeds."
    if (ahead := best.ahead_of_baseline) is None:
        return (
            f"{best.name} is the best; it cannot be compared with the baseline, which did not complete on every seed."
        )
    gap = _format_gap(metric, ahead)
    if ahead.low > 0:
        return f"{best.name} beats the baseline by {gap}."
    return (
        f"{best.name} is ahead of the baseline by {gap}. This is not proven, because the interval contains 0; "
        "more seeds would make it narrower."
    )


def _describe_test(found: Confirmation) -> list[str]:
    results = found.test.results
    before, after = (results["calibration"][name] for name in ("before", "after"))
    sentences = [
        f"Test part, scored {found.scored_at}: accuracy {_format_found('val_accuracy', results['accuracy'])}, "
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


def write_page(folder: SweepFolder, replicated: Replicated, found: Confirmation) -> Path:
    """Write `confirm.html` into the sweep's folder."""
    from analysis.held_out.score_figures import draw_confusion, draw_reliability

    results, classes = found.test.results, found.test.classes
    pictures = [
        ("Confusion matrix: rows are true classes", draw_confusion(results["confusion"], classes)),
        ("Reliability on the test part", draw_reliability(results["reliability"])),
    ]
    if (worst := folder.path / "worst.png").exists():
        pictures.append(("The wrong predictions with the highest confidence", worst.read_bytes()))
    sections = [
        Section(text=[*found.notes, _judge(found)]),
        Section("Recipes on fresh seeds", [METHOD.format(count=len(found.recipes))], *_recipe_table(replicated, found)),
        Section("Test part", [*_describe_test(found), TEST_METHOD], *_calibration_table(results)),
        Section("Recall of each class", (), ("class", "images", "recognised", "recall"), _recall_rows(results)),
        Section("Pictures", (), pictures=pictures),
    ]
    page = folder.path / "confirm.html"
    page.write_text(render_page(f"{replicated.event.of}, confirmed", sections), encoding="utf-8")
    return page


def _recipe_table(replicated: Replicated, found: Confirmation) -> tuple[list[str], list[list[str]]]:
    metric = found.metric
    head = [
        "rank",
        "recipe",
        metric,
        "95 % interval",
        "ahead of the baseline",
        "in the search",
        "by seed",
        "difference from the baseline",
    ]
    rows = [
        [
            _ranks(recipe),
            recipe.name.replace(" ", "\N{NO-BREAK SPACE}"),
            format_score(metric, recipe.interval.mean),
            _format_range(metric, recipe.interval),
            _format_gap(metric, recipe.ahead_of_baseline) if recipe.ahead_of_baseline else "–",
            format_score(metric, recipe.searched),
            ", ".join(format_score(metric, score) for score in recipe.scores),
            _short(replicated, recipe),
        ]
        for recipe in found.recipes
    ]
    return head, rows


def _calibration_table(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    names = {"before": "without scaling", "after": f"at temperature {results['temperature']:.2f}"}
    rows = [
        [text, *(f"{results['calibration'][name][key]:.4f}" for key in ("ece", "brier", "nll"))]
        for name, text in names.items()
    ]
    return ["", "ECE (15 bins)", "Brier", "NLL"], rows


def _recall_rows(results: dict[str, Any]) -> list[list[str]]:
    return [
        [
            found["class"],
            str(found["images"]),
            str(found["found"]),
            _format_found("val_accuracy", found["interval"]) if found["interval"] else "no image",
        ]
        for found in results["recall"]
    ]


def _ranks(recipe: ConfirmedRecipe) -> str:
    low, high = recipe.ranks
    return f"#{low}" if low == high else f"#{low}–{high}"


def _short(replicated: Replicated, confirmed: ConfirmedRecipe) -> str:
    same = {"seed": 0}  # seeds always differ here, so they are not shown
    recipe, baseline = replicated.by_label[confirmed.label][0].recipe, baseline_of(replicated.trials)
    return short_recipe(recipe.model_copy(update=same), baseline.model_copy(update=same))


def _format_found(metric: str, interval: dict[str, float]) -> str:
    """An interval of the test part's results, as the ledger has them."""
    return _format_interval(metric, Interval(interval["mean"], interval["low"], interval["high"]))


def _format_interval(metric: str, interval: Interval) -> str:
    return f"{format_score(metric, interval.mean)} ({_format_range(metric, interval)})"


def _format_gap(metric: str, gap: Interval) -> str:
    low, high = (format_points(metric, end).removesuffix(" points") for end in (gap.low, gap.high))
    return f"{format_points(metric, gap.mean)} ({low} to {high})"


def _format_range(metric: str, interval: Interval) -> str:
    return f"{format_score(metric, interval.low).removesuffix(' %')} to {format_score(metric, interval.high)}"
