"""The page of `sweep confirm`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.formatting import format_score, label_of, unit_of
from analysis.report.page import Chart, Section, interval_row, render_page
from search.followup.replications.confirm_sentences import (
    describe_test,
    differences_of,
    format_found,
    format_gap,
    format_interval,
    format_range,
    format_ranks,
    judge,
)
from search.followup.replications.findings import BASELINE, Confirmation
from search.followup.replications.replication import Replicated
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


def write_page(folder: SweepFolder, replicated: Replicated, found: Confirmation) -> Path:
    """Write `confirm.html` into the sweep's folder."""
    from analysis.held_out.score_figures import draw_confusion, draw_reliability

    results, classes = found.test.results, found.test.classes
    confusion = Chart(
        "confusion",
        "Confusion matrix: rows are true classes, and the colour is the share of their images",
        {"classes": list(classes), "table": results["confusion"]},
        height=150 + 26 * min(len(classes), 30),
        picture=draw_confusion(results["confusion"], classes),
    )
    reliability = Chart(
        "reliability",
        "Reliability on the test part: the area of a mark is its share of the images",
        results["reliability"],
        picture=draw_reliability(results["reliability"]),
    )
    worst = folder.path / "worst.png"
    pictures = [("The wrong predictions with the highest confidence", worst.read_bytes())] if worst.exists() else []
    chart, table = _recipe_chart(replicated, found), _recipe_table(replicated, found)
    recall = ("class", "images", "recognised", "recall")
    sections = [
        Section(text=[*found.notes, judge(found)]),
        Section("Recipes on fresh seeds", [METHOD.format(count=len(found.recipes))], [chart], *table),
        Section("Test part", [*describe_test(found), TEST_METHOD], [reliability], *_calibration_table(results)),
        Section("Classes", (), [confusion], recall, _recall_rows(results), pictures),
    ]
    page = folder.path / "confirm.html"
    page.write_text(render_page(f"{replicated.event.of}, confirmed", sections), encoding="utf-8")
    return page


def _recipe_chart(replicated: Replicated, found: Confirmation) -> Chart:
    metric, rows = found.metric, []
    for recipe in found.recipes:
        changes = differences_of(replicated, recipe)
        text = f"{recipe.name}, {format_ranks(recipe)}\n{format_interval(metric, recipe.interval)}\n{changes}"
        points = [
            (score, f"{recipe.name}\nseed {seed}: {format_score(metric, score)}\n{changes}")
            for seed, score in zip(found.seeds, recipe.scores, strict=True)
        ]
        group = 1 if recipe.label == BASELINE else 0
        rows.append(interval_row(recipe.name, group, recipe.interval, unit_of(metric), text, points))
    caption = "The mean of each recipe with its 95 % interval; each diamond is one seed (orange: the baseline)."
    data = {"label": label_of(metric), "zero": False, "rows": rows}
    return Chart("intervals", caption, data, height=80 + 46 * len(rows))


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
            format_ranks(recipe),
            recipe.name.replace(" ", "\N{NO-BREAK SPACE}"),
            format_score(metric, recipe.interval.mean),
            format_range(metric, recipe.interval),
            format_gap(metric, recipe.ahead_of_baseline) if recipe.ahead_of_baseline else "–",
            format_score(metric, recipe.searched),
            ", ".join(format_score(metric, score) for score in recipe.scores),
            differences_of(replicated, recipe),
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
            format_found("val_accuracy", found["interval"]) if found["interval"] else "no image",
        ]
        for found in results["recall"]
    ]
