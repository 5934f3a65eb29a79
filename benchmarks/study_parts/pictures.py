"""The pictures of the study's page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from analysis.effects.technique_effects import NOT_ENOUGH
from benchmarks.search_quality import BASE, Curves
from benchmarks.study_parts.photos import read_test
from benchmarks.study_parts.plot_style import BLUE, GREEN, GREY, INK, ORANGE, RED, finish, new_figure
from benchmarks.study_parts.searching import METHODS, WORKERS, Run, budget_of, mean_seconds
from ledger.formatting import unit_of

VERDICTS = {"useful": GREEN, "harmful": RED, "no effect seen": BLUE, "not enough trials": GREY}
COLOURS = dict(zip(METHODS, (GREY, ORANGE, RED, BLUE), strict=True))
SHOWN_PHOTOS = (2, 8)  # rows and columns


def save(figure: Figure, file: Path) -> None:
    figure.savefig(file, dpi=110, facecolor="white")


def plot_searches(runs: list[Run], curves: Curves) -> Figure:
    """The mean test accuracy of the leading recipe over the time of the search, with 95 % intervals over seeds."""
    seconds = budget_of(curves) * mean_seconds(curves) / WORKERS
    figure, axes = new_figure(8.2, 3.6)
    for method, name in METHODS.items():
        tests = 100 * np.array([run.tests for run in runs if run.method == method])
        minutes = np.linspace(0, seconds / 60, tests.shape[1] + 1)[1:]
        mean, error = tests.mean(axis=0), 1.96 * tests.std(axis=0, ddof=1) / len(tests) ** 0.5
        axes.plot(minutes, mean, color=COLOURS[method], label=name, linestyle="--" if method == BASE else "-")
        axes.fill_between(minutes, mean - error, mean + error, color=COLOURS[method], alpha=0.15, linewidth=0)
    axes.set_xlabel(f"minutes of the search, {WORKERS} workers")
    axes.set_ylabel("test accuracy (%)")
    axes.legend(loc="lower right", frameon=False)
    return finish(figure)


def plot_confirmation(confirmation: dict[str, Any]) -> Figure:
    """The validation accuracy of each confirmed recipe on each fresh seed, and the interval of its mean."""
    recipes = confirmation["recipes"]
    figure, axes = new_figure(8.2, 0.9 + 0.4 * len(recipes))
    for place, recipe in enumerate(reversed(recipes)):
        interval, is_baseline = recipe["interval"], recipe["label"] == "baseline"
        colour = ORANGE if is_baseline else BLUE
        axes.plot([100 * interval["low"], 100 * interval["high"]], [place, place], color=colour, linewidth=2.4)
        axes.plot(100 * interval["mean"], place, "o", color=colour, markersize=6)
        axes.plot(100 * np.array(recipe["scores"]), [place] * len(recipe["scores"]), "|", color=INK, markersize=9)
    names = ["the baseline" if recipe["label"] == "baseline" else f"trial {recipe['label']}" for recipe in recipes]
    axes.set_yticks(range(len(recipes)), names[::-1])
    axes.set_ylim(-0.6, len(recipes) - 0.4)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("validation accuracy on fresh seeds (%)")
    return finish(figure)


def plot_predictions(folder: Path) -> Figure:
    """Some test photographs with the predicted label, and the true one where it differs."""
    paths, labels = read_test(folder)
    rows = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    count = min(len(rows), SHOWN_PHOTOS[0] * SHOWN_PHOTOS[1])
    figure, grid = new_figure(8.2, 3.0, *SHOWN_PHOTOS, squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    chosen = np.random.default_rng(0).permutation(len(rows))[:count]
    for axes, index in zip(grid.flat, chosen, strict=False):
        axes.imshow(np.asarray(Image.open(paths[index]).convert("RGB")), interpolation="nearest")
        is_right = rows[index]["label"] == labels[index]
        title = rows[index]["label"] if is_right else f"{rows[index]['label']}\n({labels[index]})"
        axes.set_title(title, color=GREEN if is_right else RED, loc="center")
        axes.title.set_fontsize(8)
    return figure


def draw_all(folder: Path, out: Path, runs: list[Run], curves: Curves, winner: dict[str, Any] | None) -> None:
    """Write the pictures into `out`; those of the real sweep only if it has run."""
    save(plot_searches(runs, curves), out / "study-search.png")
    if winner is not None:
        effects = pd.read_json(folder / "effects.json")
        save(plot_effects(effects[~effects.detail.astype(bool)], "val_accuracy"), out / "study-effects.png")
        save(plot_confirmation(winner["confirmation"]), out / "study-confirm.png")
        save(plot_predictions(folder), out / "study-predictions.png")


def plot_effects(effects: pd.DataFrame, metric: str) -> Figure:
    """The interval of each level's effect relative to the baseline's choice; `effects` is from `measure_effects`."""
    unit = unit_of(metric)
    figure, axes = new_figure(8.2, 0.8 + 0.24 * max(3, len(effects)))
    places = np.arange(len(effects))[::-1]
    axes.axvline(0, color=INK, linewidth=0.8)
    for place, row in zip(places, effects.itertuples(), strict=True):
        colour = VERDICTS[row.verdict]
        if row.verdict == NOT_ENOUGH:
            at = {"xy": (0, place), "xytext": (5, 0), "textcoords": "offset points"}
            axes.annotate(NOT_ENOUGH, **at, va="center", color=INK, alpha=0.8, fontsize=8)
            continue
        axes.plot([unit * row.low, unit * row.high], [place, place], color=colour, linewidth=2.4, solid_capstyle="butt")
        axes.plot(unit * row.effect, place, "o", color=colour, markersize=4.5)
    axes.set_yticks(places, [f"{row.parameter} = {row.level}" for row in effects.itertuples()])
    axes.set_ylim(-0.7, len(effects) - 0.3)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(("points " if unit == 100 else "") + "better than the baseline's choice")
    return finish(figure)
