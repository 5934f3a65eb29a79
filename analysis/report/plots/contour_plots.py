"""Plots of the score over two search parameters at once: full-length trials, and the mean of the trials near each place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from analysis.report.plots.effect_plots import cut
from analysis.report.plots.plot_style import INK, MANY, SCALE, finish, new_figure
from analysis.report.sweep_data import Axis
from ledger.formatting import label_of, unit_of

if TYPE_CHECKING:
    from ledger.tables import Sweep

CELLS = 40  # of an interval; an option is one cell
WIDTH = 0.1  # distance over which trials count as near, as a share of an interval
NEAR = 0.3  # sum of the weights below which a place has no trial near it


def plot_contour(sweep: Sweep, x: Axis, y: Axis) -> Figure:
    """The completed trials over two axes of `list_slices`, coloured by score; the field has the mean of those near by."""
    done = (sweep.trials.state == "completed").to_numpy()
    scores = unit_of(sweep.metric) * sweep.trials.score.to_numpy(dtype=float)
    points = [np.array(axis.values, dtype=float) for axis in (x, y)]
    kept = done & np.isfinite(scores) & np.isfinite(points[0]) & np.isfinite(points[1])
    scores, points = scores[kept], [place[kept] for place in points]
    edges = [_find_edges(axis, place) for axis, place in zip((x, y), points, strict=True)]
    near = [_weigh(axis, place, edge) for axis, place, edge in zip((x, y), points, edges, strict=True)]
    weights = near[1][:, None, :] * near[0][None, :, :]  # (y cells, x cells, trials)
    total = weights.sum(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        field = np.where(total < NEAR, np.nan, weights @ scores / total)
    figure, axes = new_figure(8.2, 4.0)
    colours = {"vmin": np.quantile(scores, 0.1), "vmax": scores.max(), "cmap": SCALE}
    if sweep.sign < 0:
        colours = {"vmin": scores.min(), "vmax": np.quantile(scores, 0.9), "cmap": SCALE.reversed()}
    axes.pcolormesh(*edges, field, alpha=0.45, rasterized=True, **colours)
    shown = axes.scatter(
        *points, c=scores, s=26, edgecolors=INK, linewidths=0.5, rasterized=len(scores) > MANY, **colours
    )
    for axis, one in ((axes.xaxis, x), (axes.yaxis, y)):
        axis.set_label_text(one.name)
        if one.scale == "log":
            getattr(axes, f"set_{axis.axis_name}scale")("log")
        elif one.scale == "options":
            axis.set_ticks(range(len(one.options)), [cut(label, 14) for label in one.options])
    axes.grid(visible=False)
    figure.colorbar(shown, ax=axes, label=label_of(sweep.metric)).outline.set_visible(False)
    return finish(figure)


def _find_edges(axis: Axis, values: np.ndarray) -> np.ndarray:
    """The edges of the cells of an axis."""
    if axis.scale == "options":
        return np.arange(len(axis.options) + 1) - 0.5
    low, high = _move(axis, values.min()), _move(axis, values.max())
    edges = np.linspace(low - 0.05 * (high - low), high + 0.05 * (high - low), CELLS + 1)
    return np.exp(edges) if axis.scale == "log" else edges


def _move(axis: Axis, values: np.ndarray) -> np.ndarray:
    return np.log(values) if axis.scale == "log" else values


def _weigh(axis: Axis, values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How near each trial is to the middle of each cell, from 0 to 1, as an array of cells and trials."""
    ends = _move(axis, edges)
    gaps = (ends[:-1] + ends[1:])[:, None] / 2 - _move(axis, values)[None, :]
    if axis.scale == "options":
        return (np.abs(gaps) < 0.5).astype(float)
    return np.exp(-0.5 * (gaps / (WIDTH * (ends[-1] - ends[0]) or 1.0)) ** 2)
