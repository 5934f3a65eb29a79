"""Plots of a sweep's course: learning curves, parallel coordinates and a timeline."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from analysis.effects.search_parameters import encode, is_interval, list_levels, list_parameters
from analysis.report.plots.effect_plots import cut
from analysis.report.plots.plot_style import (
    BLUE,
    GREEN,
    GREY,
    MANY,
    ORANGE,
    RED,
    SCALE,
    STATES,
    finish,
    new_figure,
    put_legend,
    wrap_axes,
)
from analysis.report.sweep_data import EPOCH_METRICS, find_rungs
from ledger.formatting import label_of, plural, unit_of

if TYPE_CHECKING:
    from ledger.tables import Sweep

OVERLAP_SECONDS = 0.05  # The start of a worker's next trial can be recorded before the end of its last one.
PANELS = {
    "loss": {"val_loss": "-", "train_loss": "--"},
    "accuracy (%)": {"val_accuracy": "-", "train_accuracy": "--"},
    "learning rate": {"lr": "-"},
}


def plot_curves(sweep: Sweep) -> Figure:
    """The score of every trial over its epochs; ASHA stopped the grey ones."""
    figure, axes = new_figure(8.2, 3.6)
    unit = unit_of(sweep.metric)
    states = sweep.trials.set_index("trial").state
    best = sweep.completed.trial.head(1).tolist()
    base = sweep.trials[sweep.trials.is_baseline].trial.tolist()
    pixels = len(sweep.trials) > MANY
    for trial, curve in sweep.curves.groupby("trial"):
        colour, width, alpha, order = STATES.get(states[trial], GREY), 0.9, 0.55, 2
        if states[trial] != "completed":
            alpha, order = 0.45, 1
        if trial in base:
            colour, width, alpha, order = ORANGE, 1.4, 0.9, 3
        if trial in best:
            width, alpha, order = 2.2, 1.0, 4
        axes.plot(
            curve.epoch, unit * curve.score, color=colour, linewidth=width, alpha=alpha, zorder=order, rasterized=pixels
        )
        if len(curve) == 1:
            axes.plot(curve.epoch, unit * curve.score, ".", color=colour, markersize=3, alpha=alpha, rasterized=pixels)
    for epoch, count in find_rungs(sweep.trials):
        axes.axvline(epoch, color=GREY, linewidth=0.7, linestyle=":")
        axes.text(epoch, 1.0, f"{count}", transform=axes.get_xaxis_transform(), fontsize=7, color=GREY, va="bottom")
    label = label_of(sweep.metric)
    axes.set(xlabel="epoch", ylabel=label if sweep.space.search.score == "last" else f"best {label} so far")
    names = {"completed": (BLUE, 1, "-"), "the best": (BLUE, 2.4, "-"), "baseline": (ORANGE, 1.4, "-")}
    put_legend(figure, {**names, "stopped": (GREY, 1, "-")})
    return finish(figure)


def plot_epochs(sweep: Sweep) -> Figure:
    """Loss, accuracy and learning rate of the best trial and of the best baseline in each epoch; training is dashed."""
    done = sweep.completed
    shown = pd.concat([done.head(1), done[done.is_baseline].head(1)]).drop_duplicates("trial")
    figure, grid = new_figure(8.2, 2.8, 1, len(PANELS))
    for axes, (title, lines) in zip(wrap_axes(grid), PANELS.items(), strict=True):
        for trial, colour in zip(shown.itertuples(), (BLUE, ORANGE), strict=False):
            curve = sweep.curves[sweep.curves.trial == trial.trial]
            for name, style in lines.items():
                axes.plot(curve.epoch, EPOCH_METRICS[name] * curve[name], style, color=colour, linewidth=1.4)
        axes.set(xlabel="epoch", title=title)
    names = [f"trial {trial:04d}" for trial in shown.trial]
    put_legend(figure, {name: (colour, 1.4, "-") for name, colour in zip(names, (BLUE, ORANGE), strict=False)})
    return finish(figure)


def plot_progress(sweeps: Mapping[str, Sweep]) -> Figure:
    """The best full-length score over the epochs that all trials have run; a line for each sweep."""
    figure, axes = new_figure(8.2, 3.0)
    names: dict[str, tuple[str, float, object]] = {}
    for (name, sweep), colour in zip(sweeps.items(), cycle((BLUE, ORANGE, GREEN, RED, GREY)), strict=False):
        trials = sweep.trials.sort_values("ended", kind="stable")
        finals = (sweep.sign * trials.score).where(trials.state == "completed").cummax().ffill()
        spent = trials.epochs_done.cumsum()
        axes.step(spent, sweep.sign * unit_of(sweep.metric) * finals, where="post", color=colour)
        names[name] = (colour, 1.4, "-")
    axes.set(xlabel="epochs spent by all trials", ylabel=f"best {label_of(sweep.metric)}")
    if len(names) > 1:
        put_legend(figure, names)
    return finish(figure)


def plot_parallel(sweep: Sweep) -> Figure:
    """Every trial as a line through its values of all search parameters, coloured by score; completed ones on top."""
    parameters = list_parameters(sweep.space.recipe)
    trials = sweep.trials[sweep.trials.score.notna()].sort_values("score", ascending=sweep.sign > 0, kind="stable")
    points = encode(parameters, sweep.recipes.loc[trials.trial])
    places, ticks = [], []
    rng = np.random.default_rng(0)
    for parameter in parameters:
        if is_interval(parameter.domain):
            places.append(points[parameter.name].to_numpy(dtype=float))
            ticks.append({0.0: f"{parameter.domain.low:g}", 1.0: f"{parameter.domain.high:g}"})
        else:
            options = {level.option: level.label for level in list_levels(parameter) if not level.detail}
            step = {option: i / max(1, len(options) - 1) for i, option in enumerate(options)}
            places.append(
                points[parameter.name].map(step).to_numpy(dtype=float) + rng.uniform(-0.03, 0.03, len(points))
            )
            ticks.append({place: options[option] for option, place in step.items()})
    figure, axes = new_figure(8.2, 3.4)
    lines = np.stack(
        [np.tile(np.arange(len(parameters)), (len(points), 1)), np.clip(np.stack(places, axis=1), -0.1, 1.1)], axis=2
    )
    rank = trials.score.rank(pct=True).to_numpy()
    rank = rank if sweep.sign > 0 else 1 - rank
    done = (trials.state == "completed").to_numpy()
    colours = SCALE(rank)
    colours[:, 3] = np.where(done, 0.85, 0.18)
    order = np.argsort(done, kind="stable")
    axes.add_collection(
        LineCollection(
            list(lines[order]),
            colors=colours[order],
            linewidths=np.where(done, 1.3, 0.8)[order],
            rasterized=len(lines) > MANY,
        )
    )
    axes.set_xlim(-0.2, len(parameters) - 0.6)
    axes.set_ylim(-0.12, 1.12)
    axes.set_xticks(range(len(parameters)), [parameter.name.replace(".", "\n") for parameter in parameters], fontsize=7)
    axes.set_yticks([])
    for place, marks in enumerate(ticks):
        for height, text in marks.items():
            axes.text(place + 0.03, height, cut(text, 13), fontsize=6.5, va="center", zorder=5)
    axes.grid(axis="x", visible=True, alpha=0.8)
    return finish(figure)


def plot_timeline(sweep: Sweep) -> Figure:
    """A timeline: a bar for each trial, on the first row that was free. Times without a driver are cut out."""
    timed = sweep.trials[sweep.trials.started.notna() & sweep.trials.ended.notna()].sort_values("started")
    worked = {
        name: timed[name]
        - sum((timed[name] - start).clip(0, max(end - start, 0)) for start, end in sweep.interruptions)
        for name in ("started", "ended")
    }
    timed = timed.assign(**worked)
    start = timed.started.min() if len(timed) else 0.0
    busy: list[float] = []  # the time at which each row becomes free
    rows = []
    for trial in timed.itertuples():
        free = [row for row, until in enumerate(busy) if until <= trial.started + OVERLAP_SECONDS]
        row = free[0] if free else len(busy)
        busy[row : row + 1] = [trial.ended]
        rows.append(row)
    count = max(rows, default=0) + 1
    figure, axes = new_figure(8.2, 0.9 + 0.22 * min(count, 24))
    spans = (timed.ended - timed.started).to_numpy() / 60
    lefts = (timed.started - start).to_numpy() / 60
    colours = [STATES.get(state, GREY) for state in timed.state]
    axes.barh(rows, spans, left=lefts, color=colours, height=0.78, linewidth=0, rasterized=len(timed) > MANY)
    without = f", without {plural(len(sweep.interruptions), 'interruption')}" if sweep.interruptions else ""
    axes.set(xlabel=f"minutes since the first trial began{without}", ylabel="worker", yticks=[])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    shown = [state for state in STATES if (timed.state == state).any()]
    put_legend(figure, {state.replace("_", " "): (STATES[state], 5, "-") for state in shown})
    return finish(figure)
